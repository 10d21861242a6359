package httpguard_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

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
