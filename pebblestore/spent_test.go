package pebblestore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pebblestore"
)

// spentStore has n tombstones past their horizon, in tables only.
func spentStore(t *testing.T, n int) (*pebblestore.Store, []counterfoil.Record) {
	t.Helper()
	s := open(t, "/store", pebblestore.Options{FS: vfs.NewMem()})
	records := make([]counterfoil.Record, n)
	if err := pebblestore.Fill(s, n, func(i int) counterfoil.Record {
		d := benchDraft(benchID(5, 0, uint64(i)))
		at := time.Now().AddDate(0, 0, -50)
		d.Stamps.Apply(&d.Record, at)
		w := completion(d.Record, nil)
		w.Stamps.Apply(&w.Record, at.Add(time.Second))
		w.Record.State, w.Record.Token, w.Record.Rev = counterfoil.Tombstone, counterfoil.Token{}, 3
		records[i] = w.Record
		return w.Record
	}); err != nil {
		t.Fatal(err)
	}
	return s, records
}

// sweepAll makes a whole pass.
func sweepAll(t *testing.T, s counterfoil.Store) (sum counterfoil.SweepReport) {
	t.Helper()
	for o := (counterfoil.SweepOrder{}); ; {
		r, err := s.Sweep(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(r)
		if o.Cursor = r.Next; o.Cursor == nil {
			return sum
		}
	}
}

// TestP2SpentKeysAreFree: what a sweep deleted is gone at once, though the
// tables still have it, and the counters and F say so.
func TestP2SpentKeysAreFree(t *testing.T) {
	s, records := spentStore(t, 3000)
	sum := sweepAll(t, s)
	if sum.TombstonesDeleted != len(records) || sum.Announced != len(records) {
		t.Fatalf("%+v", sum)
	}
	stats, err := s.Stats(t.Context())
	if err != nil || len(stats.Operations) > 0 {
		t.Fatalf("%v, %v", stats.Operations, err)
	}
	m, err := s.Meta(t.Context(), counterfoil.MetaForgotten)
	if err != nil {
		t.Fatal(err)
	}
	f, err := counterfoil.DecodeForgotten(m.Value)
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if records[i].CreatedAt.After(f[records[i].Operation]) {
			t.Fatalf("F is %v, a record of %v is gone", f, records[i].CreatedAt)
		}
		st, err := s.Create(t.Context(), benchDraft(records[i].ID))
		if err != nil || !st.Created {
			t.Fatalf("%s: created %v, %v", records[i].ID, st.Created, err)
		}
	}
}

// TestP11HoldBesideSweep: a record that is held while a sweep is about to delete
// it is kept if the hold was confirmed, and is gone if it was not.
func TestP11HoldBesideSweep(t *testing.T) {
	s, records := spentStore(t, 40_000)
	ctx := context.Background()
	held := make([]bool, len(records))
	var wg sync.WaitGroup
	const callers = 64
	for c := range callers {
		wg.Go(func() {
			for i := c; i < len(records); i += callers {
				r := records[i].Clone()
				r.Holds = []counterfoil.Hold{{At: r.SettledAt, Actor: "ops", Reason: "audit"}}
				switch _, err := s.Update(ctx, &counterfoil.Write{Record: r, IfRev: r.Rev, IfToken: r.Token}); {
				case err == nil:
					held[i] = true
				case errors.Is(err, counterfoil.ErrNotFound):
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	sum := sweepAll(t, s)
	wg.Wait()
	n := 0
	for i := range records {
		_, err := s.Get(ctx, records[i].ID)
		if held[i] && err != nil || !held[i] && !errors.Is(err, counterfoil.ErrNotFound) {
			t.Fatalf("%s: held %v, and then %v", records[i].ID, held[i], err)
		}
		if held[i] {
			n++
		}
	}
	if sum.TombstonesDeleted != len(records)-n {
		t.Errorf("%d records, %d held, %+v", len(records), n, sum)
	}
	t.Logf("%d held", n)
}
