package httpguard_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// answering is a handler that gives one status with a body.
func answering(status int, fields ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for i := 0; i+1 < len(fields); i += 2 {
			w.Header().Add(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "answer")
	})
}

func TestCreatedThenReplayed(t *testing.T) {
	f := newFixture(t, setup{})
	a1 := f.post("/pay", "k-1", `{"amount":1}`)
	a1.wants(t, 201, "", "created")
	a2 := f.post("/pay", `"k-1"`, `{ "amount": 1.0 }`)
	a2.wants(t, 201, "", "replayed")
	if a1.body != a2.body || a2.header.Get("Location") != "/pay/1" || f.pay.count() != 1 {
		t.Errorf("first %q, replay %q, %d effects", a1.body, a2.body, f.pay.count())
	}
	if a1.header.Get("Idempotent-Replayed") != "" || a2.header.Get("Idempotent-Replayed") != "true" {
		t.Error("Idempotent-Replayed is wrong")
	}
	rec := f.record("pay", "k-1")
	for _, a := range []*answer{a1, a2} {
		if got := a.header.Get("Idempotency-Record"); got != rec.ID.String() {
			t.Errorf("Idempotency-Record %q, want %s", got, rec.ID)
		}
		if got := a.header.Get("Idempotency-Replay-Until"); got != rec.ReplayUntil.Format(time.RFC3339) {
			t.Errorf("Idempotency-Replay-Until %q, record has %v", got, rec.ReplayUntil)
		}
		if got := a.header.Get("Idempotency-Protected-Until"); got != rec.Horizon.Format(time.RFC3339) {
			t.Errorf("Idempotency-Protected-Until %q, record has %v", got, rec.Horizon)
		}
	}
	if rec.State != counterfoil.Completed || rec.Outcome != (counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201, Resource: "/pay/1"}) {
		t.Errorf("record: %v %+v", rec.State, rec.Outcome)
	}
	if got := f.kinds(); got != "created replayed" {
		t.Errorf("counted as %q", got)
	}
}

// Each status of the policy's lists, and what a handler may say of itself.
func TestOutcomeOfAnAnswer(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.Handler
		status  int
		mark    string
		state   counterfoil.State
		class   counterfoil.OutcomeClass
	}{
		{"succeeded", answering(200), 200, "created", counterfoil.Completed, counterfoil.Succeeded},
		{"redirect", answering(303, "Location", "/x"), 303, "created", counterfoil.Completed, counterfoil.Succeeded},
		{"declined", answering(402), 402, "created", counterfoil.Completed, counterfoil.Declined},
		{"not implemented", answering(501), 501, "created", counterfoil.Completed, counterfoil.Declined},
		{"ambiguous", answering(500), 500, "unknown", counterfoil.Unknown, 0},
		{"no effect", answering(429), 429, "no-effect", counterfoil.Failed, 0},
		{"said none", answering(500, "Counterfoil-Outcome", "none"), 500, "no-effect", counterfoil.Failed, 0},
		{"said final", answering(503, "Counterfoil-Outcome", "final"), 503, "created", counterfoil.Completed, counterfoil.Declined},
		{"said unknown", answering(200, "Counterfoil-Outcome", "unknown"), 200, "unknown", counterfoil.Unknown, 0},
		{"said nonsense", answering(200, "Counterfoil-Outcome", "perhaps"), 200, "created", counterfoil.Completed, counterfoil.Succeeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, setup{handler: c.handler})
			a := f.post("/pay", "k", "{}")
			a.wants(t, c.status, "", c.mark)
			if a.body != "answer" {
				t.Errorf("body %q", a.body)
			}
			for name := range a.header {
				if strings.HasPrefix(name, "Counterfoil-") {
					t.Errorf("%s reached the caller", name)
				}
			}
			rec := f.record("pay", "k")
			if rec.State != c.state || rec.Outcome.Class != c.class {
				t.Errorf("record is %v, %v", rec.State, rec.Outcome.Class)
			}
			again := f.post("/pay", "k", "{}")
			switch c.state {
			case counterfoil.Unknown:
				again.wants(t, 503, "outcome-unknown", "unknown")
				if again.problem(t)["last_status"] != float64(c.status) {
					t.Errorf("last_status: %s", again.body)
				}
				if again.header.Get("Retry-After") != "" {
					t.Error("Retry-After, but nothing will look again")
				}
			case counterfoil.Failed:
				again.wants(t, c.status, "", "no-effect")
				if rec = f.record("pay", "k"); rec.Attempt != 2 {
					t.Errorf("attempt %d, want 2", rec.Attempt)
				}
			default:
				again.wants(t, c.status, "", "replayed")
			}
		})
	}
}

func TestAlreadyProcessed(t *testing.T) {
	short := func(p *policy.Policy) {
		replay := time.Minute
		for i := range p.Operations {
			p.Operations[i].ReplayFor = &replay
			p.Operations[i].Resource = ""
		}
	}
	t.Run("succeeded", func(t *testing.T) {
		f := newFixture(t, setup{policy: short})
		f.post("/pay", "k", "{}")
		f.clock.forward(2 * time.Minute)
		a := f.post("/pay", "k", "{}")
		a.wants(t, 201, "", "already-processed")
		var m map[string]any
		if err := json.Unmarshal([]byte(a.body), &m); err != nil {
			t.Fatal(err)
		}
		if m["record"] == "" || m["operation"] != "pay" || m["outcome"] != "succeeded" || m["status"] != 201.0 || m["resource"] != "/pay/1" || m["completed_at"] == nil {
			t.Errorf("body %s", a.body)
		}
		if a.header.Get("Location") != "/pay/1" || f.pay.count() != 1 {
			t.Errorf("Location %q, %d effects", a.header.Get("Location"), f.pay.count())
		}
		f.post("/pay", "k", `{"x":1}`).wants(t, 422, "key-reused", "mismatch")
	})
	for status, want := range map[int]int{200: 200, 202: 202, 204: 204, 206: 200, 226: 200, 303: 303} {
		f := newFixture(t, setup{policy: short, handler: answering(status, "Location", "/pay/7")})
		f.post("/pay", "k", "{}")
		f.clock.forward(2 * time.Minute)
		if a := f.post("/pay", "k", "{}"); a.status != want || a.header.Get("Idempotency-Status") != "already-processed" {
			t.Errorf("after %d: %d %q, want %d", status, a.status, a.header.Get("Idempotency-Status"), want)
		}
	}
	t.Run("declined", func(t *testing.T) {
		f := newFixture(t, setup{policy: short, handler: answering(402)})
		f.post("/pay", "k", "{}")
		f.clock.forward(2 * time.Minute)
		a := f.post("/pay", "k", "{}")
		a.wants(t, 402, "already-processed", "already-processed")
		if m := a.problem(t); m["outcome"] != "declined" || m["completed_at"] == nil || m["safe_new_key"] != false {
			t.Errorf("body %s", a.body)
		}
	})
	t.Run("see other", func(t *testing.T) {
		f := newFixture(t, setup{policy: func(p *policy.Policy) {
			short(p)
			p.Operations[0].LateAnswer = policy.LateAnswerSeeOther
		}})
		f.post("/pay", "k", "{}")
		f.clock.forward(2 * time.Minute)
		a := f.post("/pay", "k", "{}")
		a.wants(t, 303, "", "already-processed")
		if a.header.Get("Location") != "/pay/1" {
			t.Errorf("Location %q", a.header.Get("Location"))
		}
		if got := f.kinds(); got != "created redirected" {
			t.Errorf("counted as %q", got)
		}
	})
	t.Run("see other, elsewhere", func(t *testing.T) {
		f := newFixture(t, setup{handler: answering(201, "Location", "https://evil.example/pay/1"), policy: func(p *policy.Policy) {
			short(p)
			p.Operations[0].LateAnswer = policy.LateAnswerSeeOther
		}})
		f.post("/pay", "k", "{}")
		f.clock.forward(2 * time.Minute)
		if a := f.post("/pay", "k", "{}"); a.status != 201 || a.header.Get("Location") != "" {
			t.Errorf("%d to %q", a.status, a.header.Get("Location"))
		}
	})
}

func TestResource(t *testing.T) {
	for _, c := range []struct {
		name, template, target string
		fields                 []string
		want                   string
	}{
		{"template", "/v1/pay/{id}", "/pay/p%2F1", nil, "/v1/pay/p%2F1"},
		{"plain template", "/v1/pay", "/pay/1", []string{"Location", "/x"}, "/v1/pay"},
		{"upstream's word first", "/v1/pay/{id}", "/pay/1", []string{"Counterfoil-Resource", "/charges/9?x=1"}, "/charges/9?x=1"},
		{"upstream elsewhere", "", "/pay/1", []string{"Counterfoil-Resource", "//evil/x"}, ""},
		{"location", "", "/pay/1", []string{"Location", "/pay/1/y"}, "/pay/1/y"},
		{"relative location", "", "/pay/1", []string{"Location", "2"}, "/pay/2"},
		{"absolute location", "", "/pay/1", []string{"Location", "http://example.com/pay/9"}, "/pay/9"},
		{"another host", "", "/pay/1", []string{"Location", "http://example.org/pay/9"}, ""},
		{"another scheme", "", "/pay/1", []string{"Location", "javascript:alert(1)"}, ""},
		{"too long", "", "/pay/1", []string{"Location", "/" + strings.Repeat("a", 2000)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, setup{handler: answering(201, c.fields...), policy: func(p *policy.Policy) {
				p.Operations[0].Match = []string{"POST /pay/{id}"}
				p.Operations[0].Resource = c.template
			}})
			f.post(c.target, "k", "{}")
			if got := f.record("pay", "k").Outcome.Resource; got != c.want {
				t.Errorf("resource %q, want %q", got, c.want)
			}
		})
	}
}
