package pebblestore_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pebblestore"
	"github.com/counterfoil/counterfoil/storetest"
)

// TestP1NoKeyRunsTwiceWhileTablesAreFlushed: every key is claimed, completed,
// failed or deleted while Pebble flushes and compacts all the time, and is
// claimed again and again; each claim must find what the one before left.
func TestP1NoKeyRunsTwiceWhileTablesAreFlushed(t *testing.T) {
	ctx := context.Background()
	clock := storetest.NewClock()
	s := open(t, "/store", pebblestore.Options{FS: vfs.NewMem(), Clock: clock.Now, SegmentSize: 256 << 10}.SmallMemTables())
	keys, each := 400, 6000
	if testing.Short() {
		each = 1000
	}
	var wg sync.WaitGroup
	most := 0
	for caller := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(5, uint64(caller)))
			standing := make(map[counterfoil.ID]counterfoil.Record)
			for i := range each {
				id := benchID(uint64(caller), 0, uint64(rng.IntN(keys)))
				d := benchDraft(id)
				d.Record.Token = counterfoil.NewToken()
				st, err := s.Create(ctx, d)
				if err != nil {
					t.Error(err)
					return
				}
				want, ok := standing[id]
				if st.Created == ok || ok && (st.Record.Rev != want.Rev || st.Record.State != want.State || st.Record.Token != want.Token) {
					t.Errorf("caller %d, operation %d: created %v, %s rev %d; it stood as %s rev %d",
						caller, i, st.Created, st.Record.State, st.Record.Rev, want.State, want.Rev)
					return
				}
				w := completion(st.Record, nil)
				switch rng.IntN(4) {
				case 0:
					w.Record.State, w.Record.Proof = counterfoil.Failed, counterfoil.ProofStated
				case 1:
					w.Record.State = counterfoil.InProgress
				}
				snap, err := s.Update(ctx, w)
				if err != nil {
					t.Error(err)
					return
				}
				standing[id] = snap.Record
				if caller == 0 && i%500 == 0 {
					most = max(most, pebblestore.Recent(s))
				}
			}
		})
	}
	wg.Wait()
	t.Logf("at most %d of %d rows were recent when looked at", most, 8*keys)
	if most == 0 {
		t.Error("no row was ever recent")
	}
	// What a sweep deletes is gone at once, wherever it was. Most are tombstones
	// by the time their horizon passes.
	var sum counterfoil.SweepReport
	for _, d := range []time.Duration{30 * time.Hour, 100 * 24 * time.Hour} {
		clock.Advance(d)
		sum = counterfoil.SweepReport{}
		for cursor, more := []byte(nil), true; more; more = cursor != nil {
			r, err := s.Sweep(ctx, counterfoil.SweepOrder{Cursor: cursor, Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			sum.Add(r)
			cursor = r.Next
		}
	}
	if sum.Tombstoned > 0 || sum.TombstonesDeleted == 0 || sum.Announced != sum.TombstonesDeleted {
		t.Errorf("the last pass: %+v", sum)
	}
	for caller := range uint64(8) {
		for k := range uint64(keys) {
			id := benchID(caller, 0, k)
			got, err := s.Get(ctx, id)
			st, cerr := s.Create(ctx, benchDraft(id))
			if cerr != nil || st.Created != (err != nil) {
				t.Fatalf("%s: Get says %v, %s; Create says created %v, %v", id, err, got.Record.State, st.Created, cerr)
			}
		}
	}
}
