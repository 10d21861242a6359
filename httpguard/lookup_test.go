package httpguard_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/policy"
)

func (a *answer) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return m
}

func TestLookup(t *testing.T) {
	const at = "/.well-known/idempotency/pay"
	f := newFixture(t, setup{})
	a := f.send("GET", at, "k", "")
	a.wants(t, 404, "not-seen", "")
	if m := a.problem(t); m["safe_new_key"] != false || m["operation"] != "pay" || m["record"] != a.header.Get("Idempotency-Record") {
		t.Errorf("%s", a.body)
	}
	f.post("/pay", "k", "{}")
	rec := f.record("pay", "k")
	a = f.send("GET", at, "k", "")
	a.wants(t, 200, "", "")
	m := a.json(t)
	for name, want := range map[string]any{
		"record": rec.ID.String(), "state": "completed", "outcome": "succeeded", "status": 201.0, "resource": "/pay/1",
		"protected_until": rec.Horizon.Format(time.RFC3339),
	} {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	if len(m) != 6 || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %v", a.body, a.header)
	}
	f.send("GET", at, "", "").wants(t, 400, "key-missing", "")
	f.send("GET", at, `"`, "").wants(t, 400, "key-invalid", "")
	f.send("GET", at, "k", "", "X-Account", "").wants(t, 401, "scope-missing", "")
	f.send("GET", at, "k", "", "X-Account", "", "X-Account", "other").wants(t, 404, "not-seen", "")
	f.send("GET", "/.well-known/idempotency/none", "k", "").wants(t, 404, "request-invalid", "")
	f.send("POST", at, "k", "").wants(t, 405, "request-invalid", "")
	if f.pay.count() != 1 {
		t.Errorf("%d effects", f.pay.count())
	}
}

func TestLookupOfUnsettledRecords(t *testing.T) {
	const at = "/.well-known/idempotency/pay"
	h := newGate(answering(500))
	f := newFixture(t, setup{handler: h})
	first := make(chan *answer)
	go func() { first <- f.post("/pay", "k", "{}") }()
	<-h.entered
	if m := f.send("GET", at, "k", "").json(t); m["state"] != "in_progress" || m["outcome"] != nil {
		t.Errorf("%v", m)
	}
	close(h.open)
	<-first
	if m := f.send("GET", at, "k", "").json(t); m["state"] != "unknown" || m["outcome"] != "unknown" || m["status"] != nil {
		t.Errorf("%v", m)
	}
}

// Where something older was forgotten, absence proves nothing.
func TestLookupOfAForgottenKey(t *testing.T) {
	f := newFixture(t, setup{})
	f.post("/pay", "k", "{}")
	f.clock.forward(50 * time.Hour)
	f.sweep(t)
	old := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	f.send("GET", "/.well-known/idempotency/pay", "k", "", "Idempotency-First-Sent", old).wants(t, 410, "key-expired", "")
	f.send("GET", "/.well-known/idempotency/pay", "k", "").wants(t, 404, "not-seen", "")
}

func TestPublishedListing(t *testing.T) {
	f := newFixture(t, setup{policy: func(p *policy.Policy) { p.Operations[0].Protect = 90 * policy.Day }})
	a := f.send("GET", "/.well-known/idempotency", "", "")
	a.wants(t, 200, "", "")
	var l httpguard.Listing
	if err := json.Unmarshal([]byte(a.body), &l); err != nil {
		t.Fatal(err)
	}
	if len(l.Operations) != 2 || l.PolicyVersion != 1 {
		t.Fatalf("%+v", l)
	}
	o := l.Operations[0]
	if o.Operation != "pay" || o.Key.Header != "Idempotency-Key" || o.Key.MaxLength != 255 || o.Scope.Principal != "header:X-Account" ||
		o.TTL != "P1D" || o.ProtectedFor != "P90D" || o.ReplayFor != "P1D" || o.Lookup != "/.well-known/idempotency/pay" {
		t.Errorf("%+v", o)
	}
	f.send("GET", "/.well-known/idempotency-other", "", "").wants(t, 201, "", "")
	f.send("GET", "/.well-known/idempotency/pay/x", "", "").wants(t, 201, "", "")
}
