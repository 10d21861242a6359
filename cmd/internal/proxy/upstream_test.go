package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil/cmd/internal/proxy"
)

// rawUpstream reads whole requests from raw connections, counts them, and lets
// answer say what goes back; the connection is dropped when it returns false.
type rawUpstream struct {
	net.Listener
	wg sync.WaitGroup

	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
	conns    int
}

func newRawUpstream(t *testing.T, answer func(n int, w io.Writer) bool) *rawUpstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &rawUpstream{Listener: l}
	u.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			u.mu.Lock()
			u.conns++
			u.mu.Unlock()
			u.wg.Go(func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					body, _ := io.ReadAll(req.Body)
					u.mu.Lock()
					u.requests, u.bodies = append(u.requests, req), append(u.bodies, string(body))
					n := len(u.requests)
					u.mu.Unlock()
					if !answer(n, c) {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); u.wg.Wait() })
	return u
}

func (u *rawUpstream) url() *url.URL { return &url.URL{Scheme: "http", Host: u.Addr().String()} }

func (u *rawUpstream) executions() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.requests)
}

// attempt is a guard's attempt that remembers what it was told.
type attempt struct {
	mu                  sync.Mutex
	unreachable, broken error
}

func (a *attempt) Identity() string { return "0123456789abcdef" }
func (a *attempt) Unreachable(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unreachable = err
}

func (a *attempt) Broken(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken = err
}

type attemptKey struct{}

// guarded puts a fresh attempt into every request, as the guard does, and
// keeps the last.
type guarded struct {
	next http.Handler
	last *attempt
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.last = &attempt{}
	func() {
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				panic(v)
			}
		}()
		g.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), attemptKey{}, g.last)))
	}()
	g.last.mu.Lock()
	defer g.last.mu.Unlock()
	if g.last.broken != nil || g.last.unreachable != nil {
		w.WriteHeader(http.StatusBadGateway)
	}
}

func newProxy(t *testing.T, upstream *url.URL) *proxy.Proxy {
	t.Helper()
	p := proxy.New(proxy.Options{Upstream: upstream, Attempt: func(ctx context.Context) proxy.Attempt {
		if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
			return a
		}
		return nil
	}})
	t.Cleanup(p.Close)
	return p
}
