package httpguard_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

const rawPost = "POST /pay HTTP/1.1\r\nHost: x\r\nX-Account: acct-1\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}"

// C02 and B10: the limit costs the body, not the promise.
func TestC02LargeAnswer(t *testing.T) {
	body := strings.Repeat("x", 65537)
	n := 0
	for _, declared := range []bool{false, true} {
		f := newFixture(t, setup{
			policy: func(p *policy.Policy) { p.Operations[0].MaxResponse = 64 << 10 },
			handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n++
				if declared {
					w.Header().Set("Content-Length", "65537")
				}
				w.WriteHeader(201)
				for part := range strings.SplitSeq(strings.Repeat(body[:4096]+"|", 16)+"x", "|") {
					_, _ = io.WriteString(w, part)
				}
			}),
		})
		n = 0
		res := f.exchange(t, "c02")
		if got := text(res); got != body || res.StatusCode != 201 || res.Header.Get("Idempotency-Status") != "created" {
			t.Errorf("first: %d, %d bytes, %v", res.StatusCode, len(got), res.Header)
		}
		if res.Header.Get("Idempotency-Replay-Until") != "" {
			t.Error("a replay is promised")
		}
		f.post("/pay", "c02", "{}").wants(t, 201, "", "already-processed")
		if n != 1 {
			t.Errorf("the handler ran %d times", n)
		}
	}
}

// C06: an event arrives when it is flushed, not when the handler returns.
func TestC06EventStream(t *testing.T) {
	release := make(chan struct{})
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if _, ok := w.(http.Flusher); !ok {
			t.Error("no http.Flusher")
		}
		<-release
		_, _ = io.WriteString(w, "data: 2\n\n")
	})})
	srv := f.serve()
	r, _ := http.NewRequest("POST", srv.URL+"/pay", strings.NewReader("{}"))
	r.Header = http.Header{"Idempotency-Key": {"k"}, "X-Account": {"acct-1"}, "Content-Type": {"application/json"}}
	res, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	br := bufio.NewReader(res.Body)
	if line, err := br.ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("%q, %v", line, err)
	}
	f.post("/pay", "k", "{}").wants(t, 409, "in-progress", "in-progress")
	close(release)
	if rest, err := io.ReadAll(br); err != nil || !strings.Contains(string(rest), "data: 2") {
		t.Fatalf("%q, %v", rest, err)
	}
	f.post("/pay", "k", "{}").wants(t, 200, "", "already-processed")
}

func TestC06Hijack(t *testing.T) {
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("Write after Hijack: %v", err)
		}
		_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		_ = rw.Flush()
	})})
	if a := raw(t, f.serve(), rawPost, 1)[0]; a.body != "hi" {
		t.Errorf("%+v", a)
	}
	<-f.answered // the server does not wait for a hijacked handler
	f.post("/pay", "k", "{}", "Content-Type", "").wants(t, 200, "", "already-processed")
	if rec := f.record("pay", "k"); rec.Outcome.Class != counterfoil.Succeeded {
		t.Errorf("%+v", rec.Outcome)
	}
}

// A keyed request that is not guarded may be hijacked as ever.
func TestC06WebsocketWithKey(t *testing.T) {
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_ = conn.Close()
	})})
	a := raw(t, f.serve(), "GET /pay HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 1)[0]
	if a.status != 101 {
		t.Errorf("status %d", a.status)
	}
}

func TestResponseController(t *testing.T) {
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		for name, err := range map[string]error{
			"SetReadDeadline":  c.SetReadDeadline(time.Now().Add(time.Hour)),
			"SetWriteDeadline": c.SetWriteDeadline(time.Now().Add(time.Hour)),
			"EnableFullDuplex": c.EnableFullDuplex(),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
			t.Error("the writer beneath can be reached past the record")
		}
	})})
	f.exchange(t, "k")
}

func TestWritesAfterReturn(t *testing.T) {
	var kept http.ResponseWriter
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept = w
		_, _ = io.WriteString(w, "x")
	})})
	f.post("/pay", "k", "{}")
	if _, err := kept.Write([]byte("late")); err == nil {
		t.Error("a write after the return is accepted")
	}
	kept.WriteHeader(500)
	if err := http.NewResponseController(kept).Flush(); err == nil {
		t.Error("a flush after the return is accepted")
	}
	if a := f.post("/pay", "k", "{}"); a.body != "x" {
		t.Errorf("replayed %q", a.body)
	}
}

func TestInvalidStatusPanicsAsEver(t *testing.T) {
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(7) })})
	defer func() {
		if v := recover(); v == nil {
			t.Error("no panic")
		}
		if rec := f.record("pay", "k"); rec.State != counterfoil.Unknown {
			t.Errorf("record is %v", rec.State)
		}
	}()
	f.post("/pay", "k", "{}")
}

func TestBodyNotAllowedAndTooLong(t *testing.T) {
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2")
		w.WriteHeader(200)
		if n, err := io.WriteString(w, "abc"); n != 2 || !errors.Is(err, http.ErrContentLength) {
			t.Errorf("%d, %v", n, err)
		}
	})})
	if a := f.post("/pay", "k", "{}"); a.body != "ab" {
		t.Errorf("%q", a.body)
	}
	f = newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(204)
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("%v", err)
		}
	})})
	f.post("/pay", "k", "{}").wants(t, 204, "", "created")
}

// P3: an answer that passes and whose record cannot be made durable is cut, not
// ended cleanly.
func TestPassedAnswerIsCut(t *testing.T) {
	big := strings.Repeat("x", 100_000)
	for name, h := range map[string]http.HandlerFunc{
		"flushed":  func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "a"); w.(http.Flusher).Flush() },
		"large":    func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, big) },
		"declared": with(header("Content-Length", "100000"), 200, big),
		"declared and flushed": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "2")
			_, _ = io.WriteString(w, "ab")
			w.(http.Flusher).Flush()
		},
		"hijacked": func(w http.ResponseWriter, r *http.Request) {
			conn, _, _ := http.NewResponseController(w).Hijack()
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
			go func() { _, _ = io.Copy(io.Discard, conn) }() // ends when it is closed
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, setup{handler: h, policy: func(p *policy.Policy) { p.Operations[0].MaxResponse = 1000 }})
			f.store.set(func(s *faults) { s.before = func(*counterfoil.Write) error { return errDown } })
			srv := f.serve()
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, rawPost)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if b, err := io.ReadAll(res.Body); err == nil {
				t.Errorf("%d bytes, ended cleanly", len(b))
			}
			<-f.answered // the server does not wait for a hijacked handler
		})
	}
}

// The same over HTTP/2, where a cut is a reset of the stream.
func TestHTTP2(t *testing.T) {
	big := strings.Repeat("x", 100_000)
	f := newFixture(t, setup{
		policy: func(p *policy.Policy) { p.Operations[0].MaxResponse = 1000 },
		handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			if r.URL.Path == "/pay/big" {
				w.Header().Set("Content-Length", "100000")
				_, _ = io.WriteString(w, big)
				return
			}
			_, _ = io.WriteString(w, "small")
			w.Header().Set("X-Sum", "9")
		}),
	})
	srv := httptest.NewUnstartedServer(f.handler)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	send := func(path string) (*http.Response, string, error) {
		r, _ := http.NewRequest("POST", srv.URL+path, strings.NewReader("{}"))
		r.Header = http.Header{"Idempotency-Key": {"k" + path}, "X-Account": {"acct-1"}}
		res, err := srv.Client().Do(r)
		if err != nil {
			return nil, "", err
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return res, string(b), err
	}
	for _, mark := range []string{"created", "replayed"} {
		res, body, err := send("/pay/small")
		if err != nil || res.ProtoMajor != 2 || body != "small" || res.Header.Get("Idempotency-Status") != mark || res.Trailer.Get("X-Sum") != "9" {
			t.Fatalf("%v: %+v %q", err, res, body)
		}
	}
	if _, body, err := send("/pay/big"); err != nil || body != big {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	f.store.set(func(s *faults) { s.before = func(*counterfoil.Write) error { return errDown } })
	if _, body, err := send("/pay/big?again"); err == nil {
		t.Errorf("%d bytes, ended cleanly", len(body))
	}
}
