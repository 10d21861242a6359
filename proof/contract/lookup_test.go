package contract

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/counterfoil/counterfoil/proof/witness"
)

// TestLookup is the caller's own lookup and the published contract.
func TestLookup(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		c := call{key: newKey(), script: witness.Script{Header: [][2]string{{"Location", "/pay/1"}}}}
		look := call{method: http.MethodGet, path: "/.well-known/idempotency/pay", key: c.key}
		a := g.do(t, look)
		a.want(t, 404, "", "not-seen")
		if a.Problem.SafeNewKey == nil || *a.Problem.SafeNewKey {
			t.Errorf("not-seen must not invite a new key: %s", a.Body)
		}
		first := g.do(t, c)
		a = g.do(t, look)
		var body map[string]any
		if err := json.Unmarshal([]byte(a.Body), &body); err != nil || a.Status != 200 {
			t.Fatalf("%d %v: %s", a.Status, err, a.Body)
		}
		want := map[string]any{
			"record": first.Header.Get("Idempotency-Record"), "state": "completed", "outcome": "succeeded",
			"status": 201.0, "resource": "/pay/1",
		}
		for member, v := range want {
			if body[member] != v {
				t.Errorf("%s is %v, want %v", member, body[member], v)
			}
		}
		if body["protected_until"] == nil {
			t.Error("no protected_until")
		}
		// P7: another principal sees nothing of it.
		look.account = "somebody-else"
		g.do(t, look).want(t, 404, "", "not-seen")
		look.account = "-"
		g.do(t, look).want(t, 401, "", "scope-missing")
	})
}

func TestPublishedContract(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		a := g.do(t, call{method: http.MethodGet, path: "/.well-known/idempotency", account: "-"})
		var doc any
		if err := json.Unmarshal([]byte(a.Body), &doc); err != nil || a.Status != 200 {
			t.Fatalf("%d %v: %s", a.Status, err, a.Body)
		}
		text := a.Body
		for _, want := range []string{`"pay"`, `P90D`, `Idempotency-Key`} {
			if !contains(text, want) {
				t.Errorf("%s is not in %s", want, text)
			}
		}
	})
}
