package storetest

import (
	"time"

	"github.com/counterfoil/counterfoil"
)

// forget raises F of one operation.
func (f *fixture) forget(op counterfoil.OperationNumber, t time.Time) {
	f.Helper()
	for range 100 {
		m, known := f.forgotten()
		known.Raise(op, t)
		_, err := f.store.SetMeta(f.ctx, counterfoil.MetaForgotten, m.Rev, known.Encode())
		if err == nil {
			return
		}
		f.is(err, counterfoil.ErrConflict, "SetMeta of F")
	}
	f.Fatal("F cannot be raised")
}

// forgotten reads F; the zero Meta and an empty F when it was never set.
func (f *fixture) forgotten() (counterfoil.Meta, counterfoil.Forgotten) {
	f.Helper()
	m, err := f.store.Meta(f.ctx, counterfoil.MetaForgotten)
	if counterfoil.Code(err) == "not-found" {
		return counterfoil.Meta{}, counterfoil.Forgotten{}
	}
	f.ok(err)
	known, err := counterfoil.DecodeForgotten(m.Value)
	f.ok(err)
	return m, known
}

// keptOut wants Create to refuse the draft because of F.
func (f *fixture) keptOut(d *counterfoil.Draft, limit time.Time) {
	f.Helper()
	st, err := f.store.Create(f.ctx, d)
	f.ok(err)
	if st.Created || st.OverQuota || !st.Forgotten.Equal(limit) {
		f.Fatalf("key born %s, F %s: got created %t, over quota %t, forgotten %s",
			d.Born, limit, st.Created, st.OverQuota, st.Forgotten)
	}
	f.gone(d.Record.ID)
}

var forgottenTests = []test{
	{"F keeps a key out that was not born after it", func(f *fixture) {
		limit := f.now().Add(-time.Hour)
		f.forget(opPay, limit)
		d := f.draft()
		for _, born := range []time.Time{limit.Add(-24 * time.Hour), limit.Add(-time.Millisecond), limit} {
			d.Born = born
			f.keptOut(d, limit)
		}
		d.Born = limit.Add(time.Millisecond)
		f.create(d)

		undated := f.draft()
		f.create(undated)
		other := f.draft()
		other.Record.Operation, other.Born = opRefund, limit.Add(-time.Hour)
		f.create(other)
	}},

	{"F of the kin keeps a key out too", func(f *fixture) {
		limit := f.now().Add(-time.Hour)
		f.forget(opRefund, limit)
		d := f.draft()
		d.Born, d.Kin = limit.Add(-time.Minute), []counterfoil.OperationNumber{opRefund}
		f.keptOut(d, limit)
		f.forget(opPay, limit.Add(time.Minute)) // the later of the two counts
		d.Born = limit.Add(time.Minute)
		f.keptOut(d, limit.Add(time.Minute))
		d.Born = limit.Add(time.Minute + time.Millisecond)
		f.create(d)
	}},

	{"F is asked only where nothing stands", func(f *fixture) {
		d := f.draft()
		r := f.create(d)
		f.forget(opPay, f.now().Add(time.Hour))
		d.Born = f.now()
		st, err := f.store.Create(f.ctx, d)
		f.ok(err)
		if g := diff(st.Record, r); !st.Created || !st.Forgotten.IsZero() || g != "" {
			f.Fatalf("own record behind F: got created %t, forgotten %s\n%s", st.Created, st.Forgotten, g)
		}
		d.Record.Token = counterfoil.NewToken()
		st, err = f.store.Create(f.ctx, d)
		f.ok(err)
		if st.Created || !st.Forgotten.IsZero() || st.Record.ID != r.ID {
			f.Fatalf("standing record behind F: got %+v", st)
		}
	}},

	{"a key too old is told so before it is told to wait", func(f *fixture) {
		f.claim()
		limit := f.now()
		f.forget(opPay, limit)
		d := f.draft()
		d.MaxOpen, d.Born = 1, limit.Add(-time.Minute)
		f.keptOut(d, limit)
	}},

	{"F only grows", func(f *fixture) {
		limit := f.now().Add(-time.Hour)
		f.forget(opPay, limit)
		f.forget(opRefund, limit)
		m, _ := f.forgotten()
		lower := counterfoil.Forgotten{opPay: limit.Add(-48 * time.Hour)} // and opRefund left out
		// Refused or joined with what stands: but never lower than before.
		f.store.SetMeta(f.ctx, counterfoil.MetaForgotten, m.Rev, lower.Encode())
		_, known := f.forgotten()
		for _, op := range []counterfoil.OperationNumber{opPay, opRefund} {
			if known[op].Before(limit) {
				f.Fatalf("F of operation %d fell from %s to %s", op, limit, known[op])
			}
		}
		d := f.draft()
		d.Born = limit
		f.keptOut(d, limit)
	}},

	{"an unreadable F is never taken as empty", func(f *fixture) {
		limit := f.now()
		f.forget(opPay, limit)
		m, _ := f.forgotten()
		for _, junk := range [][]byte{nil, {9}, {1, 0x80}, []byte("later")} {
			if _, err := f.store.SetMeta(f.ctx, counterfoil.MetaForgotten, m.Rev, junk); err == nil {
				f.Fatalf("SetMeta of F to %q: got no error", junk)
			}
		}
		if after, known := f.forgotten(); after.Rev != m.Rev || !known[opPay].Equal(limit) {
			f.Fatalf("F is now %v at rev %d, want it as it was at rev %d", known, after.Rev, m.Rev)
		}
		d := f.draft()
		d.Born = limit
		f.keptOut(d, limit)
	}},

	{"F raised by another's SetMeta holds for the next Create", func(f *fixture) {
		// A key and F race: either the record was there first, or it is kept out.
		for range f.rounds(200) {
			d := f.draft()
			limit := f.now().Add(time.Second)
			d.Record.Operation = opRefund
			d.Born = limit
			var st counterfoil.Standing
			var err error
			together(2, func(i int) {
				if i == 0 {
					f.forget(opRefund, limit)
				} else {
					st, err = f.store.Create(f.ctx, d)
				}
			})
			f.ok(err)
			if st.Created == !st.Forgotten.IsZero() {
				f.Fatalf("got created %t and forgotten %s", st.Created, st.Forgotten)
			}
			d.Record.ID = f.newID()
			f.keptOut(d, f.limit(opRefund))
		}
	}},
}

// limit is F of one operation.
func (f *fixture) limit(op counterfoil.OperationNumber) time.Time {
	f.Helper()
	_, known := f.forgotten()
	return known[op]
}
