package counterfoil_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// heldFor has a transaction hold the record of id, for d.
func (s *txStore) heldFor(id counterfoil.ID, d time.Duration) {
	dbtx := s.begin()
	s.mu.Lock()
	err := s.hold(id, dbtx)
	s.mu.Unlock()
	if err != nil {
		panic(err)
	}
	time.AfterFunc(d, dbtx.rollback)
}

func (w *world) id(key string) counterfoil.ID {
	w.t.Helper()
	id, err := w.e.RecordID("capture", "acct-1", counterfoil.Key(key))
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// TestBusyBegin: a record that a transaction holds is in progress as far as
// anybody can tell. That is no unclear write: nothing is taken back later.
func TestBusyBegin(t *testing.T) {
	sets := map[string]struct {
		changes []func(*policy.Operation)
		set     func(w *world)
		free    counterfoil.Verdict // once it is released
	}{
		"absent":                 {nil, func(*world) {}, proceed},
		"failed":                 {nil, func(w *world) { w.failed("k") }, proceed},
		"lapsed, not dispatched": {with(explicit), func(w *world) { w.claim("k"); pass(lease + tick) }, proceed},
		"sent again":             {with(redispatchWithin(time.Hour)), func(w *world) { w.unknown("k") }, proceed},
		"completed":              {nil, func(w *world) { w.completed("k") }, replay},
	}
	for name, c := range sets {
		t.Run(name, func(t *testing.T) {
			changes := append(with(waits(3*time.Second)), c.changes...)
			reads(t, func(t *testing.T, w *world, s *txStore) {
				if name == "completed" {
					s.busyReads = true // otherwise it is simply read
				}
				c.set(w)
				id := w.id("k")
				before, _ := w.store.Get(t.Context(), id)
				s.heldFor(id, 3500*time.Millisecond)
				began := time.Now()
				d := w.ask(request("k", 1), inProgress)
				if took := time.Since(began); took != 3*time.Second {
					t.Errorf("answered after %s", took)
				}
				if d.Record.State != counterfoil.Absent || d.Record.ID != (counterfoil.ID{}) || d.ID != id ||
					time.Since(d.AsOf) > 100*time.Millisecond || d.RetryAfter != time.Second || d.Operation == nil || d.Late != counterfoil.WitnessNone {
					t.Errorf("told %+v", d)
				}
				w.idle()
				if after, _ := w.store.Get(t.Context(), id); after.Record.Rev != before.Record.Rev {
					t.Errorf("written: %+v", after.Record)
				}
				noWait := request("k", 1)
				noWait.NoWait = true
				began = time.Now()
				if w.ask(noWait, inProgress); time.Since(began) != 0 {
					t.Errorf("waited %s", time.Since(began))
				}
				began = time.Now()
				w.ask(request("k", 1), c.free)
				if took := time.Since(began); took < 500*time.Millisecond || took > 700*time.Millisecond {
					t.Errorf("went on after %s", took)
				}
				pass(time.Minute)
				if r := w.get(id); has(r, counterfoil.EvidenceFailed) && name != "failed" {
					t.Errorf("taken back: %+v", r)
				}
			}, changes...)
		})
	}
}

// TestBusyLook: where the record is looked at first, a store may say there
// already that it is busy.
func TestBusyLook(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		w.completed("k")
		w.distrusts()
		s.busyReads = true
		s.heldFor(w.id("k"), time.Second)
		if d := w.ask(request("k", 1), inProgress); d.Record.State != counterfoil.Absent {
			t.Errorf("told %+v", d.Record)
		}
		pass(time.Second)
		w.ask(request("k", 1), replay)
	})
}

// TestBusyCallerGone: a caller that goes away is not waited for.
func TestBusyCallerGone(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		s.heldFor(w.id("k"), time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		began := time.Now()
		d, err := w.e.Begin(ctx, request("k", 1))
		if err != nil || d.Verdict != inProgress || time.Since(began) != 250*time.Millisecond {
			t.Errorf("%+v, %v after %s", d, err, time.Since(began))
		}
	}, waits(10*time.Second))
}

// TestBusyReport: what an owner has to say waits for the transaction that holds
// its record; beyond a store call's time it is as when the store does not answer.
func TestBusyReport(t *testing.T) {
	for call, report := range reports {
		t.Run(call, func(t *testing.T) {
			reads(t, func(t *testing.T, w *world, s *txStore) {
				c := w.claim("short")
				s.heldFor(c.ID(), 500*time.Millisecond)
				began := time.Now()
				if err := report(t.Context(), c); err != nil {
					t.Errorf("error %v", err)
				}
				if took := time.Since(began); took < 500*time.Millisecond || took > 550*time.Millisecond {
					t.Errorf("written after %s", took)
				}
				if n := s.busy(); n < 10 || n > 15 {
					t.Errorf("asked %d times", n)
				}

				c = w.claim("long")
				s.heldFor(c.ID(), 5*time.Second)
				began = time.Now()
				err := report(t.Context(), c)
				if took := time.Since(began); took < 2*time.Second || took > 2*time.Second+50*time.Millisecond {
					t.Errorf("given up after %s", took)
				}
				ends := call != "dispatch" && call != "renew"
				if !errors.Is(err, counterfoil.ErrBusy) || errors.Is(err, counterfoil.ErrUnconfirmed) != ends {
					t.Errorf("error %v", err)
				}
				pass(10 * time.Second)
				r := w.get(c.ID())
				if open := r.State == counterfoil.InProgress; open == ends || ends != (r.Rev > 1) {
					t.Errorf("record %+v", r)
				}
				if err := report(t.Context(), c); err != nil && !ends {
					t.Errorf("once it is free: %v", err)
				}
				w.idle()
			}, explicit)
		})
	}
}

// TestBusyKeepAlive: a lease that could not be renewed meanwhile is renewed
// when the transaction has ended.
func TestBusyKeepAlive(t *testing.T) {
	reads(t, func(t *testing.T, w *world, s *txStore) {
		c := w.claim("k")
		c.KeepAlive()
		s.heldFor(c.ID(), 25*time.Second)
		pass(lease + 5*time.Second)
		if r := w.state(c.ID(), counterfoil.InProgress); r.Rev < 2 || r.Lapsed(time.Now()) {
			t.Errorf("record %+v", r)
		}
		w.complete(c)
	})
}

// TestKeepAliveConflictUnread: after a conflict the claim is given up only once
// the record says so, not because it could not be read.
func TestKeepAliveConflictUnread(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		c.KeepAlive()
		w.faults.plan("update", lose) // the first renewal; the second meets a conflict
		w.faults.plan("get", refuse)  // and cannot tell whose it was
		pass(45 * time.Second)
		if r := w.state(c.ID(), counterfoil.InProgress); r.Lapsed(time.Now()) {
			t.Errorf("the lease was let go: %+v", r)
		}
	})
}

// TestBusyReconcile: what a transaction holds is left for a later pass.
func TestBusyReconcile(t *testing.T) {
	for name, changes := range map[string][]func(*policy.Operation){"dispatched": nil, "not dispatched": with(explicit)} {
		t.Run(name, func(t *testing.T) {
			inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
				c := w.claim("k")
				pass(lease + cadence + tick)
				s.heldFor(c.ID(), time.Second)
				began := time.Now()
				if got := w.reconcile(c.ID()); got != counterfoil.InProgress || time.Since(began) != 0 || len(w.reconciled) != 0 {
					t.Errorf("%s after %s, told %v", got, time.Since(began), w.reconciled)
				}
				pass(time.Second)
				if got := w.reconcile(c.ID()); got == counterfoil.InProgress {
					t.Error("left for ever")
				}
			}, changes...)
		})
	}
}

// TestBusyResolve: a person's word waits a little for the transaction, and is
// refused when that takes longer.
func TestBusyResolve(t *testing.T) {
	reads(t, func(t *testing.T, w *world, s *txStore) {
		c := w.unknown("k")
		s.heldFor(c.ID(), 5*time.Second)
		res := word(counterfoil.Resolution{Applied: true, Outcome: succeeded})
		_, err := w.e.Resolve(t.Context(), c.ID(), res)
		if !errors.Is(err, counterfoil.ErrConflict) || !errors.Is(err, counterfoil.ErrBusy) || errors.Is(err, counterfoil.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
		w.state(c.ID(), counterfoil.Unknown)
		pass(2 * time.Second)
		if snap, err := w.e.Resolve(t.Context(), c.ID(), res); err != nil || snap.Record.State != counterfoil.Completed {
			t.Errorf("%s, %v", snap.Record.State, err)
		}
	})
}

// TestBusyDisown: taking back an unconfirmed claim waits for the transaction.
func TestBusyDisown(t *testing.T) {
	reads(t, func(t *testing.T, w *world, s *txStore) {
		w.faults.plan("create", lose)
		if _, err := w.e.Begin(t.Context(), request("k", 1)); !errors.Is(err, counterfoil.ErrUnavailable) {
			t.Fatalf("error %v", err)
		}
		s.heldFor(w.id("k"), 5*time.Second)
		pass(10 * time.Second)
		w.state(w.id("k"), counterfoil.Failed)
		w.idle()
	})
}
