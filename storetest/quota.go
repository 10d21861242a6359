package storetest

import (
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
)

// bounded makes a draft subject to a quota.
func bounded(n int) func(*counterfoil.Draft) {
	return func(d *counterfoil.Draft) { d.MaxOpen = n }
}

// overQuota wants Create to refuse one more record of principal p.
func (f *fixture) overQuota(p counterfoil.PrincipalDigest, n int) {
	f.Helper()
	d := f.draft()
	d.Record.Principal, d.MaxOpen = p, n
	st, err := f.store.Create(f.ctx, d)
	f.ok(err)
	if st.Created || !st.OverQuota {
		f.Fatalf("record %d of a quota of %d: got created %t, over quota %t", n+1, n, st.Created, st.OverQuota)
	}
	f.gone(d.Record.ID)
}

var quotaTests = []test{
	{"P13 a principal over quota is refused and loses nothing", func(f *fixture) {
		first, second := f.claim(bounded(2)), f.claim(bounded(2))
		f.overQuota(alice, 2)
		f.same(first)
		f.same(second)
		f.claim(bounded(2), func(d *counterfoil.Draft) { d.Record.Principal = bob })
		f.claim(bounded(3))
		f.claim() // no bound
	}},

	{"P13 open records count, whatever their operation", func(f *fixture) {
		f.standing(counterfoil.InProgress)
		f.standing(counterfoil.Unknown)
		for _, s := range []counterfoil.State{counterfoil.Failed, counterfoil.Completed, counterfoil.Tombstone, counterfoil.Announced} {
			f.standing(s)
		}
		f.overQuota(alice, 2)
		f.claim(bounded(3), func(d *counterfoil.Draft) { d.Record.Operation = opRefund })
		f.overQuota(alice, 3)
	}},

	{"P13 settling makes room", func(f *fixture) {
		r := f.claim(bounded(1))
		f.overQuota(alice, 1)
		r = f.update(r, func(w *counterfoil.Write) { settle(w, counterfoil.Unknown) })
		f.overQuota(alice, 1)
		f.update(r, func(w *counterfoil.Write) { settle(w, counterfoil.Completed) })
		f.claim(bounded(1))
		f.overQuota(alice, 1)
	}},

	{"P13 a key that stands is answered before the quota is looked at", func(f *fixture) {
		d := f.draft()
		d.MaxOpen = 1
		f.create(d)
		st, err := f.store.Create(f.ctx, d)
		if f.ok(err); !st.Created || st.OverQuota {
			f.Fatalf("own record at the bound: got created %t, over quota %t", st.Created, st.OverQuota)
		}
		d.Record.Token = counterfoil.NewToken()
		st, err = f.store.Create(f.ctx, d)
		if f.ok(err); st.Created || st.OverQuota || st.Record.ID != d.Record.ID {
			f.Fatalf("standing record at the bound: got %+v", st)
		}
	}},

	{"P13 a write that opens a record is bounded, one that keeps it open is not", func(f *fixture) {
		failed := f.standing(counterfoil.Failed)
		open := f.claim(bounded(1))
		w := next(failed)
		w.Record.State, w.Record.Token, w.MaxOpen = counterfoil.InProgress, counterfoil.NewToken(), 1
		w.Stamps.LeaseUntil = counterfoil.In(time.Minute)
		_, err := f.store.Update(f.ctx, w)
		f.is(err, counterfoil.ErrOverQuota, "Update that opens one too many")
		f.same(failed)

		open = f.update(open, func(w *counterfoil.Write) {
			w.MaxOpen = 1
			w.Stamps.LeaseUntil = counterfoil.In(time.Hour)
		})
		f.update(open, func(w *counterfoil.Write) {
			w.MaxOpen = 1
			settle(w, counterfoil.Failed)
		})
		f.update(failed, func(v *counterfoil.Write) { *v = *w })
		f.overQuota(alice, 1)
	}},

	{"P13 callers at once do not pass the bound", func(f *fixture) {
		const callers, bound = 64, 10
		drafts := make([]*counterfoil.Draft, callers)
		for i := range drafts {
			drafts[i] = f.draft()
			drafts[i].MaxOpen = bound
		}
		var created, refused atomic.Int64
		together(callers, func(i int) {
			st, err := f.store.Create(f.ctx, drafts[i])
			switch {
			case err != nil:
				f.Error(err)
			case st.Created:
				created.Add(1)
			case st.OverQuota:
				refused.Add(1)
			}
		})
		if created.Load() != bound || refused.Load() != callers-bound {
			f.Fatalf("got %d created and %d over quota, want %d and %d", created.Load(), refused.Load(), bound, callers-bound)
		}
	}},
}
