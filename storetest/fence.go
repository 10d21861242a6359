package storetest

import (
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil"
)

// operations are the nine writes that change a record (design.md §3).
var operations = []struct {
	name  string
	write func(w *counterfoil.Write)
}{
	{"claim", func(w *counterfoil.Write) { reopen(w) }},
	{"redispatch", func(w *counterfoil.Write) {
		reopen(w)
		w.Record.Dispatched = true
		w.Stamps.LastDispatch = counterfoil.In(0)
	}},
	{"dispatch", func(w *counterfoil.Write) {
		w.Record.State, w.Record.Dispatched, w.Record.Reference = counterfoil.InProgress, true, "ch_1"
		w.Stamps.FirstDispatch, w.Stamps.LastDispatch = counterfoil.In(0), counterfoil.In(0)
		w.Stamps.LeaseUntil = counterfoil.In(time.Minute)
	}},
	{"renew", func(w *counterfoil.Write) {
		w.Record.State = counterfoil.InProgress
		w.Stamps.LeaseUntil = counterfoil.In(time.Minute)
	}},
	{"complete", func(w *counterfoil.Write) {
		settle(w, counterfoil.Completed)
		w.Response = []byte("written by complete")
	}},
	{"fail", func(w *counterfoil.Write) { settle(w, counterfoil.Failed) }},
	{"lose", func(w *counterfoil.Write) {
		settle(w, counterfoil.Unknown)
		w.Record.AddEvidence(counterfoil.Evidence{Kind: counterfoil.EvidenceLapsed})
		w.Stamps.EvidenceAt = counterfoil.In(0)
	}},
	{"resolve", func(w *counterfoil.Write) {
		settle(w, counterfoil.Tombstone)
		w.Record.AddEvidence(counterfoil.Evidence{Kind: counterfoil.EvidenceResolved, Actor: "ops", Reason: "found"})
		w.Stamps.EvidenceAt = counterfoil.In(0)
	}},
	{"hold", func(w *counterfoil.Write) {
		w.Record.Holds = append(w.Record.Holds, counterfoil.Hold{Actor: "ops", Reason: "dispute"})
	}},
}

// reopen makes the write open the next attempt.
func reopen(w *counterfoil.Write) {
	w.Record.State, w.Record.Dispatched = counterfoil.InProgress, false
	w.Record.Attempt++
	w.Record.Token = counterfoil.NewToken()
	w.Stamps.ClaimedAt, w.Stamps.LeaseUntil = counterfoil.In(0), counterfoil.In(time.Minute)
}

// holders are those who write: with the right claim, with one that was right a
// write ago, with another attempt's.
var holders = []struct {
	name string
	pass func(w *counterfoil.Write)
	want error
}{
	{"right", func(*counterfoil.Write) {}, nil},
	{"stale", func(w *counterfoil.Write) { w.IfRev-- }, counterfoil.ErrConflict},
	{"foreign", func(w *counterfoil.Write) { w.IfToken = counterfoil.NewToken() }, counterfoil.ErrFenced},
}

var fenceTests = []test{
	{"P5 a late owner is powerless", func(f *fixture) {
		for _, op := range operations {
			for _, s := range states {
				for _, h := range holders {
					f.fenced(fmt.Sprintf("%s of %s by %s", op.name, s, h.name), s, op.write, h.pass, h.want)
				}
			}
		}
	}},

	{"P5 a lost claim is told from a moved record", func(f *fixture) {
		// Both moved: the lost claim is final, so it is what the caller hears.
		r := f.claim()
		f.update(r, reopen)
		for _, rev := range []uint64{0, r.Rev, r.Rev + 1, r.Rev + 7} {
			w := next(r)
			w.IfRev = rev
			settle(w, counterfoil.Completed)
			_, err := f.store.Update(f.ctx, w)
			f.is(err, counterfoil.ErrFenced, fmt.Sprintf("another attempt opened, rev %d", rev))
		}
		// A rev that is still to come is no more right than one that is gone.
		w := next(f.get(r.ID))
		w.IfRev++
		_, err := f.store.Update(f.ctx, w)
		f.is(err, counterfoil.ErrConflict, "a rev that is still to come")
	}},

	{"C28 completion and release check who owns the claim", func(f *fixture) {
		a := f.claim(func(d *counterfoil.Draft) { d.Stamps.LeaseUntil = counterfoil.In(-time.Millisecond) })
		b := f.update(a, reopen)
		for _, op := range operations {
			w := next(a)
			op.write(w)
			_, err := f.store.Update(f.ctx, w)
			f.is(err, counterfoil.ErrFenced, "A: "+op.name+" after B has claimed")
			f.same(b)
			f.response(b, nil)
		}
		b = f.update(b, func(w *counterfoil.Write) {
			settle(w, counterfoil.Completed)
			w.Response = []byte("response of B")
		})
		w := next(a)
		settle(w, counterfoil.Completed)
		w.Response = []byte("response of A")
		_, err := f.store.Update(f.ctx, w)
		f.is(err, counterfoil.ErrFenced, "A: complete after B has completed")
		f.same(b)
		f.response(b, []byte("response of B"))
	}},

	{"P4 the owner of a lapsed claim still completes it", func(f *fixture) {
		r := f.claim(func(d *counterfoil.Draft) { d.Stamps.LeaseUntil = counterfoil.In(-time.Hour) })
		r = f.update(r, func(w *counterfoil.Write) { settle(w, counterfoil.Unknown) })
		r = f.update(r, func(w *counterfoil.Write) { settle(w, counterfoil.Completed) })
		f.same(r)
	}},
}

// fenced lets one holder write on a new record in state s, and wants want.
func (f *fixture) fenced(name string, s counterfoil.State, write, pass func(*counterfoil.Write), want error) {
	f.Helper()
	r := f.standing(s)
	var body []byte
	if s == counterfoil.Completed {
		body = []byte("written before")
	}
	// A second write, so that there is a rev to be late with.
	r = f.update(r, func(w *counterfoil.Write) {
		w.Record.Policy = 2
		w.Response = body
	})
	w := next(r)
	write(w)
	pass(w)
	snap, err := f.store.Update(f.ctx, w)
	if want != nil {
		f.is(err, want, name)
		f.same(r)
		f.response(r, body)
		return
	}
	if err != nil {
		f.Fatalf("%s: %v", name, err)
	}
	if snap.Record.Rev != r.Rev+1 || snap.Record.State != w.Record.State || snap.Record.Token != w.Record.Token {
		f.Fatalf("%s: got %s at rev %d", name, snap.Record.State, snap.Record.Rev)
	}
	f.same(snap.Record)
	if w.Response != nil {
		f.response(snap.Record, w.Response)
	}
}
