package storetest

import (
	"maps"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil"
)

// recount works out what Stats should say from the records themselves.
func recount(rs []counterfoil.Record, asOf time.Time) map[counterfoil.OperationNumber]counterfoil.OperationStats {
	out := make(map[counterfoil.OperationNumber]counterfoil.OperationStats)
	for _, r := range rs {
		o := out[r.Operation]
		o.Records[r.State]++
		if r.Lapsed(asOf) {
			o.Overdue++
		}
		if r.State == counterfoil.Unknown && (o.OldestUnknown.IsZero() || r.CreatedAt.Before(o.OldestUnknown)) {
			o.OldestUnknown = r.CreatedAt
		}
		out[r.Operation] = o
	}
	return out
}

// counted wants Stats to agree with a recount.
func (f *fixture) counted() {
	f.Helper()
	got, err := f.store.Stats(f.ctx)
	f.ok(err)
	// An operation without records may be listed or not.
	maps.DeleteFunc(got.Operations, func(_ counterfoil.OperationNumber, o counterfoil.OperationStats) bool { return o.Total() == 0 })
	want := recount(f.all(counterfoil.Query{}), got.AsOf)
	for _, op := range slices.Concat(slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got.Operations))) {
		g, w := got.Operations[op], want[op]
		// Over a clock that runs, a lease may lapse between the two.
		if g.Records != w.Records || g.Overdue != w.Overdue && !f.o.OwnClock || !g.OldestUnknown.Equal(w.OldestUnknown) {
			f.Fatalf("Stats of operation %d:\n got %+v\nwant %+v", op, g, w)
		}
	}
	for kind, n := range got.Bytes {
		if n < 0 {
			f.Fatalf("Stats: %d bytes of %s", n, kind)
		}
	}
}

// invariants are what must hold after every test.
func (f *fixture) invariants() {
	f.Helper()
	if f.Failed() || f.Skipped() || f.spoilt {
		return
	}
	if _, err := f.store.Stats(f.ctx); counterfoil.Code(err) == "closed" {
		return
	}
	f.counted()
	seen := make(map[counterfoil.ID]bool)
	for _, r := range f.all(counterfoil.Query{}) {
		switch {
		case seen[r.ID]:
			f.Fatalf("record %s is listed twice", r.ID)
		case r.State == counterfoil.Absent || r.Rev == 0:
			f.Fatalf("record %s is %s at rev %d", r.ID, r.State, r.Rev)
		case r.State == counterfoil.InProgress && r.LeaseUntil.IsZero():
			f.Fatalf("record %s is in progress without a lease (cases.md C72)", r.ID)
		}
		seen[r.ID] = true
		f.same(r)
	}
}

var statsTests = []test{
	{"Stats are a recount, after every kind of change", func(f *fixture) {
		f.counted()
		for i := range 5 {
			for _, s := range states {
				f.standing(s)
				f.past(s, func(w *counterfoil.Write) {
					if i%2 == 0 {
						w.Record.Operation = opRefund
					}
					w.Response = []byte("x")
				})
			}
			f.claim(lapsedBy(time.Duration(i)*time.Hour+time.Second), func(d *counterfoil.Draft) {
				d.Stamps.CreatedAt = counterfoil.In(-time.Duration(i) * time.Hour)
			})
			f.counted()
			r := f.claim()
			r = f.update(r, func(w *counterfoil.Write) {
				settle(w, counterfoil.Unknown)
				w.Record.CreatedAt = r.CreatedAt.Add(-time.Duration(i) * time.Hour)
			})
			f.counted()
			f.update(r, func(w *counterfoil.Write) { settle(w, counterfoil.Completed); w.Response = []byte("y") })
			f.counted()
			f.pass(counterfoil.SweepOrder{Grace: time.Hour})
			f.counted()
			f.sweep(counterfoil.SweepOrder{})
			f.counted()
		}
	}},

	{"Stats count right beside callers", func(f *fixture) {
		together(8, func(i int) {
			for n := range 20 {
				d := f.draft()
				d.Record.Operation = counterfoil.OperationNumber(1 + i%3)
				st, err := f.store.Create(f.ctx, d)
				if err != nil {
					f.Error(err)
					return
				}
				w := next(st.Record)
				settle(w, states[1+n%4])
				if n%3 == 0 {
					w.Stamps.Horizon = counterfoil.In(-time.Hour)
				}
				if _, err := f.store.Update(f.ctx, w); err != nil {
					f.Error(err)
				}
				if n == 10 {
					f.store.Sweep(f.ctx, counterfoil.SweepOrder{Limit: 20})
				}
			}
		})
		f.counted()
	}},
}
