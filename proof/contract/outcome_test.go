package contract

import (
	"net/http"
	"testing"

	"github.com/counterfoil/counterfoil/proof/witness"
)

// TestC09TransientOrPossibleEffect: a status does not say whether the effect
// happened. Before any effect the handler says so, and the same key runs again;
// after one, a 5xx never frees the key.
func TestC09TransientOrPossibleEffect(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		// Hb: the effect, then 500.
		c := call{key: newKey(), script: witness.Script{Status: 500}}
		g.do(t, c).want(t, 500, "unknown", "")
		for range 3 {
			g.do(t, c).want(t, 503, "unknown", "outcome-unknown")
		}
		g.effects(t, c.key, 1)
		// Ha: a 503 before any effect that says nothing is unknown too: E stays 0
		// until somebody settles it.
		c = call{key: newKey(), script: witness.Script{StatusOnce: 503}}
		g.do(t, c).want(t, 503, "unknown", "")
		g.do(t, c).want(t, 503, "unknown", "outcome-unknown")
		g.effects(t, c.key, 0)
		// Ha: one that says that nothing happened lets the key run again.
		c = call{key: newKey(), script: witness.Script{Status: 503, NoEffect: true, Header: [][2]string{{"Counterfoil-Outcome", "none"}}}}
		g.do(t, c).want(t, 503, "no-effect", "")
		g.do(t, c).want(t, 503, "no-effect", "")
		if n := g.Witness.Arrivals(c.key); n != 2 {
			t.Errorf("%d arrivals, want 2", n)
		}
		g.effects(t, c.key, 0)
	})
}

// TestC85ResourceGone: the key's window is time, not the life of what it made.
func TestC85ResourceGone(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		c := call{key: newKey(), script: witness.Script{Header: [][2]string{{"Location", "/pay/1"}}}}
		first := g.do(t, c)
		first.want(t, 201, "created", "")
		gone := call{method: http.MethodDelete, path: "/pay/1", key: newKey(), script: witness.Script{Status: 204}}
		g.do(t, gone).want(t, 204, "created", "")
		again := g.do(t, c)
		again.want(t, 201, "replayed", "")
		if again.Body != first.Body || again.Header.Get("Location") != "/pay/1" {
			t.Errorf("got %q at %q, want %q", again.Body, again.Header.Get("Location"), first.Body)
		}
		g.effects(t, c.key, 1)
		g.do(t, gone).want(t, 204, "replayed", "")
	})
}
