package httpguard_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/policy"
)

// saying is a handler that states something and answers.
func saying(say func(*httpguard.Attempt), status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := httpguard.FromContext(r.Context())
		if !ok {
			http.Error(w, "not guarded", http.StatusTeapot)
			return
		}
		if say != nil {
			say(a)
		}
		if status != 0 {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "answer")
		}
	})
}

func TestAttemptSays(t *testing.T) {
	errReset := errors.New("connection reset")
	for _, c := range []struct {
		name         string
		say          func(*httpguard.Attempt)
		status, want int
		problem      string
		mark         string
		state        counterfoil.State
		evidence     counterfoil.EvidenceKind
	}{
		{"no effect", func(a *httpguard.Attempt) { a.NoEffect("limiter") }, 503, 503, "", "no-effect", counterfoil.Failed, counterfoil.EvidenceFailed},
		{"unknown", func(a *httpguard.Attempt) { a.Unknown("half done") }, 201, 201, "", "unknown", counterfoil.Unknown, counterfoil.EvidenceAmbiguous},
		{"unreachable", func(a *httpguard.Attempt) { a.Unreachable(errReset) }, 0, 502, "upstream-unreachable", "no-effect", counterfoil.Failed, counterfoil.EvidenceFailed},
		{"unreachable with an answer", func(a *httpguard.Attempt) { a.Unreachable(errReset) }, 500, 502, "upstream-unreachable", "no-effect", counterfoil.Failed, counterfoil.EvidenceFailed},
		{"broken", func(a *httpguard.Attempt) { a.Broken(errReset) }, 0, 502, "outcome-unknown", "unknown", counterfoil.Unknown, counterfoil.EvidenceBroken},
		{"broken after all", func(a *httpguard.Attempt) { a.Broken(errReset); a.NoEffect("no"); a.Unreachable(errReset) }, 201, 502, "outcome-unknown", "unknown", counterfoil.Unknown, counterfoil.EvidenceBroken},
		{"broken, then aborted", func(a *httpguard.Attempt) { a.Broken(errReset); panic(http.ErrAbortHandler) }, 0, 502, "outcome-unknown", "unknown", counterfoil.Unknown, counterfoil.EvidenceBroken},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, setup{handler: saying(c.say, c.status)})
			a := f.post("/pay", "k", "{}")
			a.wants(t, c.want, c.problem, c.mark)
			rec := f.record("pay", "k")
			if rec.State != c.state || rec.Evidence[0].Kind != c.evidence {
				t.Errorf("record is %v, %+v", rec.State, rec.Evidence)
			}
			switch c.problem {
			case "upstream-unreachable":
				if a.problem(t)["safe_new_key"] != true || a.header.Get("Retry-After") == "" {
					t.Errorf("%v %s", a.header, a.body)
				}
				// On a later attempt it is not proved any more.
				if again := f.post("/pay", "k", "{}"); again.problem(t)["safe_new_key"] != false {
					t.Errorf("%s", again.body)
				}
			case "outcome-unknown":
				if strings.Contains(a.body, "reset") || a.header.Get("Link") == "" {
					t.Errorf("%v %s", a.header, a.body)
				}
			}
		})
	}
}

func TestAttemptKnows(t *testing.T) {
	f := newFixture(t, setup{policy: func(p *policy.Policy) { p.Operations[0].Dispatch = policy.DispatchExplicit }})
	n := uint32(0)
	h := f.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		a, ok := httpguard.FromContext(r.Context())
		if !ok || a.Number() != n || a.Operation().Name != "pay" || a.Identity() != a.ID().String() || r.Header.Get("Counterfoil-Identity") != a.Identity() {
			t.Errorf("%v, attempt %d", ok, a.Number())
		}
		if r.Context().Value(contextKey{}) != "outer" {
			t.Error("a value of the caller's context is lost")
		}
		if f.record("pay", "k").Dispatched {
			t.Error("dispatched before it was said")
		}
		if err := a.Dispatch(r.Context()); err != nil || !f.record("pay", "k").Dispatched {
			t.Errorf("dispatch: %v", err)
		}
		if n == 1 {
			a.NoEffect("cancelled")
		}
	}))
	for _, mark := range []string{"no-effect", "created"} {
		r := request("POST", "/pay", "k", "{}")
		r = r.WithContext(context.WithValue(r.Context(), contextKey{}, "outer"))
		do(h, r).wants(t, 200, "", mark)
	}
	if _, ok := httpguard.FromContext(t.Context()); ok {
		t.Error("an attempt from nowhere")
	}
}

type contextKey struct{}

// The handler's context ends when it returns, and lets others derive from it.
func TestHandlerContext(t *testing.T) {
	var outer, inner context.Context
	called := make(chan struct{})
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer = r.Context()
		var cancel context.CancelFunc
		inner, cancel = context.WithCancel(outer)
		defer cancel()
		if _, ok := inner.Deadline(); !ok {
			t.Error("no deadline")
		}
		stop := context.AfterFunc(outer, func() { t.Error("called though stopped") })
		if !stop() || stop() {
			t.Error("stop")
		}
		context.AfterFunc(outer, func() { close(called) })
	})})
	f.post("/pay", "k", "{}")
	<-called
	<-outer.Done()
	if outer.Err() != context.Canceled || inner.Err() != context.Canceled {
		t.Errorf("%v, %v", outer.Err(), inner.Err())
	}
	done := make(chan struct{})
	context.AfterFunc(outer, func() { close(done) })
	<-done
}

// A plain reverse proxy beneath the guard: an answer whose body breaks half-way
// is not passed on as an answer.
func TestReverseProxyBeneath(t *testing.T) {
	upstream := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Identity", r.Header.Get("Counterfoil-Identity"))
		w.Header().Set("Counterfoil-Resource", "/charges/1")
		w.Header().Set("Content-Length", "10")
		if r.URL.Path == "/pay/broken" {
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "0123456789")
	}))
	target, _ := url.Parse(upstream.URL)
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }, ErrorLog: discard}
	f := newFixture(t, setup{handler: proxy})
	front := httptest.NewUnstartedServer(f.handler)
	front.Config.ErrorLog = discard
	front.Start()
	t.Cleanup(front.Close)
	send := func(path string) (*http.Response, error) {
		r, _ := http.NewRequest("POST", front.URL+path, strings.NewReader("{}"))
		r.Header = http.Header{"Idempotency-Key": {"k" + path}, "X-Account": {"acct-1"}, "Content-Type": {"application/json"}}
		return front.Client().Do(r)
	}
	res, err := send("/pay/whole")
	if err != nil {
		t.Fatal(err)
	}
	if res.Header.Get("X-Identity") != res.Header.Get("Idempotency-Record") || res.Header.Get("Counterfoil-Resource") != "" {
		t.Errorf("%v", res.Header)
	}
	res.Body.Close()
	if rec := f.record("pay", "k/pay/whole"); rec.Outcome.Resource != "/charges/1" {
		t.Errorf("%+v", rec.Outcome)
	}
	if res, err := send("/pay/broken"); err == nil {
		res.Body.Close()
		t.Errorf("status %d", res.StatusCode)
	}
	if rec := f.record("pay", "k/pay/broken"); rec.State != counterfoil.Unknown {
		t.Errorf("record is %v", rec.State)
	}
}

// That a redispatch came to nothing says nothing of the first sending.
func TestRedispatchThatCannotBeSent(t *testing.T) {
	n := 0
	f := newFixture(t, setup{
		policy: func(p *policy.Policy) {
			p.Operations[0].OnUnknown = policy.OnUnknown{Rule: policy.UnknownRedispatch, Within: 23 * time.Hour}
		},
		handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, _ := httpguard.FromContext(r.Context())
			switch n++; n {
			case 1:
				w.WriteHeader(500)
			case 2:
				a.Unreachable(io.EOF)
			case 3:
				w.WriteHeader(429)
			default:
				w.WriteHeader(201)
			}
		}),
	})
	f.post("/pay", "k", "{}").wants(t, 500, "", "unknown")
	a := f.post("/pay", "k", "{}")
	a.wants(t, 502, "outcome-unknown", "unknown")
	if a.problem(t)["safe_new_key"] != false {
		t.Errorf("%s", a.body)
	}
	f.post("/pay", "k", "{}").wants(t, 429, "", "unknown")
	f.post("/pay", "k", "{}").wants(t, 201, "", "created")
	f.post("/pay", "k", "{}").wants(t, 201, "", "replayed")
}
