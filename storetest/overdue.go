package storetest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
)

// overdue returns every overdue record, page by page, and wants each page in
// order and within its limit.
func (f *fixture) overdue(limit int) []counterfoil.Record {
	f.Helper()
	q := counterfoil.Page{Limit: limit}
	var out []counterfoil.Record
	for range 100_000 {
		page, err := f.store.Overdue(f.ctx, q)
		f.ok(err)
		if limit > 0 && len(page.Records) > limit {
			f.Fatalf("Overdue: got %d records on a page of %d", len(page.Records), limit)
		}
		for i, r := range page.Records {
			if !r.Lapsed(page.AsOf) {
				f.Fatalf("Overdue as of %s: got a record %s with its lease until %s", page.AsOf, r.State, r.LeaseUntil)
			}
			if i > 0 && r.LeaseUntil.Before(page.Records[i-1].LeaseUntil) {
				f.Fatalf("Overdue: lease until %s stands behind %s", r.LeaseUntil, page.Records[i-1].LeaseUntil)
			}
		}
		out = append(out, page.Records...)
		if page.Next == nil {
			return out
		}
		q.Cursor = page.Next
	}
	f.Fatal("Overdue does not come to an end")
	return nil
}

// ids are the sorted IDs of records.
func ids(rs []counterfoil.Record) []counterfoil.ID {
	out := make([]counterfoil.ID, len(rs))
	for i := range rs {
		out[i] = rs[i].ID
	}
	slices.SortFunc(out, counterfoil.ID.Compare)
	return out
}

// lapsedBy makes a draft whose lease is over since d.
func lapsedBy(d time.Duration) func(*counterfoil.Draft) {
	return func(w *counterfoil.Draft) { w.Stamps.LeaseUntil = counterfoil.In(-d) }
}

var overdueTests = []test{
	{"C74 equality is alive", func(f *fixture) {
		f.needsClock()
		r := f.claim()
		f.clock.Set(r.LeaseUntil.Add(-time.Millisecond))
		if got := f.overdue(10); len(got) != 0 {
			f.Fatal("a millisecond before the lease ends the claim is overdue")
		}
		f.clock.Set(r.LeaseUntil)
		if got := f.overdue(10); len(got) != 0 {
			f.Fatal("at the very end of its lease the claim is overdue")
		}
		f.clock.Advance(time.Millisecond)
		if got := f.overdue(10); len(got) != 1 || diff(got[0], r) != "" {
			f.Fatalf("a millisecond after its lease: got %d overdue, want the claim", len(got))
		}
	}},

	{"C25 a lapsed claim shows whatever its horizon", func(f *fixture) {
		lapsed := f.claim(lapsedBy(time.Millisecond), func(d *counterfoil.Draft) {
			d.Stamps.Horizon = counterfoil.In(24 * time.Hour)
		})
		f.claim()
		for _, s := range states[1:] {
			f.past(s)
		}
		got := f.overdue(0)
		if len(got) != 1 || diff(got[0], lapsed) != "" {
			f.Fatalf("got %d overdue records, want only the lapsed claim", len(got))
		}
		f.update(lapsed, func(w *counterfoil.Write) { settle(w, counterfoil.Unknown) })
		if got := f.overdue(0); len(got) != 0 {
			f.Fatalf("got %d overdue records after the last was dealt with", len(got))
		}
	}},

	{"C27 renewing takes a claim off the list", func(f *fixture) {
		r := f.claim(lapsedBy(time.Second))
		if len(f.overdue(0)) != 1 {
			f.Fatal("a lapsed claim is not overdue")
		}
		r = f.update(r, func(w *counterfoil.Write) { w.Stamps.LeaseUntil = counterfoil.In(time.Hour) })
		if len(f.overdue(0)) != 0 {
			f.Fatal("a renewed claim is overdue")
		}
		f.update(r, func(w *counterfoil.Write) { w.Stamps.LeaseUntil = counterfoil.In(-time.Minute) })
		if len(f.overdue(0)) != 1 {
			f.Fatal("a claim whose lease was cut short is not overdue")
		}
	}},

	{"overdue claims come in pages, each of them once", func(f *fixture) {
		var want []counterfoil.Record
		for i := range 23 {
			want = append(want, f.claim(lapsedBy(time.Duration(1+i%5)*time.Second))) // leases meet
			f.claim()
		}
		for _, limit := range []int{1, 2, 7, 23, 24, 1000, 0} {
			if got := f.overdue(limit); !slices.Equal(ids(got), ids(want)) {
				f.Fatalf("in pages of %d: got %d records, want %d", limit, len(got), len(want))
			}
		}
		empty := newFixture(f.T, f.o)
		if got := empty.overdue(5); len(got) != 0 {
			f.Fatalf("empty store: got %d overdue", len(got))
		}
	}},

	{"overdue claims can be dealt with page by page", func(f *fixture) {
		const n = 20
		for range n {
			f.claim(lapsedBy(time.Minute))
		}
		var done int
		for range 2 * n {
			page, err := f.store.Overdue(f.ctx, counterfoil.Page{Limit: 3})
			f.ok(err)
			if len(page.Records) == 0 && page.Next == nil {
				break
			}
			for _, r := range page.Records {
				f.update(r, func(w *counterfoil.Write) { settle(w, counterfoil.Unknown) })
				done++
			}
		}
		if done != n {
			f.Fatalf("dealt with %d of %d", done, n)
		}
	}},

	{"C74 two reconcilers never settle one claim twice", func(f *fixture) {
		const n, workers = 40, 4
		for range n {
			f.claim(lapsedBy(time.Minute))
		}
		var done atomic.Int64
		together(workers, func(int) {
			page, err := f.store.Overdue(f.ctx, counterfoil.Page{Limit: n})
			if err != nil {
				f.Error(err)
			}
			for _, r := range page.Records {
				w := next(r)
				settle(w, counterfoil.Unknown)
				_, err := f.store.Update(f.ctx, w)
				switch {
				case err == nil:
					done.Add(1)
				case !lost(err):
					f.Errorf("got %v, want ErrConflict or ErrBusy", err)
				}
			}
		})
		if done.Load() != n {
			f.Fatalf("%d claims were settled %d times", n, done.Load())
		}
	}},
}
