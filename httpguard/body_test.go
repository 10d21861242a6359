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
