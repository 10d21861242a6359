package counterfoil_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// walk is one key's life in a world where anything may happen at any moment,
// but nobody lies: an owner fails only what it did not do, and a person calls
// absent only what is absent.
type walk struct {
	*world
	rng    *rand.Rand
	within time.Duration // the downstream's own dedupe window; 0: none
	owners []*owner      // of the standing record, in the order of their attempts
	// effects is how often the effect happened under this record.
	effects int
	first   time.Time // the first crossing
	created time.Time // of the standing record
	log     []string
}

// owner is somebody who was let proceed.
type owner struct {
	c       *counterfoil.Claim
	crossed bool
	done    bool      // had its effect
	dead    bool      // will never have it: nothing is under way
	quiet   time.Time // nothing it sent takes effect after that
}

// mayStill reports whether what o sent can have its effect from now on.
func (o *owner) mayStill() bool {
	return o.crossed && !o.done && !o.dead && time.Now().Before(o.quiet)
}

func (k *walk) note(format string, args ...any) {
	k.log = append(k.log, fmt.Sprintf("%s  ", time.Now().Format("02 15:04:05.000"))+fmt.Sprintf(format, args...))
}

func (k *walk) fail(format string, args ...any) {
	k.t.Helper()
	for _, l := range k.log {
		k.t.Log(l)
	}
	k.t.Fatalf(format, args...)
}

// retry is a request as its caller would send it again.
func (k *walk) retry() {
	d, err := k.e.Begin(k.t.Context(), request("k", 1))
	if err != nil {
		k.note("retry: %v", err)
		if !errors.Is(err, counterfoil.ErrUnavailable) {
			k.fail("error %v", err)
		}
		return
	}
	k.note("retry: %s, opens %d, attempt %d, %s", d.Verdict, d.Opens, d.Record.Attempt, d.Record.State)
	switch d.Verdict {
	case replay:
		if k.effects == 0 {
			k.fail("replays what never happened")
		}
	case already:
		if class := d.Record.Outcome.Class; (class == counterfoil.Succeeded) != (k.effects > 0) {
			k.fail("says %s of %d effects", class, k.effects)
		}
	case proceed:
		k.proceed(d)
	}
}

func (k *walk) proceed(d *counterfoil.Decision) {
	now := time.Now()
	anew := !d.Record.CreatedAt.Equal(k.created)
	k.created = d.Record.CreatedAt
	switch {
	case anew:
		// A new record: what the former one protected is over, or it is the
		// first. Its owners, if any are left, have long been quiet.
		for _, o := range k.owners {
			if o.mayStill() {
				k.fail("a new record beside an attempt that may still take effect")
			}
		}
		k.owners, k.effects, k.first = nil, 0, time.Time{}
	case d.Opens == counterfoil.OpensRedispatch:
		if end := k.first.Add(k.within); !now.Add(quiet).Before(end) {
			k.fail("sent again at %s; the window that dedupes ends at %s", now, end)
		}
	default:
		if k.effects > 0 {
			k.fail("P1: attempt %d opened after the effect had happened", d.Record.Attempt)
		}
		for _, o := range k.owners {
			if o.mayStill() {
				k.fail("P1: attempt %d opened while attempt %d may still take effect", d.Record.Attempt, o.c.Attempt())
			}
		}
		k.first = time.Time{}
	}
	o := &owner{c: d.Claim, quiet: now.Add(quiet)}
	k.owners = append(k.owners, o)
	if d.Record.Dispatched {
		k.cross(o)
	}
}

func (k *walk) cross(o *owner) {
	o.crossed = true
	if k.first.IsZero() {
		k.first = time.Now()
	}
}

// act has one owner do the next thing.
func (k *walk) act() {
	if len(k.owners) == 0 {
		return
	}
	i := k.rng.IntN(len(k.owners))
	o := k.owners[i]
	ctx := k.t.Context()
	var err error
	switch what := k.rng.IntN(7); what {
	case 0, 1:
		if !o.crossed {
			err = o.c.Dispatch(ctx)
			k.note("attempt %d: dispatch: %v", o.c.Attempt(), err)
			if err == nil {
				k.cross(o)
			}
			return
		}
		if !o.mayStill() {
			return
		}
		o.done = true
		inWindow := k.within > 0 && time.Now().Before(k.first.Add(k.within))
		if k.effects == 0 || !inWindow {
			k.effects++
		}
		k.note("attempt %d: THE EFFECT HAPPENS (%d)", o.c.Attempt(), k.effects)
		if k.effects > 1 {
			k.fail("P1: the effect happened twice")
		}
	case 2, 3:
		if !o.done {
			return
		}
		_, err = o.c.Complete(ctx, succeeded, []byte("r"))
		k.note("attempt %d: complete: %v", o.c.Attempt(), err)
	case 4:
		if o.done {
			return
		}
		o.dead = true
		_, err = o.c.Fail(ctx, "nothing was done")
		k.note("attempt %d: fail: %v", o.c.Attempt(), err)
	case 5:
		_, err = o.c.Unknown(ctx, counterfoil.EvidenceAmbiguous, 502, "")
		k.note("attempt %d: unknown: %v", o.c.Attempt(), err)
	case 6:
		err = o.c.Renew(ctx)
		k.note("attempt %d: renew: %v", o.c.Attempt(), err)
	}
}

// look is an honest person who has looked downstream.
func (k *walk) look() {
	if len(k.owners) == 0 {
		return
	}
	id := k.owners[0].c.ID()
	res := word(counterfoil.Resolution{})
	if k.effects > 0 {
		res.Applied, res.Outcome = true, succeeded
	}
	snap, err := k.e.Resolve(k.t.Context(), id, res)
	k.note("a person says applied %t: %s, %v", res.Applied, snap.Record.State, err)
}

func (k *walk) step() {
	switch n := k.rng.IntN(20); {
	case n < 5:
		k.retry()
	case n < 11:
		k.act()
	case n < 13:
		k.look()
	case n == 13:
		k.faults.plan("update", fault(k.rng.IntN(5)))
	case n == 14:
		k.faults.plan("create", fault(k.rng.IntN(5)))
	case n == 15 && len(k.owners) > 0:
		if snap, err := k.store.Get(k.t.Context(), k.owners[0].c.ID()); err == nil {
			s, err := k.e.Reconcile(k.t.Context(), snap.Record, snap.AsOf)
			k.note("reconciled to %s, %v", s, err)
		}
	case n == 16:
		rep, err := k.store.Sweep(k.t.Context(), counterfoil.SweepOrder{})
		k.note("swept: %+v, %v", rep, err)
	default:
		steps := []time.Duration{tick, time.Second, lease, lease + tick, settle, deadline, quiet, cadence, 4 * time.Hour, ttl}
		d := steps[k.rng.IntN(len(steps))]
		if k.rng.IntN(20) == 0 {
			d = retention
		}
		k.note("%s go by", d)
		pass(d)
	}
}

// TestP1RandomWalk: whatever happens, in whatever order, with a store that
// fails now and then, no second effect is authorised while the first may have
// happened, and nothing is said that is not so.
func TestP1RandomWalk(t *testing.T) {
	for _, c := range []struct {
		name    string
		within  time.Duration
		changes []func(*policy.Operation)
	}{
		{"implicit, close", 0, nil},
		{"explicit, close", 0, with(explicit)},
		{"implicit, hold, late counted", 0, with(holdUnknown, countLate)},
		{"explicit, late counted", 0, with(explicit, countLate)},
		{"implicit, redispatch", 5 * time.Hour, with(redispatchWithin(5 * time.Hour))},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(50) {
				synctest.Test(t, func(t *testing.T) {
					k := &walk{
						world: newWorld(t, policyOf(1, capture(c.changes...)), counterfoil.Options{}),
						rng:   rand.New(rand.NewPCG(seed, 1)), within: c.within,
					}
					k.note("seed %d", seed)
					for range 120 {
						k.step()
					}
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}
