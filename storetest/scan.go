package storetest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
)

var scanTests = []test{
	{"Scan finds what the query selects and nothing else", func(f *fixture) {
		now := f.now()
		var made []counterfoil.Record
		for i := range 60 {
			r := f.claim(func(d *counterfoil.Draft) {
				d.Record.Operation = []counterfoil.OperationNumber{opPay, opRefund}[i%2]
				d.Record.Principal = []counterfoil.PrincipalDigest{alice, bob, {}}[i%3]
				d.Stamps.CreatedAt = counterfoil.In(-time.Duration(i%5) * time.Hour)
			})
			if s := states[i%len(states)]; s != counterfoil.InProgress {
				r = f.update(r, func(w *counterfoil.Write) { settle(w, s) })
			}
			made = append(made, r)
		}
		for _, q := range []counterfoil.Query{
			{},
			{Operation: opPay},
			{Operation: opRefund, State: counterfoil.Unknown},
			{Operation: 77},
			{State: counterfoil.InProgress},
			{State: counterfoil.Announced},
			{Principal: bob},
			{Principal: counterfoil.PrincipalDigest{9}},
			{Principal: alice, State: counterfoil.Tombstone, Operation: opPay},
			{CreatedBefore: now.Add(-150 * time.Minute)},
			{CreatedBefore: made[1].CreatedAt, Principal: bob}, // strictly before
			{CreatedBefore: now.Add(-1000 * time.Hour)},
		} {
			var want []counterfoil.Record
			for _, r := range made {
				if q.Matches(&r) {
					want = append(want, r)
				}
			}
			for _, q.Limit = range []int{1, 7, 60, 1000, 0} {
				if got := f.all(q); !slices.Equal(ids(got), ids(want)) {
					f.Fatalf("%+v: got %d records, want %d", q, len(got), len(want))
				}
			}
		}
		for _, r := range f.all(counterfoil.Query{}) {
			f.same(r)
		}
	}},

	{"Scan of nothing ends at once", func(f *fixture) {
		page, err := f.store.Scan(f.ctx, counterfoil.Query{Page: counterfoil.Page{Limit: 5}})
		f.ok(err)
		if len(page.Records) != 0 || page.Next != nil || page.AsOf.IsZero() {
			f.Fatalf("empty store: got %+v", page)
		}
	}},

	{"Scan shows what stands still once, and invents nothing, while others change", func(f *fixture) {
		still := make(map[counterfoil.ID]int)
		for range 100 {
			still[f.standing(counterfoil.Completed).ID] = 0
		}
		moving := make(map[counterfoil.ID]bool)
		var drafts []*counterfoil.Draft
		for range 300 {
			d := f.draft()
			drafts = append(drafts, d)
			moving[d.Record.ID] = true
		}
		var done atomic.Bool
		together(3, func(i int) {
			switch i {
			case 0: // comes
				defer done.Store(true)
				for _, d := range drafts {
					st, err := f.store.Create(f.ctx, d)
					if err != nil {
						f.Error(err)
						return
					}
					w := next(st.Record)
					entomb(w, -time.Hour)
					if _, err := f.store.Update(f.ctx, w); err != nil {
						f.Error(err)
					}
				}
			case 1: // and goes
				for !done.Load() {
					if _, err := f.store.Sweep(f.ctx, counterfoil.SweepOrder{Limit: 17}); err != nil {
						f.Error(err)
					}
				}
			case 2:
				for pass := 1; !done.Load() || pass == 1; pass++ {
					for _, r := range f.all(counterfoil.Query{Page: counterfoil.Page{Limit: 7}}) {
						_, known := still[r.ID]
						if !known && !moving[r.ID] {
							f.Errorf("Scan invented record %s", r.ID)
						}
						if known {
							still[r.ID]++
						}
					}
					for id, n := range still {
						if n != pass {
							f.Errorf("pass %d: record %s, which stood still, was seen %d times", pass, id, n)
							return
						}
					}
				}
			}
		})
	}},

	{"P15 a cursor from nowhere is refused or harmless", func(f *fixture) {
		r := f.claim(lapsedBy(time.Hour))
		for _, junk := range [][]byte{{0}, []byte("not a cursor"), make([]byte, 300)} {
			p := counterfoil.Page{Limit: 5, Cursor: junk}
			f.store.Scan(f.ctx, counterfoil.Query{Page: p})
			f.store.Overdue(f.ctx, p)
			f.store.Sweep(f.ctx, counterfoil.SweepOrder{Cursor: junk})
			f.same(r)
		}
	}},
}
