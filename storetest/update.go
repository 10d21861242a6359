package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

var updateTests = []test{
	{"Update replaces the record and raises its rev", func(f *fixture) {
		r := f.claim()
		w := next(r)
		settle(w, counterfoil.Completed)
		w.Record.Rev = 99 // ignored
		gate(w, "settlement", time.Hour)
		kept := w.Record.Clone()
		snap, err := f.store.Update(f.ctx, w)
		f.ok(err)
		if snap.Record.Rev != 2 || snap.Record.State != counterfoil.Completed || snap.AsOf.IsZero() {
			f.Fatalf("got %s at rev %d as of %s", snap.Record.State, snap.Record.Rev, snap.AsOf)
		}
		if len(snap.Record.Gates) != 1 || snap.Record.Gates[0].Until.Before(snap.Record.SettledAt.Add(time.Hour)) {
			f.Fatalf("gates: got %v", snap.Record.Gates)
		}
		if g := diff(w.Record, kept); g != "" {
			f.Fatalf("Update changed the caller's write:\n%s", g)
		}
		f.same(snap.Record)
		cleared := f.update(snap.Record, func(w *counterfoil.Write) { w.Stamps.Gates = []policy.Gate{} })
		if cleared.Rev != 3 || len(cleared.Gates) != 0 {
			f.Fatalf("gates cleared: got %v at rev %d", cleared.Gates, cleared.Rev)
		}
	}},

	{"Update of what is not there is ErrNotFound and inserts nothing", func(f *fixture) {
		d := f.draft()
		d.Record.LeaseUntil = f.now().Add(time.Minute)
		for _, rev := range []uint64{0, 1} {
			w := next(d.Record)
			w.IfRev = rev
			_, err := f.store.Update(f.ctx, w)
			f.is(err, counterfoil.ErrNotFound, "Update of an absent record")
			f.gone(d.Record.ID)
		}
	}},

	{"C67 completing a record loses no part of it", func(f *fixture) {
		full := f.fullRecord(counterfoil.InProgress)
		r := f.create(&counterfoil.Draft{Record: full})
		got := f.update(r, func(w *counterfoil.Write) {
			w.Record.State = counterfoil.Completed
			w.Response = []byte("done")
		})
		want := full
		want.State, want.Rev, want.HasResponse = counterfoil.Completed, 2, true
		if g := diff(got, want); g != "" {
			f.Fatalf("after completion:\n%s", g)
		}
		f.same(want)
	}},

	{"C86 the horizon counts from completion", func(f *fixture) {
		f.needsClock()
		r := f.claim()
		f.clock.Advance(5 * time.Second)
		r = f.update(r, func(w *counterfoil.Write) {
			settle(w, counterfoil.Completed)
			w.Stamps.ReplayUntil, w.Stamps.Horizon = counterfoil.In(3*time.Second), counterfoil.In(3*time.Second)
		})
		if want := Epoch.Add(8 * time.Second); !r.Horizon.Equal(want) || !r.SettledAt.Equal(Epoch.Add(5*time.Second)) {
			f.Fatalf("claimed at 0 s, completed at 5 s, kept for 3 s: got horizon %s, want %s", r.Horizon, want)
		}
		f.clock.Set(Epoch.Add(8*time.Second - time.Millisecond))
		f.sweep(counterfoil.SweepOrder{})
		f.same(r)
		f.clock.Advance(time.Millisecond)
		f.sweep(counterfoil.SweepOrder{})
		f.gone(r.ID)
	}},

	{"one of many writes on the same rev is done", func(f *fixture) {
		const callers = 8
		r := f.claim()
		for round := range f.rounds(100) {
			var won atomic.Int64
			var winner counterfoil.Record
			together(callers, func(i int) {
				w := next(r)
				w.Record.Attempt = uint32(round*callers + i)
				snap, err := f.store.Update(f.ctx, w)
				switch {
				case err == nil:
					won.Add(1)
					winner = snap.Record
				case !lost(err):
					f.Errorf("round %d: got %v, want ErrConflict or ErrBusy", round, err)
				}
			})
			if won.Load() != 1 || winner.Rev != r.Rev+1 {
				f.Fatalf("round %d: %d writes on rev %d were done; the last made rev %d", round, won.Load(), r.Rev, winner.Rev)
			}
			f.same(winner)
			r = winner
		}
	}},

	{"no write is lost between callers who read again", func(f *fixture) {
		const callers, each = 8, 20
		id := f.claim().ID
		together(callers, func(int) {
			for range each {
				if err := f.addOne(id); err != nil {
					f.Error(err)
					return
				}
			}
		})
		if r := f.get(id); r.Attempt != 1+callers*each || r.Rev != 1+callers*each {
			f.Fatalf("got count %d at rev %d, want both %d", r.Attempt, r.Rev, 1+callers*each)
		}
	}},

	{"C83 an expired record has one winner and needs no sweep", func(f *fixture) {
		const callers = 50
		old := f.past(counterfoil.Tombstone)
		st, err := f.store.Create(f.ctx, func() *counterfoil.Draft {
			d := f.draft()
			d.Record.ID = old.ID
			return d
		}())
		f.ok(err)
		if st.Created {
			f.Fatal("Create took a record past its time for absent")
		}
		var won atomic.Int64
		together(callers, func(int) {
			w := next(old)
			w.Record.State, w.Record.Attempt, w.Record.Token = counterfoil.InProgress, 1, counterfoil.NewToken()
			w.Stamps.LeaseUntil = counterfoil.In(time.Minute)
			_, err := f.store.Update(f.ctx, w)
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, counterfoil.ErrFenced):
				f.Errorf("got %v, want ErrFenced: the winner's token stands", err)
			}
		})
		if won.Load() != 1 {
			f.Fatalf("%d of %d callers reopened the record, want 1", won.Load(), callers)
		}
	}},

	{"what is handed in and out is copied", func(f *fixture) {
		d := &counterfoil.Draft{Record: f.fullRecord(counterfoil.InProgress)}
		want := d.Record.Clone()
		st, err := f.store.Create(f.ctx, d)
		f.ok(err)
		want.Rev, want.HasResponse = 1, false
		scribble(&d.Record)
		scribble(&st.Record)
		f.same(want)
		got := f.get(want.ID)
		scribble(&got)
		f.same(want)
		page, err := f.store.Scan(f.ctx, counterfoil.Query{})
		f.ok(err)
		scribble(&page.Records[0])
		f.same(want)

		body := []byte("the answer")
		w := next(want)
		w.Response = body
		snap, err := f.store.Update(f.ctx, w)
		f.ok(err)
		want.Rev, want.HasResponse = 2, true
		scribble(&w.Record)
		scribble(&snap.Record)
		body[0] = 'X'
		f.same(want)
		out, err := f.store.Response(f.ctx, want.ID, want.Rev)
		f.ok(err)
		out[0] = 'Y'
		f.response(want, []byte("the answer"))

		value := []byte("value")
		rev, err := f.store.SetMeta(f.ctx, "note", 0, value)
		f.ok(err)
		value[0] = 'X'
		m, err := f.store.Meta(f.ctx, "note")
		f.ok(err)
		m.Value[1] = 'Y'
		if m, err = f.store.Meta(f.ctx, "note"); err != nil || m.Rev != rev || string(m.Value) != "value" {
			f.Fatalf("Meta: got %+v and %v", m, err)
		}
	}},
}

// addOne counts Attempt up by one, reading again after each conflict.
func (f *fixture) addOne(id counterfoil.ID) error {
	for {
		snap, err := f.store.Get(context.Background(), id)
		if err != nil {
			return err
		}
		w := next(snap.Record)
		w.Record.Attempt++
		if _, err = f.store.Update(context.Background(), w); !lost(err) {
			return err
		}
	}
}

// lost reports that a write came after another, or met one under way, and that
// its caller has to read again.
func lost(err error) bool {
	return errors.Is(err, counterfoil.ErrConflict) || errors.Is(err, counterfoil.ErrBusy)
}

// scribble changes everything that r points to.
func scribble(r *counterfoil.Record) {
	for i := range r.Gates {
		r.Gates[i] = counterfoil.Gate{Name: "scribble"}
	}
	for i := range r.Holds {
		r.Holds[i] = counterfoil.Hold{Actor: "scribble"}
	}
	for i := range r.Evidence {
		r.Evidence[i] = counterfoil.Evidence{Actor: "scribble"}
	}
}
