package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil"
)

var durableTests = []test{
	{"P2 P3 what was acknowledged is there after the store was opened again", func(f *fixture) {
		want := f.written()
		bodies := map[counterfoil.ID][]byte{}
		for _, n := range []int{0, 1, 1024, 1 << 20} {
			r := f.completed(noise(n))
			want, bodies[r.ID] = append(want, r), noise(n)
		}
		rev, err := f.store.SetMeta(f.ctx, "note", 0, []byte("kept"))
		f.ok(err)
		limit := f.now().Add(-time.Hour)
		f.forget(opPay, limit)
		info := f.store.Info()
		for range 3 {
			f.reopen()
			for _, r := range want {
				f.same(r)
				if body, ok := bodies[r.ID]; ok {
					f.response(r, body)
				}
			}
			if got := len(f.all(counterfoil.Query{})); got != len(want) {
				f.Fatalf("Scan: got %d records, want %d", got, len(want))
			}
			f.metaIs("note", rev, []byte("kept"))
			d := f.draft()
			d.Born = limit
			f.keptOut(d, limit)
			f.counted()
			if f.store.Info() != info {
				f.Fatalf("Info changed from %+v to %+v", info, f.store.Info())
			}
		}
		// What was claimed before is still claimed, and still its owner's.
		for _, r := range want[len(want)-4:] {
			d := f.draft()
			d.Record.ID = r.ID
			if st, err := f.store.Create(f.ctx, d); err != nil || st.Created {
				f.Fatalf("Create after opening again: got created %t and %v", st.Created, err)
			}
			f.update(r, func(w *counterfoil.Write) { w.Record.Policy = 9 })
		}
	}},

	{"P2 no claim of many callers is lost", func(f *fixture) {
		f.need(needReopen)
		const callers, each = 16, 25
		var mu sync.Mutex
		var want []counterfoil.Record
		for round := range 3 {
			together(callers, func(i int) {
				for n := range each {
					st, err := f.store.Create(f.ctx, f.draft())
					if err != nil {
						f.Error(err)
						return
					}
					r := st.Record
					if n%2 == 0 {
						w := next(r)
						settle(w, counterfoil.Completed)
						w.Response = fmt.Appendf(nil, "%d/%d/%d", round, i, n)
						snap, err := f.store.Update(f.ctx, w)
						if err != nil {
							f.Error(err)
							return
						}
						r = snap.Record
					}
					mu.Lock()
					want = append(want, r)
					mu.Unlock()
				}
			})
			f.reopen()
			for _, r := range want {
				f.same(r)
				if r.HasResponse {
					if _, err := f.store.Response(f.ctx, r.ID, r.Rev); err != nil {
						f.Fatal(err)
					}
				}
			}
		}
	}},

	{"deletions stay done, and quotas stay counted, over opening again", func(f *fixture) {
		f.need(needReopen)
		old := f.past(counterfoil.Tombstone)
		announced := f.past(counterfoil.Tombstone)
		f.claim(bounded(2))
		f.standing(counterfoil.Unknown)
		lapsed := f.claim(lapsedBy(time.Hour), func(d *counterfoil.Draft) { d.Record.Principal = bob })
		announced = f.update(announced, func(w *counterfoil.Write) { gate(w, "settlement", time.Hour) })
		f.sweep(counterfoil.SweepOrder{})
		f.reopen()
		f.gone(old.ID)
		f.same(announced)
		if got := f.limit(opPay); got.Before(old.CreatedAt) {
			f.Fatalf("F is %s after opening again; a record created %s was deleted", got, old.CreatedAt)
		}
		f.overQuota(alice, 2)
		if got := f.overdue(0); len(got) != 1 || got[0].ID != lapsed.ID {
			f.Fatalf("got %d overdue claims after opening again, want 1", len(got))
		}
	}},

	{"P10 time does not go back over opening again", func(f *fixture) {
		f.needsClock()
		f.need(needReopen)
		f.claim()
		f.clock.Advance(time.Hour)
		r := f.claim(lapsedBy(time.Millisecond))
		f.clock.Advance(-48 * time.Hour)
		f.reopen()
		// A store may know its last instant to the second only.
		if now := f.now(); now.Before(r.CreatedAt.Add(-time.Second)) {
			f.Fatalf("opened again with its clock set back: the store's time is %s, it was %s", now, r.CreatedAt)
		}
	}},
}
