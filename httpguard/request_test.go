package httpguard_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

func TestH01H02ConnectionOptions(t *testing.T) {
	f := newFixture(t, setup{})
	for _, value := range []string{"Idempotency-Key", "close, Idempotency-Key", "X-Account", "X-Anything", "idempotency-key"} {
		f.refused(t, f.post("/pay", "k", "{}", "Connection", value), 400, "request-invalid")
	}
	f.post("/pay", "k", "{}", "Connection", "Keep-Alive").wants(t, 201, "", "created")
	// On an optional route the key must not vanish on the way either.
	f = newFixture(t, setup{policy: func(p *policy.Policy) { p.Operations[0].Key.Required = false }})
	f.refused(t, f.post("/pay", "", "{}", "Connection", "Idempotency-Key"), 400, "request-invalid")
}

func TestH11TooManyFields(t *testing.T) {
	f := newFixture(t, setup{})
	var fields []string
	for range 200 {
		fields = append(fields, "X-Many", "1")
	}
	f.refused(t, f.post("/pay", "k", "{}", fields...), 431, "request-invalid")
}

func TestH12ExpectContinueOfAHugeBody(t *testing.T) {
	f := newFixture(t, setup{})
	srv := f.serve()
	a := raw(t, srv, "POST /pay HTTP/1.1\r\nHost: x\r\nX-Account: acct-1\r\nIdempotency-Key: k\r\nExpect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n", 1)[0]
	f.refused(t, a, 413, "body-too-large") // and not 100 first
}

func TestH13OurFieldsFromACallerAreDropped(t *testing.T) {
	var seen http.Header
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() })})
	fields := []string{"Counterfoil-Identity", "forged", "Counterfoil-Outcome", "none", "Counterfoil-Resource", "/x"}
	a := f.post("/pay", "k", "{}", fields...)
	a.wants(t, 200, "", "created")
	if seen.Get("Counterfoil-Identity") != a.header.Get("Idempotency-Record") || seen.Get("Counterfoil-Outcome") != "" || seen.Get("Counterfoil-Resource") != "" {
		t.Errorf("the handler saw %v", seen)
	}
	if seen.Get("Idempotency-Key") != "k" {
		t.Error("the key is altered")
	}
	f.send("GET", "/pay", "", "", fields...)
	if seen.Get("Counterfoil-Identity") != "" {
		t.Errorf("the handler saw %v", seen)
	}
}

func TestH14MethodOverride(t *testing.T) {
	var seen http.Header
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() })})
	f.post("/pay", "k", "{}", "X-HTTP-Method-Override", "DELETE").wants(t, 200, "", "created")
	if seen.Get("X-HTTP-Method-Override") != "" {
		t.Error("it reached the handler")
	}
	// A framework behind us would take this GET for a POST.
	f.send("GET", "/pay", "k", "", "X-HTTP-Method-Override", "post").wants(t, 400, "request-ambiguous", "")
	f.send("GET", "/other", "k", "", "X-HTTP-Method-Override", "post").wants(t, 200, "", "")
}

func TestH15Upgrade(t *testing.T) {
	f := newFixture(t, setup{})
	for _, value := range []string{"h2c", "websocket"} {
		f.refused(t, f.post("/pay", "k", "{}", "Connection", "Upgrade", "Upgrade", value), 400, "request-invalid")
	}
}

func TestH16AcceptEncodingDoesNotCount(t *testing.T) {
	f := newFixture(t, setup{})
	a1 := f.post("/pay", "k", "{}", "Accept-Encoding", "gzip", "Traceparent", "1")
	a2 := f.post("/pay", "k", "{}", "Accept-Encoding", "br", "Traceparent", "2")
	a2.wants(t, 201, "", "replayed")
	if a1.body != a2.body {
		t.Error("another body")
	}
}

func TestH17EarlyData(t *testing.T) {
	f := newFixture(t, setup{})
	f.refused(t, f.post("/pay", "k", "{}", "Early-Data", "1"), 425, "request-invalid")
	f.post("/pay", "k", "{}", "Early-Data", "0").wants(t, 201, "", "created")
}

func TestH19MediaType(t *testing.T) {
	f := newFixture(t, setup{})
	f.post("/pay", "k", "{}").wants(t, 201, "", "created")
	f.post("/pay", "k", "{}", "Content-Type", "", "Content-Type", "Application/JSON; charset=UTF-8").wants(t, 201, "", "replayed")
	f.post("/pay", "k", "{}", "Content-Type", "", "Content-Type", "text/plain").wants(t, 422, "key-reused", "mismatch")
}

func TestH21PipelinedDuplicate(t *testing.T) {
	f := newFixture(t, setup{})
	const one = "POST /pay HTTP/1.1\r\nHost: x\r\nX-Account: acct-1\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}"
	answers := raw(t, f.serve(), one+one, 2)
	answers[0].wants(t, 201, "", "created")
	answers[1].wants(t, 201, "", "replayed")
}

// U01, U05, U06: another reading of the request matches an operation.
func TestU06AmbiguousRequests(t *testing.T) {
	for _, c := range []struct{ method, target string }{
		{"post", "/pay"},
		{"Post", "/pay"},
		{"POST", "/pay/"},
		{"POST", "//pay"},
		{"POST", "/./pay"},
		{"POST", "/a/../pay"},
		{"POST", "/pay/x/.."},
		{"POST", "/a/%2e%2e/pay"},
		{"POST", "/a%2f..%2fpay"},
		{"POST", "/%2fpay"},
		{"POST", "/pay;x=1"},
		{"POST", "/pay%2F"},
		{"POST", "/pay/%2e%2e/pay"},
		{"POST", "/pay/."},
		{"POST", `/x\..\pay`},
		{"POST", "/pay/1/"},
		{"POST", "/pay//1"},
		{"POST", "/pay/1%2F..%2F2"},
		{"POST", "/x/../pay/1"},
		{"pOsT", "/a/../pay"},
	} {
		f := newFixture(t, setup{})
		a := f.send(c.method, c.target, "k", "{}")
		if a.status != 400 || !strings.Contains(a.body, "request-ambiguous") {
			t.Errorf("%s %s: %d %s", c.method, c.target, a.status, a.body)
		}
		if f.pay.count() != 0 {
			t.Errorf("%s %s: the handler ran", c.method, c.target)
		}
	}
	f := newFixture(t, setup{})
	for i, target := range []string{"/pay/a%2Fb", "/pay/a%20b", "/pay/a;b", "/pay/a%25b", "/pay/caf%C3%A9", "/pay/..a", "/pay/a.b"} {
		if a := f.post(target, fmt.Sprint("k", i), "{}"); a.header.Get("Idempotency-Status") != "created" {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
	}
	for _, target := range []string{"/payments", "/x/pay", "/a/../b", "/pay/1/2", "/PAY"} {
		if a := f.post(target, "", "{}"); a.status != 201 || a.header.Get("Idempotency-Status") != "" {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
	}
	f.send("get", "/pay", "", "").wants(t, 201, "", "")
}

func TestAmbiguousWithSubtreesAndHosts(t *testing.T) {
	f := newFixture(t, setup{policy: func(p *policy.Policy) {
		p.Operations[0].Match = []string{"POST api.example.com/pay", "POST /tree/", "POST /exact/{$}", "POST /files/{path...}"}
	}})
	send := func(host, target string) *answer {
		r := request("POST", target, "k"+host+target, "{}")
		r.Host = host
		return do(f.handler, r)
	}
	for _, host := range []string{"api.example.com", "API.example.COM", "api.example.com:8080", "api.example.com.", "Api.example.com.:80"} {
		if a := send(host, "/pay"); a.header.Get("Idempotency-Status") != "created" {
			t.Errorf("%s: %d %s", host, a.status, a.body)
		}
	}
	if a := send("other", "/pay"); a.header.Get("Idempotency-Status") != "unguarded" {
		t.Errorf("another host is guarded: %s", a.body)
	}
	for _, target := range []string{"/tree", "/exact", "/files/a/../b", "/files/a%2F..%2Fb", "/tree/%2e%2e/x"} {
		if a := send("x", target); !strings.Contains(a.body, "request-ambiguous") {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
	}
	for _, target := range []string{"/tree/", "/tree/a/b", "/exact/", "/files/a/b", "/files/"} {
		if a := send("x", target); a.header.Get("Idempotency-Status") != "created" {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
	}
}

func TestU02U03OtherMethodsPass(t *testing.T) {
	f := newFixture(t, setup{})
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE"} {
		if a := f.send(method, "/pay", "k", "body"); a.status != 201 || a.header.Get("Idempotency-Status") != "" {
			t.Errorf("%s: %d", method, a.status)
		}
	}
	if rec := f.record("pay", "k"); rec.Attempt != 0 {
		t.Error("a record was made")
	}
}

func TestU04AbsoluteForm(t *testing.T) {
	f := newFixture(t, setup{})
	a := raw(t, f.serve(), "POST http://169.254.169.254/pay HTTP/1.1\r\nHost: x\r\nX-Account: acct-1\r\nIdempotency-Key: k\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", 1)[0]
	f.refused(t, a, 421, "request-invalid")
}

func TestU07U08Query(t *testing.T) {
	f := newFixture(t, setup{})
	for _, q := range []string{"a=1;b=2", "a=%zz", "a=%", "%2"} {
		r := request("POST", "/pay", "k", "{}")
		r.URL.RawQuery = q
		f.refused(t, do(f.handler, r), 400, "request-invalid")
	}
}

func TestU09U11LongTarget(t *testing.T) {
	f := newFixture(t, setup{})
	f.refused(t, f.post("/pay?"+strings.Repeat("a&", 10001), "k", "{}"), 414, "request-invalid")
	f.refused(t, f.post("/pay/"+strings.Repeat("a", 8192), "k", "{}"), 414, "request-invalid")
}

func TestU10C60Query(t *testing.T) {
	f := newFixture(t, setup{})
	f.post("/pay?to=alice", "k", "{}").wants(t, 201, "", "created")
	f.post("/pay?to=mallory", "k", "{}").wants(t, 422, "key-reused", "mismatch")
	for _, pair := range [][2]string{{"?a=1&b=2", "?b=2&a=1"}, {"?p=%2F", "?p=/"}, {"?n=1+2", "?n=1%202"}} {
		f.post("/pay"+pair[0], pair[0], "{}").wants(t, 201, "", "created")
		f.post("/pay"+pair[1], pair[0], "{}").wants(t, 201, "", "replayed")
	}
	for _, pair := range [][2]string{{"?a=1&a=2", "?a=2&a=1"}, {"?a=1", "?a=1&a=1"}} {
		f.post("/pay"+pair[0], pair[0]+"x", "{}").wants(t, 201, "", "created")
		f.post("/pay"+pair[1], pair[0]+"x", "{}").wants(t, 422, "key-reused", "mismatch")
	}
}

func TestU12Fragment(t *testing.T) {
	f := newFixture(t, setup{})
	a := raw(t, f.serve(), "POST /pay?x#frag HTTP/1.1\r\nHost: x\r\nX-Account: acct-1\r\nIdempotency-Key: k\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", 1)[0]
	f.refused(t, a, 400, "request-invalid")
}

func TestB01BodyTooLarge(t *testing.T) {
	f := newFixture(t, setup{policy: func(p *policy.Policy) { p.Operations[0].MaxRequest = 64 }})
	for _, chunked := range []bool{false, true} {
		r := request("POST", "/pay", "k", strings.Repeat("a", 65))
		if chunked {
			r.ContentLength = -1
		}
		a := do(f.handler, r)
		f.refused(t, a, 413, "body-too-large")
		if a.header.Get("Idempotency-Record") == "" {
			t.Error("no Idempotency-Record")
		}
		if rec := f.record("pay", "k"); rec.Attempt != 0 {
			t.Error("a claim was made")
		}
	}
	f.post("/pay", "k", strings.Repeat("a", 64)).wants(t, 201, "", "created")
	if got := f.kinds(); got != "too_large too_large created" {
		t.Errorf("counted as %q", got)
	}
}

func TestB02H07BrokenBodies(t *testing.T) {
	f := newFixture(t, setup{})
	srv := f.serve()
	const head = "POST /pay HTTP/1.1\r\nHost: x\r\nX-Account: acct-1\r\nIdempotency-Key: k\r\nConnection: close\r\n"
	for name, rest := range map[string]string{
		"bad chunk size":      "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
		"bare LF in chunk":    "Transfer-Encoding: chunked\r\n\r\n2;a=b\n{}\r\n0\r\n\r\n",
		"missing chunk end":   "Transfer-Encoding: chunked\r\n\r\n2\r\n{}x\r\n0\r\n\r\n",
		"overlong chunk size": "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("f", 20) + "\r\n{}\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) { f.refused(t, raw(t, srv, head+rest, 1)[0], 400, "request-invalid") })
	}
	// A caller that stops half-way can still read the answer.
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, head+"Content-Length: 10\r\n\r\n{}")
	_ = conn.(*net.TCPConn).CloseWrite()
	b, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(b), "HTTP/1.1 400") || !strings.Contains(string(b), "request-invalid") {
		t.Errorf("answer %q", b)
	}
	if rec := f.record("pay", "k"); rec.Attempt != 0 || f.pay.count() != 0 {
		t.Error("a claim was made")
	}
}

func TestB03SlowBody(t *testing.T) {
	f := newFixture(t, setup{})
	srv := httptest.NewUnstartedServer(f.handler)
	srv.Config.ReadTimeout = 50 * time.Millisecond
	srv.Start()
	t.Cleanup(srv.Close)
	a := raw(t, srv, "POST /pay HTTP/1.1\r\nHost: x\r\nX-Account: acct-1\r\nIdempotency-Key: k\r\nContent-Length: 10\r\n\r\n{", 1)[0]
	f.refused(t, a, 408, "request-invalid")
}

func gzipped(t *testing.T, level int, text string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// B04 and C23.
func TestC23CompressedBodies(t *testing.T) {
	f := newFixture(t, setup{})
	text := `{"a":"` + strings.Repeat("x", 2000) + `"}`
	f.post("/pay", "k", gzipped(t, 1, text), "Content-Encoding", "gzip").wants(t, 201, "", "created")
	f.post("/pay", "k", gzipped(t, 9, text), "Content-Encoding", "gzip").wants(t, 201, "", "replayed")
	f.post("/pay", "bomb", gzipped(t, 9, strings.Repeat("0", 2<<20)), "Content-Encoding", "gzip").wants(t, 413, "body-too-large", "")
	if rec := f.record("pay", "bomb"); rec.Attempt != 0 {
		t.Error("a claim was made")
	}
}

func TestB05B06B08Bodies(t *testing.T) {
	f := newFixture(t, setup{})
	f.post("/pay", "b5", `{"a":1,"b":[1,2]}`).wants(t, 201, "", "created")
	f.post("/pay", "b5", ` { "b": [1, 2], "a": 1e0 }`).wants(t, 201, "", "replayed")
	for i, bad := range []string{`{"a":1,"a":2}`, `NaN`, `1e400`, strings.Repeat("[", 10000), `{`} {
		f.post("/pay", fmt.Sprint("b6-", i), bad).wants(t, 201, "", "created")
	}
	f.post("/pay", "b8", "").wants(t, 201, "", "created")
	r := request("POST", "/pay", "b8", "")
	r.Body, r.ContentLength = http.NoBody, 0
	do(f.handler, r).wants(t, 201, "", "replayed")
	r = request("POST", "/pay", "b8", "")
	r.Body, r.ContentLength = nil, 0
	do(f.handler, r).wants(t, 201, "", "replayed")
	r = request("POST", "/pay", "b8", "")
	r.ContentLength = -1
	do(f.handler, r).wants(t, 201, "", "replayed")
}

func TestBodyReadBeforeTheGuard(t *testing.T) {
	f := newFixture(t, setup{})
	r := request("POST", "/pay", "k", "a=1", "Content-Type", "", "Content-Type", "application/x-www-form-urlencoded")
	if err := r.ParseForm(); err != nil {
		t.Fatal(err)
	}
	f.refused(t, do(f.handler, r), 500, "request-invalid")
	r = request("POST", "/pay", "k", "a=1")
	_, _ = io.Copy(io.Discard, r.Body)
	f.refused(t, do(f.handler, r), 400, "request-invalid")
}

func TestTheHandlerGetsTheBody(t *testing.T) {
	text := strings.Repeat("0123456789", 10_000)
	for _, length := range []int64{int64(len(text)), -1} {
		var got string
		f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			got = string(b)
			if err != nil || r.ContentLength != int64(len(text)) || r.GetBody != nil || r.Body == http.NoBody {
				t.Errorf("%v, Content-Length %d", err, r.ContentLength)
			}
		})})
		r := request("POST", "/pay", "k", text)
		r.ContentLength = length
		do(f.handler, r).wants(t, 200, "", "created")
		if got != text {
			t.Errorf("%d bytes of %d", len(got), len(text))
		}
	}
}

// C31 and B14: a caller that goes away does not cancel the effect.
func TestC31ClientDisconnect(t *testing.T) {
	ctxErr := make(chan error, 1)
	release, entered := make(chan struct{}), make(chan struct{})
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		ctxErr <- r.Context().Err()
		w.WriteHeader(201)
	})})
	srv := f.serve()
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "POST", srv.URL+"/pay", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "c31")
	r.Header.Set("X-Account", "acct-1")
	r.Header.Set("Content-Type", "application/json")
	failed := make(chan error)
	go func() {
		res, err := srv.Client().Do(r)
		if err == nil {
			res.Body.Close()
		}
		failed <- err
	}()
	<-entered
	cancel()
	if err := <-failed; err == nil {
		t.Fatal("the caller got an answer")
	}
	close(release)
	if err := <-ctxErr; err != nil {
		t.Errorf("the handler's context: %v", err)
	}
	srv.Close() // waits for the handler
	f.post("/pay", "c31", "{}").wants(t, 201, "", "replayed")
}
