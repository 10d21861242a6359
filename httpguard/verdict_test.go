package httpguard_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/policy"
)

// gate is a handler that waits until it is let go.
type gate struct {
	entered, open chan struct{}
	then          http.Handler
}

func newGate(then http.Handler) *gate {
	return &gate{make(chan struct{}, 16), make(chan struct{}), then}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.entered <- struct{}{}
	<-g.open
	g.then.ServeHTTP(w, r)
}

func TestC10FiveAnswersAreTold(t *testing.T) {
	h := newGate(answering(201))
	f := newFixture(t, setup{handler: h})
	first := make(chan *answer)
	go func() { first <- f.post("/pay", "c10", `{"a":1}`) }()
	<-h.entered
	a := f.post("/pay", "c10", `{"a":1}`)
	a.wants(t, 409, "in-progress", "in-progress")
	if a.header.Get("Retry-After") == "" || a.header.Get("Link") != `</.well-known/idempotency/pay>; rel="status"` {
		t.Errorf("header %v", a.header)
	}
	f.post("/pay", "c10", `{"a":2}`).wants(t, 422, "key-reused", "mismatch")
	close(h.open)
	(<-first).wants(t, 201, "", "created")
	f.post("/pay", "c10", `{"a":1}`).wants(t, 201, "", "replayed")
	f.post("/pay", "c10", `{"a":2}`).wants(t, 422, "key-reused", "mismatch")
	f.post("/pay", "", `{"a":1}`).wants(t, 400, "key-missing", "")
	f.store.set(func(s *faults) { s.create = func() error { return errDown } })
	a = f.post("/pay", "c10", `{"a":1}`)
	a.wants(t, 503, "store-unavailable", "")
	if a.header.Get("Retry-After") == "" || a.header.Get("Idempotency-Record") == "" {
		t.Errorf("header %v", a.header)
	}
}

func TestWaitingDuplicateIsReplayed(t *testing.T) {
	h := newGate(answering(201))
	f := newFixture(t, setup{handler: h, policy: func(p *policy.Policy) { p.Operations[0].Wait = time.Minute }})
	answers := make(chan *answer, 2)
	for range 2 {
		go func() { answers <- f.post("/pay", "k", "{}") }()
	}
	<-h.entered
	close(h.open)
	marks := map[string]int{}
	for range 2 {
		marks[(<-answers).header.Get("Idempotency-Status")]++
	}
	if marks["created"] != 1 || marks["replayed"] != 1 {
		t.Errorf("answers: %v", marks)
	}
}

func TestExpired(t *testing.T) {
	f := newFixture(t, setup{})
	f.post("/pay", "k", "{}")
	f.clock.forward(25 * time.Hour)
	a := f.post("/pay", "k", "{}")
	a.wants(t, 410, "key-expired", "expired")
	if m := a.problem(t); m["outcome"] != "succeeded" || m["resource"] != "/pay/1" || m["safe_new_key"] != false {
		t.Errorf("body %s", a.body)
	}
	results := f.told()
	if r := results[len(results)-1]; r.Late != counterfoil.WitnessRecord || r.Age < 24*time.Hour || r.Horizon != 24*time.Hour {
		t.Errorf("result %+v", r)
	}
	// Gone, and witnessed by the key's own age.
	first := request("POST", "/pay", "k2", "{}")
	sent := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	first.Header.Set("Idempotency-First-Sent", sent)
	do(f.handler, first).wants(t, 201, "", "created")
	f.clock.forward(50 * time.Hour)
	f.sweep(t)
	a = f.post("/pay", "k2", "{}", "Idempotency-First-Sent", sent)
	a.wants(t, 410, "key-expired", "expired")
	if a.problem(t)["outcome"] != nil {
		t.Errorf("an outcome without a record: %s", a.body)
	}
	if f.pay.count() != 2 {
		t.Errorf("%d effects", f.pay.count())
	}
}

func TestOverQuota(t *testing.T) {
	f := newFixture(t, setup{handler: answering(500), policy: func(p *policy.Policy) { p.Operations[0].MaxUnresolved = 1 }})
	f.post("/pay", "k1", "{}").wants(t, 500, "", "unknown")
	a := f.post("/pay", "k2", "{}")
	a.wants(t, 429, "too-many-unresolved", "")
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if got := f.kinds(); got != "unknown over_quota" {
		t.Errorf("counted as %q", got)
	}
}

func TestUnknownStatus409(t *testing.T) {
	f := newFixture(t, setup{handler: answering(500), policy: func(p *policy.Policy) { p.Operations[0].UnknownStatus = 409 }})
	f.post("/pay", "k", "{}")
	f.post("/pay", "k", "{}").wants(t, 409, "outcome-unknown", "unknown")
}

func TestScopeMissing(t *testing.T) {
	f := newFixture(t, setup{})
	f.post("/pay", "k", "{}", "X-Account", "").wants(t, 401, "scope-missing", "")
	f.post("/pay", "k", "{}", "X-Account", "acct-2").wants(t, 401, "scope-missing", "") // two lines are none
	if f.pay.count() != 0 {
		t.Error("the handler ran")
	}
}

func TestPrincipalFunc(t *testing.T) {
	var give func() (counterfoil.Principal, error)
	f := newFixture(t, setup{options: func(o *httpguard.Options) {
		o.Principal = func(*http.Request, *policy.Operation) (counterfoil.Principal, error) { return give() }
	}})
	give = func() (counterfoil.Principal, error) { return "", &httpguard.Answer{Status: 403, Body: []byte("no")} }
	if a := f.post("/pay", "k", "{}"); a.status != 403 || a.body != "no" {
		t.Errorf("%d %q", a.status, a.body)
	}
	give = func() (counterfoil.Principal, error) { return "", counterfoil.ErrScopeMissing }
	f.post("/pay", "k", "{}").wants(t, 401, "scope-missing", "")
	give = func() (counterfoil.Principal, error) { return "", io.ErrUnexpectedEOF }
	f.post("/pay", "k", "{}").wants(t, 503, "scope-missing", "")
	if f.pay.count() != 0 {
		t.Error("the handler ran")
	}
	give = func() (counterfoil.Principal, error) { return "acct-1", nil }
	f.post("/pay", "k", "{}").wants(t, 201, "", "created")
}

func TestAuthRequestNeedsAPrincipalFunc(t *testing.T) {
	p := &policy.Policy{Version: 1, Operations: []policy.Operation{operation("pay", "POST /pay")}}
	p.Operations[0].Scope.Principal = policy.Principal{Kind: policy.PrincipalAuthRequest}
	if err := httpguard.Check(p, httpguard.Options{}); err == nil {
		t.Error("accepted")
	}
}

// A replay is authorised on the day it is given.
func TestAuthorize(t *testing.T) {
	var refuse *httpguard.Answer
	var fail error
	f := newFixture(t, setup{options: func(o *httpguard.Options) {
		o.Authorize = func(*http.Request) (*httpguard.Answer, error) { return refuse, fail }
	}})
	f.post("/pay", "k", "{}").wants(t, 201, "", "created")
	refuse = &httpguard.Answer{Status: 403, Header: http.Header{"X-Why": {"revoked"}}, Body: []byte("revoked")}
	for _, a := range []*answer{
		f.post("/pay", "k", "{}"),
		f.send("GET", "/.well-known/idempotency/pay", "k", ""),
	} {
		if a.status != 403 || a.body != "revoked" || a.header.Get("X-Why") != "revoked" {
			t.Errorf("%d %q", a.status, a.body)
		}
	}
	refuse, fail = nil, io.ErrUnexpectedEOF
	f.post("/pay", "k", "{}").wants(t, 503, "store-unavailable", "")
	fail = nil
	f.post("/pay", "k", "{}").wants(t, 201, "", "replayed")
}

func TestUnguarded(t *testing.T) {
	optional := func(p *policy.Policy) { p.Operations[0].Key.Required = false }
	f := newFixture(t, setup{policy: optional})
	f.post("/pay", "", "{}").wants(t, 201, "", "unguarded")
	f.post("/pay", "", "{}", "X-Account", "").wants(t, 201, "", "unguarded")
	f.post("/elsewhere", "k", "{}").wants(t, 201, "", "unguarded")
	f.post("/elsewhere", "", "{}").wants(t, 201, "", "")
	f.send("GET", "/pay", "k", "").wants(t, 201, "", "")
	if got := f.kinds(); got != "unguarded unguarded unguarded" {
		t.Errorf("counted as %q", got)
	}
	if f.pay.count() != 5 {
		t.Errorf("%d effects", f.pay.count())
	}
	f = newFixture(t, setup{policy: optional, handler: answering(200, "Counterfoil-Outcome", "none")})
	if a := f.post("/pay", "", "{}"); a.header.Get("Counterfoil-Outcome") != "" {
		t.Error("Counterfoil-Outcome reached the caller")
	}
	f = newFixture(t, setup{options: func(o *httpguard.Options) { o.Unmatched = httpguard.Reject }})
	f.post("/elsewhere", "k", "{}").wants(t, 404, "request-invalid", "")
	f.send("PROPFIND", "/elsewhere", "", "").wants(t, 404, "request-invalid", "")
	f.send("GET", "/elsewhere", "", "").wants(t, 201, "", "")
}

func TestReloadedPolicy(t *testing.T) {
	f := newFixture(t, setup{})
	f.post("/pay", "k", `{"a":1,"at":"x"}`).wants(t, 201, "", "created")
	p := *f.engine.Policy()
	p.Version = 2
	p.Operations = append([]policy.Operation(nil), p.Operations...)
	p.Operations[0].Fingerprint.Ignore = []string{"$.at"}
	if err := f.engine.SetPolicy(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	// The old record is compared under the rules that made it (cases.md C68).
	f.post("/pay", "k", `{"a":1,"at":"y"}`).wants(t, 422, "key-reused", "mismatch")
	f.post("/pay", "k", `{"a":1,"at":"x"}`).wants(t, 201, "", "replayed")
	f.post("/pay", "k2", `{"a":1,"at":"x"}`).wants(t, 201, "", "created")
	f.post("/pay", "k2", `{"a":1,"at":"y"}`).wants(t, 201, "", "replayed")
	if err := f.guard.Reload(); err != nil {
		t.Fatal(err)
	}
}
