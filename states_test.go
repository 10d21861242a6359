package counterfoil_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// transitions are the rows of "What moves a record" in docs/states.md that the
// engine carries out; the rows that only a sweep moves are here as far as the
// engine sees them, and in package storetest as far as stores do them.
var transitions = []struct {
	name    string
	changes []func(*policy.Operation)
	run     func(w *world)
}{
	{"absent: claim", nil, func(w *world) {
		d := w.ask(request("k", 1), proceed)
		r := w.state(d.ID, counterfoil.InProgress)
		now := time.Now()
		if r.Attempt != 1 || r.Token.IsZero() || !r.Dispatched || !r.LeaseUntil.Equal(now.Add(lease)) ||
			!r.QuietAt.Equal(now.Add(quiet)) || !r.FirstDispatch.Equal(now) || d.Opens != counterfoil.OpensFirst {
			w.t.Errorf("opens %d; record %+v", d.Opens, r)
		}
	}},
	{"in_progress, not dispatched: Dispatch by the owner", with(explicit), func(w *world) {
		c := w.claim("k")
		if r := w.get(c.ID()); r.Dispatched || !r.FirstDispatch.IsZero() {
			w.t.Errorf("dispatched by the claim: %+v", r)
		}
		pass(20 * time.Second)
		if err := c.Dispatch(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		r := w.state(c.ID(), counterfoil.InProgress)
		now := time.Now()
		if !r.Dispatched || !r.FirstDispatch.Equal(now) || !r.LeaseUntil.Equal(now.Add(lease)) || r.Rev != 2 {
			w.t.Errorf("one write dispatches and renews: %+v", r)
		}
		if err := c.Dispatch(w.t.Context()); err != nil || w.get(c.ID()).Rev != 2 {
			w.t.Errorf("a second Dispatch: %v; it has nothing to write", err)
		}
	}},
	{"in_progress: Renew by the owner before its deadline", nil, func(w *world) {
		c := w.claim("k")
		pass(20 * time.Second)
		if err := c.Renew(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		if r := w.get(c.ID()); !r.LeaseUntil.Equal(time.Now().Add(lease)) {
			w.t.Errorf("lease until %s", r.LeaseUntil)
		}
		pass(deadline)
		if err := c.Renew(w.t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			w.t.Errorf("renewed after the deadline: %v", err)
		}
	}},
	{"in_progress: Complete by the owner", nil, func(w *world) {
		c := w.claim("k")
		pass(time.Second)
		w.complete(c)
		r := w.state(c.ID(), counterfoil.Completed)
		now := time.Now()
		if r.Outcome != succeeded || !r.HasResponse || !r.SettledAt.Equal(now) ||
			!r.Horizon.Equal(now.Add(retention)) || !r.ReplayUntil.Equal(now.Add(ttl)) {
			w.t.Errorf("record %+v", r)
		}
	}},
	{"in_progress, lapsed: Complete by the owner", nil, func(w *world) {
		c := w.claim("k")
		pass(lease + tick)
		w.ask(request("k", 1), unknown)
		w.complete(c)
		w.ask(request("k", 1), replay)
	}},
	{"unknown: Complete by the owner", nil, func(w *world) {
		c := w.claim("k")
		pass(lease + tick)
		w.reconcile(c.ID())
		w.complete(c)
		w.ask(request("k", 1), replay)
	}},
	{"in_progress: Fail by the owner", nil, func(w *world) {
		c := w.claim("k")
		if _, err := c.Fail(w.t.Context(), "connection refused"); err != nil {
			w.t.Fatal(err)
		}
		r := w.state(c.ID(), counterfoil.Failed)
		if r.Proof != counterfoil.ProofStated || !r.Horizon.Equal(time.Now().Add(ttl)) || !has(r, counterfoil.EvidenceFailed) {
			w.t.Errorf("record %+v", r)
		}
	}},
	{"unknown: Fail by the owner", nil, func(w *world) {
		c := w.claim("k")
		pass(lease + tick)
		w.reconcile(c.ID())
		if _, err := c.Fail(w.t.Context(), "never sent"); err != nil {
			w.t.Fatal(err)
		}
		if r := w.state(c.ID(), counterfoil.Failed); r.Proof != counterfoil.ProofStated {
			w.t.Errorf("record %+v", r)
		}
	}},
	{"in_progress: ambiguous answer", nil, func(w *world) {
		c := w.unknown("k")
		r := w.state(c.ID(), counterfoil.Unknown)
		if !r.QuietAt.Equal(r.ClaimedAt.Add(quiet)) || r.Outcome.Status != 502 || r.Outcome.Class != counterfoil.OutcomeUnknown {
			w.t.Errorf("record %+v", r)
		}
		if !r.Horizon.Equal(r.QuietAt.Add(retention)) {
			w.t.Errorf("closes at %s, want t_quiet + retention = %s", r.Horizon, r.QuietAt.Add(retention))
		}
	}},
	{"in_progress: ambiguous answer under on_unknown: hold", with(holdUnknown), func(w *world) {
		c := w.unknown("k")
		if r := w.state(c.ID(), counterfoil.Unknown); !r.Horizon.IsZero() {
			w.t.Errorf("closes at %s; it is held until resolved", r.Horizon)
		}
	}},
	{"in_progress, dispatched, lapsed: unknown with the same token", nil, func(w *world) {
		c := w.claim("k")
		was := w.get(c.ID())
		pass(lease)
		if got := w.reconcile(c.ID()); got != counterfoil.InProgress {
			w.t.Fatalf("a lease that ends now is alive, and it became %s", got)
		}
		pass(tick)
		w.reconcile(c.ID())
		if r := w.state(c.ID(), counterfoil.Unknown); r.Token != was.Token || r.Attempt != 1 || !has(r, counterfoil.EvidenceLapsed) {
			w.t.Errorf("record %+v", r)
		}
	}},
	{"in_progress, not dispatched, lapsed: same request", with(explicit), func(w *world) {
		c := w.claim("k")
		pass(lease)
		w.ask(request("k", 1), inProgress)
		pass(tick)
		w.ask(request("k", 2), mismatch)
		if r := w.get(c.ID()); r.Rev != 1 {
			w.t.Errorf("another request wrote: %+v", r)
		}
		d := w.ask(request("k", 1), proceed)
		r := w.get(c.ID())
		if d.Opens != counterfoil.OpensNext || r.Attempt != 2 || r.Token == c.Record().Token || !r.CreatedAt.Equal(c.Record().CreatedAt) {
			w.t.Errorf("opens %d, record %+v", d.Opens, r)
		}
	}},
	{"in_progress, not dispatched: lease and cadence passed", with(explicit), func(w *world) {
		c := w.claim("k")
		pass(lease + cadence)
		if got := w.reconcile(c.ID()); got != counterfoil.InProgress {
			w.t.Fatalf("became %s at lease + cadence; it has to have passed", got)
		}
		pass(tick)
		w.reconcile(c.ID())
		if r := w.state(c.ID(), counterfoil.Failed); r.Proof != counterfoil.ProofNeverDispatched {
			w.t.Errorf("record %+v", r)
		}
	}},
	{"unknown: a person says applied", nil, func(w *world) {
		c := w.unknown("k")
		r := w.resolve(c.ID(), counterfoil.Resolution{Applied: true, Outcome: succeeded})
		if r.State != counterfoil.Completed || r.Outcome != succeeded || !r.Horizon.Equal(time.Now().Add(retention)) {
			w.t.Errorf("record %+v", r)
		}
		w.ask(request("k", 1), already)
	}},
	{"unknown: a person says absent, with proof", nil, func(w *world) {
		c := w.unknown("k")
		pass(quiet)
		if r := w.resolve(c.ID(), counterfoil.Resolution{}); r.State != counterfoil.Failed || r.Proof != counterfoil.ProofQuiet {
			w.t.Errorf("record %+v", r)
		}
	}},
	{"unknown: redispatch inside its window", with(redispatchWithin(23 * time.Hour)), func(w *world) {
		c := w.unknown("k")
		first := w.get(c.ID())
		pass(23*time.Hour - quiet - tick)
		d := w.ask(request("k", 1), proceed)
		r := w.state(c.ID(), counterfoil.InProgress)
		if d.Opens != counterfoil.OpensRedispatch || r.Attempt != 2 || !r.Dispatched || r.Token == first.Token ||
			!r.FirstDispatch.Equal(first.FirstDispatch) || !r.LastDispatch.Equal(time.Now()) || d.Claim.Identity() != c.Identity() {
			w.t.Errorf("opens %d, record %+v", d.Opens, r)
		}
	}},
	{"unknown: redispatch after its window", with(redispatchWithin(23 * time.Hour)), func(w *world) {
		w.unknown("k")
		pass(23*time.Hour - quiet)
		w.ask(request("k", 1), unknown)
	}},
	{"unknown under on_unknown: close", nil, func(w *world) {
		c := w.unknown("k")
		// An open gate keeps what has closed, so that it can be looked at.
		w.edit(c.ID(), func(r *counterfoil.Record) {
			r.Gates = []counterfoil.Gate{{Name: "settlement", Until: r.QuietAt.Add(2 * retention)}}
		})
		pass(quiet + retention)
		w.ask(request("k", 1), unknown)
		w.sweep(0)
		r := w.state(c.ID(), counterfoil.Tombstone)
		if r.Outcome.Class != counterfoil.OutcomeUnknown || !r.Token.IsZero() || !has(r, counterfoil.EvidenceClosed) {
			w.t.Errorf("record %+v", r)
		}
		w.ask(request("k", 1), unknown)
	}},
	{"failed: same request", nil, func(w *world) {
		c := w.claim("k")
		if _, err := c.Fail(w.t.Context(), "refused"); err != nil {
			w.t.Fatal(err)
		}
		w.ask(request("k", 2), mismatch)
		d := w.ask(request("k", 1), proceed)
		if d.Opens != counterfoil.OpensNext || d.Record.Attempt != 2 {
			w.t.Errorf("opens %d, record %+v", d.Opens, d.Record)
		}
	}},
	{"failed by a person: Complete by the last owner", nil, func(w *world) {
		d := w.ask(request("l", 1), proceed)
		pass(quiet + tick)
		w.reconcile(d.ID)
		w.resolve(d.ID, counterfoil.Resolution{})
		w.complete(d.Claim)
		r := w.state(d.ID, counterfoil.Completed)
		if !has(r, counterfoil.EvidenceContradicted) || r.Proof != counterfoil.ProofNone {
			w.t.Errorf("record %+v", r)
		}
		if n, _ := w.counts(); n != 1 {
			w.t.Errorf("counted %d as contradicted, want 1", n)
		}
		w.ask(request("l", 1), replay)
	}},
	{"failed: ttl passed", nil, func(w *world) {
		key := uuidv7(time.Now(), 1)
		c := w.claim(key)
		if _, err := c.Fail(w.t.Context(), "refused"); err != nil {
			w.t.Fatal(err)
		}
		pass(ttl)
		if rep := w.sweep(0); rep.FailedDeleted != 1 || !w.gone(c.ID()) {
			w.t.Fatalf("report %+v", rep)
		}
		w.ask(request(key, 1), proceed) // F was not raised: nothing had happened
	}},
	{"completed: replay over", nil, func(w *world) {
		id := w.completed("k")
		pass(ttl - tick)
		w.ask(request("k", 1), replay)
		pass(tick)
		w.ask(request("k", 1), already)
		w.sweep(0)
		if r := w.state(id, counterfoil.Tombstone); r.HasResponse || !r.Token.IsZero() {
			w.t.Errorf("record %+v", r)
		}
		w.ask(request("k", 1), already)
	}},
	{"completed: another outcome reported", nil, func(w *world) { w.second(false) }},
	{"tombstone: another outcome reported", nil, func(w *world) { w.second(true) }},
	{"tombstone with outcome unknown: applied", nil, func(w *world) {
		w.fillIn(counterfoil.Succeeded, func(c *counterfoil.Claim) error {
			w.resolve(c.ID(), counterfoil.Resolution{Applied: true, Outcome: succeeded})
			return nil
		})
	}},
	{"tombstone with outcome unknown: absent", nil, func(w *world) {
		w.fillIn(counterfoil.NoEffect, func(c *counterfoil.Claim) error {
			w.resolve(c.ID(), counterfoil.Resolution{})
			return nil
		})
	}},
	{"tombstone with outcome unknown: late Complete", nil, func(w *world) {
		w.fillIn(counterfoil.Succeeded, func(c *counterfoil.Claim) error {
			_, err := c.Complete(w.t.Context(), succeeded, []byte("response"))
			return err
		})
	}},
	{"tombstone: past its time", nil, func(w *world) {
		key := uuidv7(time.Now(), 1)
		id := w.completed(key)
		pass(retention - tick)
		w.ask(request(key, 1), already)
		pass(tick)
		w.ask(request(key, 1), expired)
		w.sweep(time.Hour)
		w.state(id, counterfoil.Announced)
		w.ask(request(key, 1), expired)
		w.ask(request(key, 2), mismatch)
		// F is raised already: other dated keys that are as old came too late.
		d := w.ask(request(uuidv7(time.Now().Add(-retention), 2), 1), expired)
		if d.Late != counterfoil.WitnessKeyTime {
			w.t.Errorf("witness %q", d.Late)
		}
	}},
	{"announced: grace over", nil, func(w *world) {
		key := uuidv7(time.Now(), 1)
		id := w.completed(key)
		pass(retention)
		w.sweep(time.Hour)
		pass(time.Hour)
		if rep := w.sweep(time.Hour); rep.TombstonesDeleted != 1 || !w.gone(id) {
			w.t.Fatalf("report %+v", rep)
		}
		if d := w.ask(request(key, 1), expired); d.Late != counterfoil.WitnessKeyTime {
			w.t.Errorf("witness %q", d.Late)
		}
	}},
}

func with(changes ...func(*policy.Operation)) []func(*policy.Operation) { return changes }

// TestTransitions goes through design.md §3 row by row.
func TestTransitions(t *testing.T) {
	for _, row := range transitions {
		t.Run(row.name, func(t *testing.T) { inWorld(t, func(_ *testing.T, w *world) { row.run(w) }, row.changes...) })
	}
}

// edit writes a record as a store's other users might have.
func (w *world) edit(id counterfoil.ID, change func(*counterfoil.Record)) {
	w.t.Helper()
	r := w.get(id)
	next := r.Clone()
	change(&next)
	if _, err := w.store.Update(w.t.Context(), &counterfoil.Write{Record: next, IfRev: r.Rev, IfToken: r.Token}); err != nil {
		w.t.Fatal(err)
	}
}

// second has the owner report a second outcome after a person's (P12).
func (w *world) second(tombstone bool) {
	w.t.Helper()
	c := w.claim("k")
	pass(lease + tick)
	w.reconcile(c.ID())
	w.resolve(c.ID(), counterfoil.Resolution{Applied: true, Outcome: counterfoil.Outcome{Class: counterfoil.Declined, Status: 402}})
	want := counterfoil.Completed
	if tombstone {
		w.sweep(0)
		want = counterfoil.Tombstone
	}
	before := w.state(c.ID(), want)
	snap, err := c.Complete(w.t.Context(), succeeded, []byte("response"))
	if !errors.Is(err, counterfoil.ErrSettled) || snap.Record.Outcome != before.Outcome {
		w.t.Errorf("second outcome: %v, with %+v; want ErrSettled with the standing outcome", err, snap.Record)
	}
	r := w.state(c.ID(), want)
	if r.Outcome != before.Outcome || !r.Horizon.Equal(before.Horizon) || r.HasResponse || !has(r, counterfoil.EvidenceContradicted) {
		w.t.Errorf("record %+v, before %+v", r, before)
	}
	if n, _ := w.counts(); n != 1 {
		w.t.Errorf("counted %d as contradicted, want 1", n)
	}
}

// fillIn closes an unknown record, lets report tell the outcome after all, and
// wants it filled in without the key ever running again.
func (w *world) fillIn(want counterfoil.OutcomeClass, report func(*counterfoil.Claim) error) {
	w.t.Helper()
	c := w.claim("k")
	pass(lease + tick)
	w.reconcile(c.ID())
	w.edit(c.ID(), func(r *counterfoil.Record) {
		r.Gates = []counterfoil.Gate{{Name: "settlement", Until: r.QuietAt.Add(2 * retention)}}
	})
	pass(quiet + retention)
	w.sweep(0)
	before := w.state(c.ID(), counterfoil.Tombstone)
	if err := report(c); err != nil {
		w.t.Fatal(err)
	}
	r := w.state(c.ID(), counterfoil.Tombstone)
	if r.Outcome.Class != want || !r.Horizon.Equal(before.Horizon) || !has(r, counterfoil.EvidenceResolved) {
		w.t.Errorf("record %+v", r)
	}
	w.ask(request("k", 1), already)
	if n, _ := w.counts(); n != 0 {
		w.t.Errorf("counted %d as contradicted", n)
	}
}
