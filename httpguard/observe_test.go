package httpguard_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/policy"
)

func observing(s setup) setup {
	options := s.options
	s.options = func(o *httpguard.Options) {
		o.Observe = true
		if options != nil {
			options(o)
		}
	}
	s.engine = func(o *counterfoil.Options) { o.Observe = true }
	return s
}

func TestObserveLetsEverythingThrough(t *testing.T) {
	var seen []string
	f := newFixture(t, observing(setup{
		policy: func(p *policy.Policy) { p.Operations[0].MaxRequest = 64 },
		handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			seen = append(seen, string(b))
			if r.Header.Get("Counterfoil-Identity") != "" {
				t.Error("the request is altered")
			}
			w.Header().Set("Counterfoil-Resource", "/x")
			w.Header().Set("Idempotency-Status", "upstream's")
			w.WriteHeader(201)
		}),
	}))
	long := strings.Repeat("x", 100)
	bodies := []string{`{"a":1}`, `{"a":1}`, `{"a":2}`, long, "{}", "{}", "{}"}
	f.post("/pay", "k", bodies[0])
	f.post("/pay", "k", bodies[1])
	f.post("/pay", "k", bodies[2])
	f.post("/pay", "k2", bodies[3])
	f.post("/pay", "", bodies[4])
	f.post("/pay", "k3", bodies[5], "X-Account", "")
	a := f.post("/pay/", "k4", bodies[6])
	if a.status != 201 || a.header.Get("Idempotency-Status") != "upstream's" || a.header.Get("Idempotency-Record") != "" {
		t.Errorf("%d %v", a.status, a.header)
	}
	for i := range bodies {
		if seen[i] != bodies[i] {
			t.Errorf("body %d: %q", i, seen[i])
		}
	}
	if got := f.kinds(); got != "created replayed mismatch too_large invalid invalid invalid" {
		t.Errorf("counted as %q", got)
	}
	rec := f.record("pay", "k")
	if !rec.Observed || rec.HasResponse || rec.State != counterfoil.Completed || rec.Outcome.Resource != "/x" {
		t.Errorf("record %+v", rec)
	}
}

func TestObserveWithoutAStore(t *testing.T) {
	f := newFixture(t, observing(setup{}))
	f.store.set(func(s *faults) { s.create = func() error { return errDown } })
	f.post("/pay", "k", "{}").wants(t, 201, "", "")
	f.store.set(func(s *faults) { s.create = nil; s.before = func(*counterfoil.Write) error { return errDown } })
	f.post("/pay", "k", "{}").wants(t, 201, "", "")
	if got := f.kinds(); got != "store_error created" || f.pay.count() != 2 {
		t.Errorf("counted as %q, %d effects", got, f.pay.count())
	}
}

func TestObserveKeepsStreaming(t *testing.T) {
	f := newFixture(t, observing(setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "a")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(w, bytes.NewReader([]byte("b"))); err != nil {
			t.Error(err)
		}
	})}))
	if res := f.exchange(t, "k"); text(res) != "ab" {
		t.Error("another answer")
	}
	if got := f.kinds(); got != "created" {
		t.Errorf("counted as %q", got)
	}
}

func TestObservePanics(t *testing.T) {
	f := newFixture(t, observing(setup{handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })}))
	defer func() {
		if v := recover(); v != "boom" {
			t.Errorf("recovered %v", v)
		}
		if rec := f.record("pay", "k"); rec.State != counterfoil.Unknown {
			t.Errorf("record is %v", rec.State)
		}
	}()
	f.post("/pay", "k", "{}")
}

// A proxy that could not reach its upstream leaves the answer to the guard.
func TestObserveUnreachable(t *testing.T) {
	f := newFixture(t, observing(setup{handler: saying(func(a *httpguard.Attempt) { a.Unreachable(io.EOF) }, 0)}))
	f.post("/pay", "k", "{}").wants(t, 502, "upstream-unreachable", "")
	if rec := f.record("pay", "k"); rec.State != counterfoil.Failed {
		t.Errorf("record is %v", rec.State)
	}
}
