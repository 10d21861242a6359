package proxy_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const created = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok"

// TestC50NothingIsSentTwice: the upstream answers the first request and drops
// the second, on the reused connection, after reading it.
func TestC50NothingIsSentTwice(t *testing.T) {
	for _, tc := range []struct {
		name, method, header, body string
	}{
		{"a key, empty body", "POST", "Idempotency-Key", ""},
		{"b no key, empty body", "POST", "", ""},
		{"c key, JSON body", "POST", "Idempotency-Key", `{"amount":1}`},
		{"X- key, empty body", "POST", "X-Idempotency-Key", ""},
		{"PUT, key, empty body", "PUT", "Idempotency-Key", ""},
		{"DELETE, key, no body", "DELETE", "Idempotency-Key", ""},
		{"PATCH, key, body", "PATCH", "Idempotency-Key", "x"},
	} {
		for _, withGuard := range []bool{true, false} {
			t.Run(fmt.Sprintf("C49/%s/guarded=%v", tc.name, withGuard), func(t *testing.T) {
				up := newRawUpstream(t, func(n int, w io.Writer) bool {
					if n != 1 {
						return false
					}
					_, err := io.WriteString(w, created)
					return err == nil
				})
				g := &guarded{next: newProxy(t, up.url())}
				var h http.Handler = g
				if !withGuard {
					h = g.next
				}
				front := httptest.NewServer(h)
				defer front.Close()
				send := func() int {
					// The guard hands on a body that can be read again: so must this test.
					req, err := http.NewRequest(tc.method, front.URL+"/pay", bytes.NewReader([]byte(tc.body)))
					if err != nil {
						t.Fatal(err)
					}
					if tc.header != "" {
						req.Header.Set(tc.header, "k-1")
					}
					// A connection of its own each, so that the client itself cannot resend.
					req.Close = true
					resp, err := http.DefaultTransport.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					_, _ = io.Copy(io.Discard, resp.Body)
					return resp.StatusCode
				}
				if got := send(); got != http.StatusCreated {
					t.Fatalf("first: status %d", got)
				}
				if got := send(); got != http.StatusBadGateway {
					t.Errorf("second: status %d, want 502", got)
				}
				if got := up.executions(); got != 2 {
					t.Errorf("the upstream ran %d times, want 2 (one each)", got)
				}
				if up.conns != 1 {
					t.Errorf("%d connections; the test needs one that is reused", up.conns)
				}
				if withGuard && (g.last.broken == nil || g.last.unreachable != nil) {
					t.Errorf("told broken=%v unreachable=%v, want broken", g.last.broken, g.last.unreachable)
				}
				for i, r := range up.requests {
					if tc.header != "" && r.Header.Get(tc.header) != "k-1" {
						t.Errorf("request %d reached the upstream without its key", i+1)
					}
					if up.bodies[i] != tc.body {
						t.Errorf("request %d had body %q", i+1, up.bodies[i])
					}
					if tc.body == "" && tc.method == "POST" && r.ContentLength != 0 {
						t.Errorf("request %d was framed otherwise: length %d, %v", i+1, r.ContentLength, r.TransferEncoding)
					}
				}
			})
		}
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody listens there now
	g := &guarded{next: newProxy(t, &url.URL{Scheme: "http", Host: l.Addr().String()})}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, httptest.NewRequest("POST", "/pay", strings.NewReader("x")))
	if g.last.unreachable == nil || g.last.broken != nil {
		t.Errorf("told broken=%v unreachable=%v, want unreachable", g.last.broken, g.last.unreachable)
	}
	w = httptest.NewRecorder()
	g.next.ServeHTTP(w, httptest.NewRequest("POST", "/pay", strings.NewReader("x")))
	if w.Code != 502 || !strings.Contains(w.Body.String(), "problems/upstream-unreachable") {
		t.Errorf("unguarded: %d %s", w.Code, w.Body)
	}
}

// TestBroken: something was sent, and no whole answer came.
func TestBroken(t *testing.T) {
	for name, part := range map[string]string{
		"no answer":        "",
		"half a header":    "HTTP/1.1 200 OK\r\nContent-",
		"nonsense":         "HELLO\r\n\r\n",
		"half a body":      "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"half a chunk":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf",
		"no last chunk":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
		"another protocol": "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			up := newRawUpstream(t, func(_ int, w io.Writer) bool {
				_, _ = io.WriteString(w, part)
				return false
			})
			g := &guarded{next: newProxy(t, up.url())}
			front := httptest.NewServer(g)
			defer front.Close()
			resp, err := http.Post(front.URL+"/pay", "text/plain", strings.NewReader("x"))
			if err == nil {
				resp.Body.Close()
			}
			http.DefaultClient.CloseIdleConnections()
			if g.last.broken == nil || g.last.unreachable != nil {
				t.Errorf("told broken=%v unreachable=%v, want broken", g.last.broken, g.last.unreachable)
			}
			if up.executions() != 1 {
				t.Errorf("%d executions", up.executions())
			}
		})
	}
}

// TestDeadlineAfterSending: the upstream has it, and may still act on it.
func TestDeadlineAfterSending(t *testing.T) {
	release := make(chan struct{})
	up := newRawUpstream(t, func(int, io.Writer) bool { <-release; return false })
	defer close(release)
	g := &guarded{next: newProxy(t, up.url())}
	r := httptest.NewRequest("POST", "/pay", strings.NewReader("x"))
	ctx, cancel := contextWithTimeout(r, 100*time.Millisecond)
	defer cancel()
	g.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	if !errors.Is(g.last.broken, ctx.Err()) || g.last.broken == nil {
		t.Errorf("told %v, want the deadline", g.last.broken)
	}
}

func TestWhatTheUpstreamSees(t *testing.T) {
	up := newRawUpstream(t, func(_ int, w io.Writer) bool {
		_, err := io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nCounterfoil-Outcome: none\r\nCounterfoil-Resource: /x\r\nX-Odd:  a, b \r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n")
		return err == nil
	})
	g := &guarded{next: newProxy(t, up.url())}
	front := httptest.NewServer(g)
	defer front.Close()
	raw := func(target string, fields ...string) *http.Response {
		t.Helper()
		c, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1\r\n%s\r\n\r\nx", target, strings.Join(fields, "\r\n"))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	resp := raw("/a%2Fb/|\"<?x=1;y=%zz&&a=2?", `Idempotency-Key: "k-1"`, "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Host: evil",
		"x-forwarded-prefix: /p", "Forwarded: for=1.2.3.4", "Counterfoil-Identity: forged", "counterfoil-outcome: none",
		"X-HTTP-Method-Override: DELETE", "Authorization: Bearer t", "X-Custom: v", "Accept-Encoding: br")
	got := up.requests[0]
	if want := "/a%2Fb/|\"<?x=1;y=%zz&&a=2?"; got.RequestURI != want {
		t.Errorf("target %q, want %q byte by byte", got.RequestURI, want)
	}
	for name, want := range map[string]string{
		"Idempotency-Key": `"k-1"`, "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "shop.example", "X-Forwarded-Proto": "http",
		"X-Forwarded-Prefix": "", "Forwarded": "", "Counterfoil-Identity": "0123456789abcdef", "Counterfoil-Outcome": "",
		"X-Http-Method-Override": "", "Authorization": "Bearer t", "X-Custom": "v", "Accept-Encoding": "br", "User-Agent": "",
	} {
		if have := strings.Join(got.Header.Values(name), "|"); have != want {
			t.Errorf("%s: %q, want %q", name, have, want)
		}
	}
	if got.Host != "shop.example" {
		t.Errorf("Host %q was changed", got.Host)
	}
	// The guard takes these two off itself.
	if resp.Header.Get("Counterfoil-Outcome") != "none" || resp.Header.Get("Counterfoil-Resource") != "/x" {
		t.Errorf("the guard did not see the upstream's word: %v", resp.Header)
	}
	if c := resp.Header.Values("Set-Cookie"); len(c) != 2 {
		t.Errorf("cookies %v", c)
	}

	raw("//evil.example/x")
	if uri := up.requests[1].RequestURI; uri != "//evil.example/x" {
		t.Errorf("U05: target %q", uri)
	}

	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/free", nil)
	r.Header.Set("Counterfoil-Identity", "forged")
	g.next.ServeHTTP(w, r)
	if w.Header().Get("Counterfoil-Outcome") != "" || w.Header().Get("Counterfoil-Resource") != "" || up.requests[2].Header.Get("Counterfoil-Identity") != "" {
		t.Error("unguarded: our fields went through")
	}
}

// TestC06Streams: an event stream comes through as it is written, guarded or
// not, and a websocket on an unguarded route works.
func TestC06Streams(t *testing.T) {
	more := make(chan struct{})
	up := newRawUpstream(t, func(_ int, w io.Writer) bool {
		fmt.Fprint(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
		<-more
		fmt.Fprint(w, "9\r\ndata: 2\n\n\r\n0\r\n\r\n")
		return true
	})
	g := &guarded{next: newProxy(t, up.url())}
	for name, h := range map[string]http.Handler{"guarded": g, "unguarded": g.next} {
		t.Run(name, func(t *testing.T) {
			front := httptest.NewServer(h)
			defer front.Close()
			resp, err := front.Client().Post(front.URL, "text/plain", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			if line, err := lines.ReadString('\n'); err != nil || line != "data: 1\n" {
				t.Fatalf("first event: %q, %v", line, err) // hangs until the test times out if it is held back
			}
			more <- struct{}{}
			if rest, err := io.ReadAll(lines); err != nil || !strings.Contains(string(rest), "data: 2") {
				t.Errorf("second event: %q, %v", rest, err)
			}
		})
	}
}

func TestUpgradeOnUnguardedRoute(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := rw.ReadString('\n')
		fmt.Fprint(c, "echo "+line)
	}))
	defer up.Close()
	u, _ := url.Parse(up.URL)
	front := httptest.NewServer(newProxy(t, u))
	defer front.Close()
	c, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v, %v", resp, err)
	}
	fmt.Fprint(c, "hello\n")
	if line, err := r.ReadString('\n'); err != nil || line != "echo hello\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	up := newRawUpstream(t, func(_ int, w io.Writer) bool {
		_, err := io.WriteString(w, "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n")
		return err == nil
	})
	w := httptest.NewRecorder()
	newProxy(t, up.url()).ServeHTTP(w, httptest.NewRequest("POST", "/x", strings.NewReader("x")))
	if w.Code != 307 || w.Header().Get("Location") != "http://169.254.169.254/" || up.executions() != 1 {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// TestCallerWhoBreaksOff: a body that ends early is the caller's fault, and no
// upstream's.
func TestCallerWhoBreaksOff(t *testing.T) {
	up := newRawUpstream(t, func(_ int, w io.Writer) bool { _, err := io.WriteString(w, created); return err == nil })
	front := httptest.NewServer(newProxy(t, up.url()))
	defer front.Close()
	c, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "POST /free HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("status %d, want 400", resp.StatusCode)
	}
}
