package linear

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/pebblestore"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/proof/database"
)

// TestLinearizable runs random histories over every store.
func TestLinearizable(t *testing.T) {
	const several = 3
	rounds := map[string]int{"postgres": 1, "postgres, two nodes": 1} // a round trip each call
	stores := map[string]func(t *testing.T) counterfoil.Store{
		"memory": func(*testing.T) counterfoil.Store { return memstore.New(memstore.Options{}) },
		"pebble": func(t *testing.T) counterfoil.Store {
			s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"postgres": func(t *testing.T) counterfoil.Store {
			s, err := pgstore.Open(t.Context(), database.Lend(t), pgstore.Options{AcceptLoss: true})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"postgres, two nodes": func(t *testing.T) counterfoil.Store {
			url := database.Lend(t)
			var n nodes
			for i := range n.stores {
				s, err := pgstore.Open(t.Context(), url, pgstore.Options{AcceptLoss: true})
				if err != nil {
					t.Fatal(err)
				}
				n.stores[i] = s
			}
			n.Store = n.stores[0]
			return &n
		},
	}
	shapes := []workload{
		{clients: 8, calls: 500, ids: 2},
		{clients: 16, calls: 600, ids: 40},
		{clients: 10, calls: 200, ids: 1},
	}
	for name, open := range stores {
		for i, w := range shapes {
			n := several
			if few, ok := rounds[name]; ok {
				n = few
			}
			for round := range n {
				w.seed = uint64(100*i + round)
				t.Run(fmt.Sprintf("%s/%d clients on %d records/seed %d", name, w.clients, w.ids, w.seed), func(t *testing.T) {
					s := open(t)
					defer s.Close()
					check(t, record(t.Context(), s, w))
				})
			}
		}
	}
}

// nodes is one store as two processes have it: calls go to them in turn.
type nodes struct {
	counterfoil.Store
	stores [2]counterfoil.Store
	turn   atomic.Uint64
}

func (n *nodes) next() counterfoil.Store { return n.stores[n.turn.Add(1)%2] }

func (n *nodes) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	return n.next().Create(ctx, d)
}

func (n *nodes) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	return n.next().Update(ctx, w)
}

func (n *nodes) Get(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	return n.next().Get(ctx, id)
}

func (n *nodes) Close() error { return errors.Join(n.stores[0].Close(), n.stores[1].Close()) }

func check(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	counts := map[answer]int{}
	for _, op := range history {
		counts[op.Output.(output).answer]++
	}
	// A history in which nothing was written, or everything failed, proves
	// nothing.
	if counts[wrote] < len(history)/50 || counts[conflict]+counts[fenced] == 0 || counts[unsure]+counts[busy] > len(history)/10 {
		t.Fatalf("the history is empty of what it should show: %v of %d", counts, len(history))
	}
	res, info := porcupine.CheckOperationsVerbose(model, history, time.Minute)
	if res != porcupine.Ok {
		t.Errorf("%s: %d calls, %v", res, len(history), counts)
		if file, err := writeHistory(info); err == nil {
			t.Logf("the history is drawn in %s", file)
		}
	}
}

// TestModelBites plants the faults that the checker exists to find.
func TestModelBites(t *testing.T) {
	id := counterfoil.ID{1}
	a, b := counterfoil.Token{1}, counterfoil.Token{2}
	faults := map[string][]porcupine.Operation{
		"two callers both created": {
			{ClientId: 0, Input: input{kind: create, id: id, token: a}, Call: 1, Output: output{wrote, 1, a}, Return: 3},
			{ClientId: 1, Input: input{kind: create, id: id, token: b}, Call: 2, Output: output{wrote, 1, b}, Return: 4},
		},
		"a record seen and then gone": {
			{ClientId: 0, Input: input{kind: create, id: id, token: a}, Call: 1, Output: output{wrote, 1, a}, Return: 2},
			{ClientId: 1, Input: input{kind: get, id: id}, Call: 3, Output: output{answer: notFound}, Return: 4},
		},
		"two updates of one rev": {
			{ClientId: 0, Input: input{kind: create, id: id, token: a}, Call: 1, Output: output{wrote, 1, a}, Return: 2},
			{ClientId: 0, Input: input{kind: update, id: id, rev: 1, had: a, token: a}, Call: 3, Output: output{wrote, 2, a}, Return: 6},
			{ClientId: 1, Input: input{kind: update, id: id, rev: 1, had: a, token: a}, Call: 4, Output: output{wrote, 2, a}, Return: 5},
		},
		"a stale owner got through": {
			{ClientId: 0, Input: input{kind: create, id: id, token: a}, Call: 1, Output: output{wrote, 1, a}, Return: 2},
			{ClientId: 1, Input: input{kind: update, id: id, rev: 1, had: a, token: b}, Call: 3, Output: output{wrote, 2, b}, Return: 4},
			{ClientId: 0, Input: input{kind: update, id: id, rev: 2, had: a, token: a}, Call: 5, Output: output{wrote, 3, a}, Return: 6},
		},
	}
	for name, history := range faults {
		t.Run(name, func(t *testing.T) {
			if porcupine.CheckOperations(model, history) {
				t.Error("the checker accepts it")
			}
		})
	}
}

// writeHistory draws the history for a browser.
func writeHistory(info porcupine.LinearizationInfo) (string, error) {
	f, err := os.CreateTemp("", "history-*.html")
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.Name(), porcupine.Visualize(model, info, f)
}
