package storetest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
)

var sweepTests = []test{
	{"C42 sweep spares open records", func(f *fixture) {
		live := f.claim(func(d *counterfoil.Draft) { d.Stamps.Horizon = counterfoil.In(-time.Hour) })
		lapsed := f.claim(lapsedBy(time.Hour), func(d *counterfoil.Draft) { d.Stamps.Horizon = counterfoil.In(-time.Hour) })
		unknown := f.standing(counterfoil.Unknown) // no horizon: it waits for its resolution
		done := f.past(counterfoil.Completed)
		tombstone := f.past(counterfoil.Tombstone)
		r := f.sweep(counterfoil.SweepOrder{})
		for _, open := range []counterfoil.Record{live, lapsed, unknown} {
			f.same(open)
		}
		f.gone(done.ID)
		f.gone(tombstone.ID)
		if r.TombstonesDeleted != 2 || r.FailedDeleted != 0 || r.Closed != 0 || r.Tombstoned != 1 || r.Announced != 2 {
			f.Fatalf("report: got %+v", r)
		}
	}},

	{"sweep keeps what is not due", func(f *fixture) {
		var want []counterfoil.Record
		for _, s := range states[:5] {
			want = append(want, f.standing(s))
		}
		want = append(want, f.completed([]byte("body")))
		r := f.sweep(counterfoil.SweepOrder{})
		for _, w := range want {
			f.same(w)
		}
		f.response(want[5], []byte("body"))
		if r.Tombstoned+r.Announced+r.FailedDeleted+r.ResponsesDropped != 0 || len(r.Kept) != 0 || r.AsOf.IsZero() {
			f.Fatalf("report: got %+v", r)
		}
		if m, _ := f.forgotten(); m.Rev != 0 {
			f.Fatal("a sweep that announced nothing raised F")
		}
	}},

	{"sweep judges to the millisecond", func(f *fixture) {
		f.needsClock()
		r := f.standing(counterfoil.Completed, func(w *counterfoil.Write) { w.Response = []byte("x") })
		failed := f.standing(counterfoil.Failed)
		f.clock.Set(r.ReplayUntil.Add(-time.Millisecond))
		f.sweep(counterfoil.SweepOrder{})
		f.same(r)
		f.clock.Advance(time.Millisecond)
		f.sweep(counterfoil.SweepOrder{})
		if got := f.get(r.ID); got.State != counterfoil.Tombstone {
			f.Fatalf("at the end of its replay the record is %s", got.State)
		}
		f.clock.Set(r.Horizon.Add(-time.Millisecond))
		f.sweep(counterfoil.SweepOrder{})
		f.get(r.ID)
		f.same(failed)
		f.clock.Advance(time.Millisecond)
		f.sweep(counterfoil.SweepOrder{})
		f.gone(r.ID)
		f.gone(failed.ID)
	}},

	{"C43 a dropped response leaves a tombstone", func(f *fixture) {
		full := f.fullRecord(counterfoil.Completed)
		full.Horizon = f.now().Add(time.Hour)
		r := f.create(&counterfoil.Draft{Record: full, Stamps: counterfoil.Stamps{ReplayUntil: counterfoil.In(-time.Millisecond)}})
		r = f.update(r, func(w *counterfoil.Write) { w.Response = []byte("body") })
		bare := f.standing(counterfoil.Completed, func(w *counterfoil.Write) { w.Stamps.ReplayUntil = counterfoil.In(-time.Second) })
		report := f.sweep(counterfoil.SweepOrder{})
		if report.ResponsesDropped != 1 || report.Tombstoned != 2 || report.Announced != 0 {
			f.Fatalf("report: got %+v", report)
		}
		for _, old := range []counterfoil.Record{r, bare} {
			got := f.get(old.ID)
			if got.State != counterfoil.Tombstone || got.HasResponse || !got.Token.IsZero() || got.Reference != "" || got.Rev <= old.Rev {
				f.Fatalf("tombstone: got %+v", got)
			}
			f.response(got, nil)
			want := stub(old)
			want.State = counterfoil.Tombstone
			if g := diff(stub(got), want); g != "" {
				f.Fatalf("the tombstone lost part of its record:\n%s", g)
			}
			w := next(old)
			w.Record.Policy++
			if _, err := f.store.Update(f.ctx, w); err == nil {
				f.Fatal("a write decided before the sweep was done after it")
			}
		}
	}},

	{"C41 a batch never exceeds its limit", func(f *fixture) {
		n, limit := f.rounds(1000), 10
		for range n {
			f.past(counterfoil.Failed)
		}
		left := n
		var cursor []byte
		for batches := 1; ; batches++ {
			r, err := f.store.Sweep(f.ctx, counterfoil.SweepOrder{Limit: limit, Cursor: cursor})
			f.ok(err)
			if r.Examined > limit || r.FailedDeleted > r.Examined {
				f.Fatalf("batch of %d: got %+v", limit, r)
			}
			if batches <= 3 {
				if now := len(f.all(counterfoil.Query{})); now != left-r.FailedDeleted {
					f.Fatalf("a batch that reports %d deleted left %d of %d", r.FailedDeleted, now, left)
				}
			}
			left -= r.FailedDeleted
			if cursor = r.Next; cursor == nil {
				break
			}
		}
		if left != 0 || len(f.all(counterfoil.Query{})) != 0 {
			f.Fatalf("a full pass left %d of %d", left, n)
		}
	}},

	{"C81 a sweep that is given up has made progress, and the next goes on", func(f *fixture) {
		const n = 60
		var live []counterfoil.Record
		for range n {
			f.past(counterfoil.Tombstone)
			live = append(live, f.claim())
		}
		for limit := 1; limit <= 7; limit += 3 { // begun three times, never ended
			o := counterfoil.SweepOrder{Limit: limit}
			for range 5 {
				r, err := f.store.Sweep(f.ctx, o)
				f.ok(err)
				o.Cursor = r.Next
			}
		}
		if left := len(f.all(counterfoil.Query{State: counterfoil.Tombstone})); left >= n {
			f.Fatalf("15 batches left all %d tombstones", left)
		}
		f.sweep(counterfoil.SweepOrder{Limit: 9})
		if left := f.all(counterfoil.Query{}); len(left) != n {
			f.Fatalf("got %d records left, want the %d live ones", len(left), n)
		}
		for _, r := range live {
			f.same(r)
		}
	}},

	{"C81 two sweepers share the work", func(f *fixture) {
		const n, sweepers = 200, 2
		for range n {
			f.past(counterfoil.Tombstone)
			f.past(counterfoil.Failed)
		}
		var tombstones, failed atomic.Int64
		together(sweepers, func(int) {
			o := counterfoil.SweepOrder{Limit: 13}
			for pass := 0; pass < 3; {
				r, err := f.store.Sweep(f.ctx, o)
				if err != nil {
					f.Error(err)
					return
				}
				tombstones.Add(int64(r.TombstonesDeleted))
				failed.Add(int64(r.FailedDeleted))
				if o.Cursor = r.Next; o.Cursor == nil {
					pass++
				}
			}
		})
		if tombstones.Load() != n || failed.Load() != n {
			f.Fatalf("two sweepers report %d tombstones and %d failed deleted, of %d each", tombstones.Load(), failed.Load(), n)
		}
		if left := len(f.all(counterfoil.Query{})); left != 0 {
			f.Fatalf("%d records left", left)
		}
	}},

	{"a failed record goes at its horizon and raises no F", func(f *fixture) {
		gone := f.past(counterfoil.Failed)
		kept := []counterfoil.Record{
			f.standing(counterfoil.Failed),
			f.past(counterfoil.Failed, func(w *counterfoil.Write) { w.Record.Holds = []counterfoil.Hold{hold(f.now())} }),
			f.past(counterfoil.Failed, func(w *counterfoil.Write) { w.Stamps.Horizon = counterfoil.Delay{} }),
		}
		r := f.sweep(counterfoil.SweepOrder{})
		if r.FailedDeleted != 1 || r.TombstonesDeleted != 0 || r.Announced != 0 || r.Kept["hold"] != 1 {
			f.Fatalf("report: got %+v", r)
		}
		f.gone(gone.ID)
		for _, k := range kept {
			f.same(k)
		}
		if m, _ := f.forgotten(); m.Rev != 0 {
			f.Fatal("a record proved to have had no effect raised F")
		}
	}},

	{"P10 clocks that differ too much delete nothing", func(f *fixture) {
		want := []counterfoil.Record{f.past(counterfoil.Tombstone), f.past(counterfoil.Failed), f.past(counterfoil.Announced)}
		for _, skew := range []time.Duration{-time.Hour, -counterfoil.MaxClockSkew - time.Second, counterfoil.MaxClockSkew + 10*time.Second, 10 * 365 * 24 * time.Hour} {
			_, err := f.store.Sweep(f.ctx, counterfoil.SweepOrder{Now: f.now().Add(skew)})
			f.is(err, counterfoil.ErrClockSkew, "Sweep with a clock off by "+skew.String())
			for _, r := range want {
				f.same(r)
			}
		}
		if m, _ := f.forgotten(); m.Rev != 0 {
			f.Fatal("a refused sweep raised F")
		}
		f.sweep(counterfoil.SweepOrder{Now: f.now()})
		if left := f.all(counterfoil.Query{}); len(left) != 0 {
			f.Fatalf("with clocks that agree %d records were left", len(left))
		}
	}},

	{"P10 the earlier of two clocks decides", func(f *fixture) {
		r := f.standing(counterfoil.Tombstone, func(w *counterfoil.Write) { w.Stamps.Horizon = counterfoil.In(-20 * time.Second) })
		f.sweep(counterfoil.SweepOrder{Now: f.now().Add(-45 * time.Second)})
		f.same(r)
		soon := f.standing(counterfoil.Tombstone, func(w *counterfoil.Write) { w.Stamps.Horizon = counterfoil.In(40 * time.Second) })
		f.sweep(counterfoil.SweepOrder{Now: f.now().Add(45 * time.Second)})
		f.same(soon)
		f.gone(r.ID)
		// The grace is the store's own time, and none is none.
		long := f.past(counterfoil.Tombstone)
		f.sweep(counterfoil.SweepOrder{Now: f.now().Add(-45 * time.Second)})
		f.gone(long.ID)
	}},

	{"a sweep loses no write made beside it", func(f *fixture) {
		const n = 60
		var rs []counterfoil.Record
		for range n {
			rs = append(rs, f.standing(counterfoil.Completed, func(w *counterfoil.Write) { w.Stamps.ReplayUntil = counterfoil.In(-time.Hour) }))
		}
		together(2, func(i int) {
			if i == 0 {
				for range 4 {
					if _, err := f.store.Sweep(f.ctx, counterfoil.SweepOrder{Limit: n / 2}); err != nil {
						f.Error(err)
					}
				}
				return
			}
			for j, r := range rs {
				w := next(r)
				w.Record.Policy = 7
				snap, err := f.store.Update(f.ctx, w)
				if err == nil {
					rs[j] = snap.Record
				} else if !lost(err) && !errors.Is(err, counterfoil.ErrFenced) {
					f.Error(err)
				}
			}
		})
		f.sweep(counterfoil.SweepOrder{})
		for _, r := range rs {
			got := f.get(r.ID)
			if got.State != counterfoil.Tombstone || got.Policy != r.Policy {
				f.Fatalf("got %s of policy %d, want a tombstone of policy %d", got.State, got.Policy, r.Policy)
			}
		}
	}},
}
