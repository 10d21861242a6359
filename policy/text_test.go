package policy_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/policy"
)

func TestTextRoundTrip(t *testing.T) {
	p := with(func(o *policy.Operation) {
		o.Inputs.BrokerRedeliveryWindow.Retriers = []policy.Retrier{{Name: "queue", Value: 1}, {Name: "sdk", Value: 1, Inside: "queue"}}
		o.Accept = []string{policy.AcceptMayLoseClaims}
	})
	p.Normalize()
	again, err := policy.ParseText(p.Text())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, p) {
		t.Errorf("read back:\n%+v\nwant:\n%+v", again, p)
	}
	if again.Digest() != p.Digest() {
		t.Error("the digest changed on the way")
	}
}

// The digest must follow the meaning, since one version with two digests keeps
// a node from starting.
func TestTextIsNormal(t *testing.T) {
	p, q := with(unchanged), with(unchanged)
	second := capture()
	second.Name = "a"
	p.Operations = append(p.Operations, second)
	q.Operations = append([]policy.Operation{second}, q.Operations...)
	q.Operations[1].Ambiguous = []int{504, 502, 503, 500, 500}
	q.Operations[1].Scope.Principal.Header = "x-account-id"
	q.Operations[0].Scope.Family = "payments"
	q.Operations[1].Fingerprint.Headers = []string{"api-version"}
	before := q.Operations[1].Ambiguous[0]
	if p.Digest() != q.Digest() {
		t.Errorf("same meaning, two texts:\n%s\n%s", p.Text(), q.Text())
	}
	if q.Operations[1].Ambiguous[0] != before || q.Operations[1].Fingerprint.Headers[0] != "api-version" {
		t.Error("Text changed the policy")
	}
	q.Version++
	if p.Digest() == q.Digest() {
		t.Error("another version, the same digest")
	}
}

func TestTextFollowsEveryField(t *testing.T) {
	base := with(unchanged).Digest()
	eachField(t, func(t *testing.T, changed *policy.Policy) {
		if changed.Digest() == base {
			t.Error("the digest does not cover the field")
		}
	})
}

// Records are judged under kept texts, so these bytes may never change for the
// same policy; a change needs a new TextFormat.
func TestTextFormat1(t *testing.T) {
	p := &policy.Policy{Version: 1, Operations: []policy.Operation{policy.NewOperation("x")}}
	const want = `{"counterfoil_policy":1,"version":1,"operations":[{"name":"x","scope":{"principal":{"kind":""}},` +
		`"key":{"header":"Idempotency-Key","required":true,"format":"any"},"fingerprint":{},` +
		`"ttl":{"client_retry_budget":{"value":0},"broker_redelivery_window":{"value":0},"reconciliation_cadence":{"value":0},"safety_margin":{"value":0}},` +
		`"deadline":60000000000,"lease":30000000000,"wait":2000000000,"settle":30000000000,` +
		`"ambiguous":[500,502,503,504],"no_effect":[401,407,408,413,414,417,421,425,429,431],` +
		`"on_unknown":{"rule":"close"},"unknown_status":503,"late_answer":"status","dispatch":"implicit","late":"refuse",` +
		`"max_request":1048576,"max_response":1048576,"max_unresolved":1000,"volume":{},"durability":"B"}]}`
	if got := string(p.Text()); got != want {
		t.Errorf("Text:\n%s\nwant:\n%s", got, want)
	}
}

func TestParseTextIsStrict(t *testing.T) {
	good := string(with(unchanged).Text())
	for name, text := range map[string]string{
		"empty":            "",
		"null":             "null",
		"truncated":        good[:len(good)-1],
		"trailing":         good + " ",
		"second":           good + good,
		"unknown member":   strings.Replace(good, `"lease"`, `"leash"`, 1),
		"other case":       strings.Replace(good, `"lease"`, `"Lease"`, 1),
		"doubled member":   strings.Replace(good, `"lease":`, `"lease":1,"lease":`, 1),
		"missing format":   strings.Replace(good, `"counterfoil_policy":1,`, ``, 1),
		"later format":     strings.Replace(good, `"counterfoil_policy":1,`, `"counterfoil_policy":2,`, 1),
		"indented":         strings.Replace(good, `,`, `, `, 1),
		"another version":  strings.Replace(good, `"version":7`, `"version":-7`, 1),
		"fraction of time": strings.Replace(good, `"lease":30000000000`, `"lease":30.5`, 1),
	} {
		if p, err := policy.ParseText([]byte(text)); !errors.Is(err, policy.ErrText) {
			t.Errorf("%s: got %v, %v, want ErrText", name, p, err)
		}
	}
}

func FuzzParseText(f *testing.F) {
	f.Add(with(unchanged).Text())
	f.Add([]byte(`{"counterfoil_policy":1,"version":0,"operations":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := policy.ParseText(b)
		if err != nil {
			return
		}
		if !bytes.Equal(p.Text(), b) {
			t.Fatalf("read %q, wrote %q", b, p.Text())
		}
		p.Validate() // must not panic on what a charter may hold
		policy.Compare(p, p)
	})
}
