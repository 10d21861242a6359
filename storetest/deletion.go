package storetest

import (
	"errors"
	"time"

	"github.com/counterfoil/counterfoil"
)

var deletionTests = []test{
	{"a record is announced, answers for the grace, and goes", func(f *fixture) {
		f.needsClock()
		const grace = 3 * time.Minute
		r := f.past(counterfoil.Tombstone)
		report := f.sweep(counterfoil.SweepOrder{Grace: grace})
		if report.Announced != 1 || report.TombstonesDeleted != 0 {
			f.Fatalf("first sweep: got %+v", report)
		}
		got := f.get(r.ID)
		if got.State != counterfoil.Announced || got.AnnouncedAt.Before(Epoch) || got.Rev <= r.Rev {
			f.Fatalf("announced record: got %+v", got)
		}
		want := stub(r)
		want.State, want.AnnouncedAt = counterfoil.Announced, got.AnnouncedAt
		if g := diff(stub(got), want); g != "" {
			f.Fatalf("announcing lost part of the record:\n%s", g)
		}
		d := f.draft()
		d.Record.ID = r.ID
		if st, err := f.store.Create(f.ctx, d); err != nil || st.Created || st.Record.State != counterfoil.Announced {
			f.Fatalf("announced record: Create got %+v and %v", st, err)
		}
		f.clock.Set(got.AnnouncedAt.Add(grace - time.Millisecond))
		f.sweep(counterfoil.SweepOrder{Grace: grace})
		f.same(got)
		f.clock.Advance(time.Millisecond)
		if report = f.sweep(counterfoil.SweepOrder{Grace: grace}); report.TombstonesDeleted != 1 || report.Announced != 0 {
			f.Fatalf("after the grace: got %+v", report)
		}
		f.gone(r.ID)
	}},

	{"the grace counts from the announcement", func(f *fixture) {
		old, fresh := f.past(counterfoil.Announced), f.past(counterfoil.Tombstone)
		r := f.sweep(counterfoil.SweepOrder{Grace: time.Minute})
		if r.Announced != 1 || r.TombstonesDeleted != 1 {
			f.Fatalf("report: got %+v", r)
		}
		f.gone(old.ID)
		if got := f.get(fresh.ID); got.State != counterfoil.Announced {
			f.Fatalf("fresh tombstone: got %s", got.State)
		}
	}},

	{"F is raised when a record is announced", func(f *fixture) {
		older := f.past(counterfoil.Tombstone)
		newer := f.past(counterfoil.Completed)
		f.claim() // open records raise nothing
		f.past(counterfoil.Tombstone, func(w *counterfoil.Write) { w.Record.Operation = opRefund })
		f.sweep(counterfoil.SweepOrder{Grace: time.Hour})
		_, known := f.forgotten()
		want := older.CreatedAt
		if newer.CreatedAt.After(want) {
			want = newer.CreatedAt
		}
		if !known[opPay].Equal(want) || known[opRefund].IsZero() || len(known) != 2 {
			f.Fatalf("F: got %v, want %s for operation %d, and one for %d", known, want, opPay, opRefund)
		}
		f.get(older.ID) // it still answers
		d := f.draft()
		d.Born = want
		f.keptOut(d, want)
	}},

	{"F is never behind a deletion", func(f *fixture) {
		// Whoever no longer finds the record finds F raised.
		for range f.rounds(100) {
			r := f.past(counterfoil.Tombstone)
			d := f.draft()
			d.Record.ID, d.Born = r.ID, r.CreatedAt
			var st counterfoil.Standing
			var err error
			together(2, func(i int) {
				if i == 0 {
					f.store.Sweep(f.ctx, counterfoil.SweepOrder{})
				} else {
					st, err = f.store.Create(f.ctx, d)
				}
			})
			f.ok(err)
			if st.Created || st.Forgotten.IsZero() && st.Record.ID != r.ID {
				f.Fatalf("beside its deletion the record was neither found nor forgotten: %+v", st)
			}
			f.sweep(counterfoil.SweepOrder{})
			f.keptOut(d, f.limit(opPay))
		}
	}},

	{"F written by a sweep is not lost to a writer who read before", func(f *fixture) {
		f.forget(opPay, f.now().Add(-100*time.Hour))
		m, known := f.forgotten()
		r := f.past(counterfoil.Tombstone)
		f.sweep(counterfoil.SweepOrder{Grace: time.Hour})
		known.Raise(opRefund, f.now())
		_, err := f.store.SetMeta(f.ctx, counterfoil.MetaForgotten, m.Rev, known.Encode())
		f.is(err, counterfoil.ErrConflict, "SetMeta of F on the rev before the sweep")
		if got := f.limit(opPay); got.Before(r.CreatedAt) {
			f.Fatalf("F is %s; a record created %s is announced", got, r.CreatedAt)
		}
	}},

	{"P11 gates and holds keep records, and are counted", func(f *fixture) {
		now := f.now()
		gated := func(name string) func(*counterfoil.Write) {
			return func(w *counterfoil.Write) { gate(w, name, time.Hour) }
		}
		held := func(w *counterfoil.Write) { w.Record.Holds = []counterfoil.Hold{hold(now)} }
		kept := []counterfoil.Record{
			f.past(counterfoil.Tombstone, gated("settlement")),
			f.past(counterfoil.Tombstone, gated("settlement")),
			f.past(counterfoil.Announced, gated("provider_reference")),
			f.past(counterfoil.Tombstone, held),
			f.past(counterfoil.Announced, held),
			f.past(counterfoil.Tombstone, held, gated("settlement")), // the hold is named first
		}
		event := f.past(counterfoil.Completed, func(w *counterfoil.Write) {
			w.Record.Gates = []counterfoil.Gate{{Name: "shut", Until: now.Add(-time.Hour)}, {Name: "open", Until: now.Add(time.Hour)}}
		})
		free := f.past(counterfoil.Tombstone, func(w *counterfoil.Write) { gate(w, "shut", -time.Millisecond) })
		f.standing(counterfoil.Tombstone, gated("not_yet")) // its horizon keeps it: not counted
		r := f.sweep(counterfoil.SweepOrder{})
		f.gone(free.ID)
		for _, k := range kept {
			f.same(k)
		}
		if got := f.get(event.ID); got.State != counterfoil.Tombstone {
			f.Fatalf("gated record past its replay: got %s, want a tombstone", got.State)
		}
		want := map[string]int{"settlement": 2, "provider_reference": 1, "hold": 3, "open": 1}
		for name, n := range want {
			if r.Kept[name] != n {
				f.Errorf("kept by %s: got %d, want %d", name, r.Kept[name], n)
			}
		}
		if len(r.Kept) != len(want) || r.TombstonesDeleted != 1 {
			f.Errorf("report: got %+v", r)
		}
	}},

	{"P11 a record held or lengthened after it was announced stays", func(f *fixture) {
		now := f.now()
		for name, keep := range map[string]func(*counterfoil.Write){
			"held, back as a tombstone": func(w *counterfoil.Write) {
				w.Record.State, w.Record.AnnouncedAt = counterfoil.Tombstone, time.Time{}
				w.Record.Holds = []counterfoil.Hold{hold(now)}
			},
			"held as it is":             func(w *counterfoil.Write) { w.Record.Holds = []counterfoil.Hold{hold(now)} },
			"horizon lengthened":        func(w *counterfoil.Write) { w.Stamps.Horizon = counterfoil.In(time.Hour) },
			"gate lengthened":           func(w *counterfoil.Write) { gate(w, "settlement", time.Hour) },
			"lengthened, as tombstone":  func(w *counterfoil.Write) { entomb(w, time.Hour) },
			"reopened by a late: count": reopen,
		} {
			r := f.update(f.past(counterfoil.Announced), keep)
			f.sweep(counterfoil.SweepOrder{})
			if got := f.get(r.ID); diff(got, r) != "" {
				f.Fatalf("%s: the sweep changed the record:\n%s", name, diff(got, r))
			}
		}
	}},

	{"P11 a hold wins against the deletion, or comes too late and is told so", func(f *fixture) {
		var won int
		for range f.rounds(300) {
			r := f.past(counterfoil.Announced)
			var err error
			together(2, func(i int) {
				if i == 0 {
					f.store.Sweep(f.ctx, counterfoil.SweepOrder{})
					return
				}
				w := next(r)
				w.Record.State = counterfoil.Tombstone
				w.Record.Holds = []counterfoil.Hold{{Actor: "ops", Reason: "race"}}
				_, err = f.store.Update(f.ctx, w)
			})
			if err != nil {
				f.is(err, counterfoil.ErrNotFound, "hold beside the deletion")
				f.gone(r.ID)
				continue
			}
			won++
			f.pass(counterfoil.SweepOrder{})
			if got := f.get(r.ID); len(got.Holds) != 1 {
				f.Fatalf("the hold was lost: got %+v", got)
			}
		}
		f.Logf("the hold won %d times", won)
	}},

	{"P11 a settled record without a horizon is never deleted", func(f *fixture) {
		now := f.now()
		for _, s := range []counterfoil.State{counterfoil.Completed, counterfoil.Tombstone, counterfoil.Announced} {
			f.past(s, func(w *counterfoil.Write) {
				w.Stamps.Horizon = counterfoil.Delay{}
				if s == counterfoil.Announced {
					w.Record.AnnouncedAt = now.Add(-time.Hour)
				}
			})
		}
		f.sweep(counterfoil.SweepOrder{})
		if left := f.all(counterfoil.Query{}); len(left) != 3 {
			f.Fatalf("got %d records left, want 3", len(left))
		}
	}},

	{"an ID whose record was deleted can be used again", func(f *fixture) {
		r := f.past(counterfoil.Tombstone)
		f.sweep(counterfoil.SweepOrder{})
		again := f.claim(func(d *counterfoil.Draft) { d.Record.ID = r.ID })
		if again.Rev != 1 || again.HasResponse {
			f.Fatalf("new record in an old place: got %+v", again)
		}
		w := next(r)
		_, err := f.store.Update(f.ctx, w)
		if !errors.Is(err, counterfoil.ErrFenced) && !lost(err) {
			f.Fatalf("write on the deleted record: got %v", err)
		}
		f.same(again)
	}},
}
