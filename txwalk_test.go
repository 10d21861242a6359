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

// txWalk is a walk whose effect is a write to the database of the records: it
// happens when a transaction that completed its record is committed.
type txWalk struct {
	*world
	s       *txStore
	engines []*counterfoil.Engine
	rng     *rand.Rand
	owners  []*txOwner
	effects int
	at      time.Time // of the effect
	created time.Time // of the record that proceeded last
	log     []string
}

// txOwner is somebody who was let proceed.
type txOwner struct {
	c     *counterfoil.Claim
	quiet time.Time
	dbtx  *tx // open, or nil
	// tx is set where the claim itself is the transaction's.
	tx        *counterfoil.Tx
	completes bool // dbtx carries a completion
	done      bool
	over      bool // the claim went with its transaction
}

func (k *txWalk) note(format string, args ...any) {
	k.log = append(k.log, fmt.Sprintf("%s  ", time.Now().Format("02 15:04:05.000"))+fmt.Sprintf(format, args...))
}

func (k *txWalk) fail(format string, args ...any) {
	k.t.Helper()
	for _, l := range k.log {
		k.t.Log(l)
	}
	k.t.Fatalf(format, args...)
}

// retry is a request as its caller would send it again.
func (k *txWalk) retry(inTx bool) {
	e := k.engines[k.rng.IntN(len(k.engines))]
	o := &txOwner{quiet: time.Now().Add(quiet)}
	begin := e.Begin
	if inTx {
		o.dbtx = k.s.begin()
		o.tx = e.InTx(o.dbtx)
		begin = o.tx.Begin
	}
	d, err := begin(k.t.Context(), request("k", 1))
	if err != nil {
		k.note("retry, in a transaction %t: %v", inTx, err)
		if !errors.Is(err, counterfoil.ErrUnavailable) {
			k.fail("error %v", err)
		}
		if inTx {
			o.dbtx.rollback()
		}
		return
	}
	k.note("retry, in a transaction %t: %s, opens %d, attempt %d, %s", inTx, d.Verdict, d.Opens, d.Record.Attempt, d.Record.State)
	if d.Verdict == replay && k.effects == 0 {
		k.fail("replays what never happened")
	}
	if class := d.Record.Outcome.Class; d.Verdict == already && (class == counterfoil.Succeeded) != (k.effects > 0) {
		k.fail("says %s of %d effects", class, k.effects)
	}
	if d.Verdict != proceed {
		if inTx {
			o.dbtx.rollback()
		}
		return
	}
	if !d.Record.CreatedAt.Equal(k.created) && k.effects > 0 && time.Since(k.at) >= retention {
		k.effects = 0 // what the former record protected is over
	}
	k.created = d.Record.CreatedAt
	if k.effects > 0 {
		k.fail("P1: attempt %d opened after the effect had happened", d.Record.Attempt)
	}
	for _, other := range k.owners {
		if other.completes {
			k.fail("P1: attempt %d opened beside a transaction that completes", d.Record.Attempt)
		}
	}
	o.c = d.Claim
	k.owners = append(k.owners, o)
}

// end commits or rolls back the owner's transaction.
func (k *txWalk) end(o *txOwner, commit bool) {
	k.note("attempt %d: commits %t, completes %t", o.c.Attempt(), commit, o.completes)
	if commit {
		o.dbtx.commit()
		if o.completes {
			o.done = true
			k.effects++
			k.at = time.Now()
		}
		if o.tx != nil {
			o.tx.Committed()
		}
	} else {
		o.dbtx.rollback()
	}
	o.over = o.tx != nil
	o.dbtx, o.completes = nil, false
	if k.effects > 1 {
		k.fail("P1: the effect happened twice")
	}
}

// act has one owner do the next thing. It may be slow, but it does not lie: it
// fails only what it did not do and is not about to do.
func (k *txWalk) act() {
	if len(k.owners) == 0 {
		return
	}
	o := k.owners[k.rng.IntN(len(k.owners))]
	ctx := k.t.Context()
	switch what := k.rng.IntN(10); {
	case o.over:
	case what < 4 && o.dbtx != nil:
		if o.tx != nil && !o.completes {
			_, err := o.c.Complete(ctx, succeeded, []byte("r"))
			k.note("attempt %d: completes in its transaction: %v", o.c.Attempt(), err)
			if o.completes = err == nil; !o.completes {
				k.fail("error %v", err)
			}
			return
		}
		k.end(o, k.rng.IntN(2) == 0)
	case what < 4 && o.dbtx == nil && !o.done && time.Now().Before(o.quiet):
		o.dbtx = k.s.begin()
		err := o.c.CompleteIn(ctx, o.dbtx, succeeded)
		k.note("attempt %d: CompleteIn: %v", o.c.Attempt(), err)
		if err != nil {
			o.dbtx.rollback()
			o.dbtx = nil
			return
		}
		o.completes = true
	case o.tx != nil:
	case what < 7 && o.done:
		_, err := o.c.Complete(ctx, succeeded, []byte("r"))
		k.note("attempt %d: complete: %v", o.c.Attempt(), err)
	case what == 7 && o.dbtx == nil && !o.done:
		_, err := o.c.Fail(ctx, "rolled back")
		k.note("attempt %d: fail: %v", o.c.Attempt(), err)
	case what == 8:
		_, err := o.c.Unknown(ctx, counterfoil.EvidencePanic, 0, "")
		k.note("attempt %d: unknown: %v", o.c.Attempt(), err)
	case what == 9:
		err := o.c.Renew(ctx)
		k.note("attempt %d: renew: %v", o.c.Attempt(), err)
	}
}

// close ends every transaction that is open.
func (k *txWalk) close() {
	for _, o := range k.owners {
		if o.dbtx != nil {
			k.end(o, k.rng.IntN(2) == 0)
		}
	}
}

func (k *txWalk) step() {
	switch n := k.rng.IntN(22); {
	case n < 4:
		k.retry(false)
	case n < 7:
		k.retry(true)
	case n < 15:
		k.act()
	case n == 15 && len(k.owners) > 0:
		res := word(counterfoil.Resolution{})
		if k.effects > 0 {
			res.Applied, res.Outcome = true, succeeded
		}
		snap, err := k.e.Resolve(k.t.Context(), k.id("k"), res)
		k.note("a person says applied %t: %s, %v", res.Applied, snap.Record.State, err)
	case n == 16:
		k.faults.plan("update", fault(k.rng.IntN(5)))
	case n == 17:
		k.faults.plan("create", fault(k.rng.IntN(5)))
	case n == 18:
		if snap, err := k.store.Get(k.t.Context(), k.id("k")); err == nil {
			s, err := k.e.Reconcile(k.t.Context(), snap.Record, snap.AsOf)
			k.note("reconciled to %s, %v", s, err)
		}
	case n == 19:
		k.close() // the memory store would sweep what a transaction holds
		rep, err := k.store.Sweep(k.t.Context(), counterfoil.SweepOrder{})
		k.note("swept: %+v, %v", rep, err)
	default:
		steps := []time.Duration{tick, time.Second, time.Second, lease, lease + tick, deadline, quiet, cadence, ttl, retention}
		d := steps[k.rng.IntN(len(steps))]
		if d > quiet {
			k.close() // no database leaves a transaction open for so long
		}
		k.note("%s go by", d)
		pass(d)
	}
}

// TestP1TransactionWalk: as TestP1RandomWalk, for effects in the records'
// own database. Nothing that is committed contradicts what is said of it.
func TestP1TransactionWalk(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []func(*policy.Operation)
	}{
		{"implicit, close", nil},
		{"explicit, late counted", with(explicit, countLate)},
		{"implicit, hold", with(holdUnknown)},
		{"implicit, redispatch", with(redispatchWithin(5 * time.Hour))},
	} {
		t.Run(c.name, func(t *testing.T) {
			committed := 0
			for seed := range uint64(60) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, policyOf(1, capture(c.changes...)), counterfoil.Options{})
					k := &txWalk{
						world: w, s: &txStore{Store: w.store, busyReads: seed%2 == 1}, rng: rand.New(rand.NewPCG(seed, 2)),
						engines: []*counterfoil.Engine{w.e, w.open(w.e.Policy(), counterfoil.Options{})},
					}
					w.faults.Store = k.s
					k.note("seed %d", seed)
					for range 150 {
						k.step()
					}
					k.close()
					committed += k.effects
				})
				if t.Failed() {
					return
				}
			}
			if committed < 20 {
				t.Errorf("only %d walks came to an effect", committed)
			}
		})
	}
}
