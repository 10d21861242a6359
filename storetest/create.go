package storetest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
)

var createTests = []test{
	{"Create inserts once and then answers with what stands", func(f *fixture) {
		before := f.now()
		d := f.draft()
		kept := d.Record.Clone()
		st, err := f.store.Create(f.ctx, d)
		f.ok(err)
		if !st.Created || st.OverQuota || !st.Forgotten.IsZero() || st.Record.Rev != 1 {
			f.Fatalf("Create of a new ID: got %+v, want it created at rev 1", st)
		}
		if st.AsOf.Before(before) || st.Record.CreatedAt.Before(before) || st.Record.CreatedAt.After(st.AsOf) {
			f.Fatalf("created at %s as of %s, want both at or after %s", st.Record.CreatedAt, st.AsOf, before)
		}
		if g := diff(d.Record, kept); g != "" {
			f.Fatalf("Create changed the caller's draft:\n%s", g)
		}
		f.same(st.Record)

		other := f.draft()
		other.Record.ID, other.Record.Principal, other.Record.Operation = d.Record.ID, bob, opRefund
		again, err := f.store.Create(f.ctx, other)
		f.ok(err)
		if again.Created {
			f.Fatal("Create of a standing ID: got it created twice")
		}
		if g := diff(again.Record, st.Record); g != "" {
			f.Fatalf("Create of a standing ID answered with another record:\n%s", g)
		}
		f.same(st.Record)
	}},

	{"C29 claim is atomic", func(f *fixture) {
		const callers = 8
		for round := range f.rounds(1000) {
			id := f.newID()
			drafts := make([]*counterfoil.Draft, callers)
			got := make([]counterfoil.Standing, callers)
			errs := make([]error, callers)
			for i := range drafts {
				drafts[i] = f.draft()
				drafts[i].Record.ID = id
			}
			together(callers, func(i int) { got[i], errs[i] = f.store.Create(f.ctx, drafts[i]) })
			winner := -1
			for i, st := range got {
				f.ok(errs[i])
				if !st.Created {
					continue
				}
				if winner >= 0 {
					f.Fatalf("round %d: callers %d and %d both created one ID", round, winner, i)
				}
				winner = i
			}
			if winner < 0 {
				f.Fatalf("round %d: nobody created the ID", round)
			}
			for i, st := range got {
				if st.Record.Token != drafts[winner].Record.Token {
					f.Fatalf("round %d: caller %d was shown another record than the winner's", round, i)
				}
			}
		}
	}},

	{"C73 one's own token is a success", func(f *fixture) {
		d := f.draft()
		r := f.create(d)
		again, err := f.store.Create(f.ctx, d)
		f.ok(err)
		if !again.Created {
			f.Fatal("Create tried again with its own token: got a foreign claim, want one's own")
		}
		if g := diff(again.Record, r); g != "" {
			f.Fatalf("Create tried again changed the record:\n%s", g)
		}
		r = f.update(r, func(w *counterfoil.Write) {
			w.Record.Dispatched = true
			w.Stamps.LastDispatch = counterfoil.In(0)
		})
		again, err = f.store.Create(f.ctx, d)
		f.ok(err)
		if g := diff(again.Record, r); !again.Created || g != "" {
			f.Fatalf("own token, record moved on: got created %t and\n%s", again.Created, g)
		}
		d.Record.Token = counterfoil.NewToken()
		if again, err = f.store.Create(f.ctx, d); err != nil || again.Created {
			f.Fatalf("another token: got created %t and error %v", again.Created, err)
		}
	}},

	{"C73 no token is nobody's", func(f *fixture) {
		r := f.standing(counterfoil.Tombstone)
		d := f.draft()
		d.Record.ID, d.Record.Token = r.ID, counterfoil.Token{}
		st, err := f.store.Create(f.ctx, d)
		if err != nil {
			return // a draft without a token may be refused
		}
		if st.Created {
			f.Fatal("a draft without a token took a tombstone for its own claim")
		}
		f.same(r)
	}},

	{"C72 no in-progress record without a deadline", func(f *fixture) {
		d := f.draft()
		d.Stamps.LeaseUntil = counterfoil.Delay{}
		if st, err := f.store.Create(f.ctx, d); err == nil {
			f.Fatalf("Create of a claim without a lease: got %+v, want an error", st)
		}
		f.gone(d.Record.ID)
		r := f.claim()
		w := next(r)
		w.Record.LeaseUntil = time.Time{}
		if _, err := f.store.Update(f.ctx, w); err == nil {
			f.Fatal("Update that takes the lease away: got no error")
		}
		f.same(r)

		// Nobody ever sees one, not even for a moment.
		var done atomic.Bool
		together(5, func(i int) {
			if i > 0 {
				for range 50 {
					f.store.Create(f.ctx, f.draft())
				}
				done.Store(true)
				return
			}
			for !done.Load() {
				f.leases()
			}
		})
	}},

	{"C72 no record without a state", func(f *fixture) {
		d := f.draft()
		d.Record.State = counterfoil.Absent
		if _, err := f.store.Create(f.ctx, d); err == nil {
			f.Fatal("Create of an absent record: got no error")
		}
		f.gone(d.Record.ID)
		r := f.claim()
		w := next(r)
		w.Record.State = counterfoil.Absent
		if _, err := f.store.Update(f.ctx, w); err == nil {
			f.Fatal("Update to an absent record: got no error")
		}
		f.same(r)
	}},

	{"C26 durations are kept in their unit and never end early", func(f *fixture) {
		for _, d := range []time.Duration{1500 * time.Millisecond, 90 * time.Second, 36 * time.Hour, 400 * 24 * time.Hour, 1500*time.Millisecond + 1} {
			before := f.now()
			r := f.claim(func(w *counterfoil.Draft) { w.Stamps.LeaseUntil = counterfoil.In(d) })
			after := f.now().Add(time.Millisecond) // f.now is cut to the millisecond
			lo, hi := before.Add(d), after.Add(d+time.Millisecond)
			if r.LeaseUntil.Before(lo) || r.LeaseUntil.After(hi) {
				f.Errorf("lease of %s: got until %s, want between %s and %s", d, r.LeaseUntil, lo, hi)
			}
			if r.LeaseUntil.Before(r.CreatedAt.Add(d)) {
				f.Errorf("lease of %s: ends %s after creation", d, r.LeaseUntil.Sub(r.CreatedAt))
			}
		}
	}},

	{"C35 instants are the store's and not the caller's", func(f *fixture) {
		d := f.draft()
		ahead := f.now().Add(1000 * time.Hour)
		d.Record.CreatedAt, d.Record.ClaimedAt, d.Record.LeaseUntil = ahead, ahead, ahead
		r := f.create(d)
		for _, at := range []time.Time{r.CreatedAt, r.ClaimedAt, r.LeaseUntil} {
			if at.After(ahead.Add(-time.Hour)) {
				f.Fatalf("got an instant %s from the caller's clock", at)
			}
		}
		r = f.update(r, func(w *counterfoil.Write) {
			w.Record.LeaseUntil, w.Record.SettledAt = ahead, ahead
			w.Stamps.LeaseUntil, w.Stamps.SettledAt = counterfoil.In(time.Minute), counterfoil.In(0)
		})
		if r.LeaseUntil.After(ahead.Add(-time.Hour)) || r.SettledAt.After(ahead.Add(-time.Hour)) {
			f.Fatalf("lease until %s and settled at %s come from the caller's clock", r.LeaseUntil, r.SettledAt)
		}
		f.same(r)
	}},

	{"P7 IDs with shared prefixes are different records", func(f *fixture) {
		base := f.newID()
		var ids []counterfoil.ID
		for _, i := range []int{0, 9, 19} {
			for _, v := range []byte{0x00, 0x01, 0x7f, 0x80, 0xff} {
				id := base
				id[i] = v
				ids = append(ids, id)
			}
		}
		ids = append(ids, counterfoil.ID{}, counterfoil.ID{19: 1})
		slices.SortFunc(ids, counterfoil.ID.Compare)
		ids = slices.Compact(ids)
		want := make(map[counterfoil.ID]counterfoil.Record)
		for _, id := range ids {
			r := f.claim(func(d *counterfoil.Draft) { d.Record.ID = id })
			want[id] = f.update(r, func(w *counterfoil.Write) {
				settle(w, counterfoil.Completed)
				w.Response = []byte("response of " + id.String())
			})
		}
		for _, id := range ids {
			f.same(want[id])
			f.response(want[id], []byte("response of "+id.String()))
		}
		if got := len(f.all(counterfoil.Query{Page: counterfoil.Page{Limit: 3}})); got != len(ids) {
			f.Fatalf("Scan: got %d records, want %d", got, len(ids))
		}
		// Taking one away takes no neighbour with it.
		doomed := f.update(want[ids[2]], func(w *counterfoil.Write) { entomb(w, -time.Hour) })
		f.sweep(counterfoil.SweepOrder{})
		f.gone(doomed.ID)
		for _, id := range ids {
			if id != doomed.ID {
				f.same(want[id])
			}
		}
	}},
}

// leases wants every record in progress to have a lease.
func (f *fixture) leases() {
	f.Helper()
	page, err := f.store.Scan(f.ctx, counterfoil.Query{State: counterfoil.InProgress})
	if err != nil {
		f.Error(err)
		return
	}
	for _, r := range page.Records {
		if r.LeaseUntil.IsZero() {
			f.Errorf("record %s is in progress without a lease", r.ID)
		}
	}
}
