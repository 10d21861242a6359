package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/reconcile"
)

const (
	lease    = 30 * time.Second
	deadline = time.Minute
	cadence  = time.Hour
)

func rules(version uint32, dispatch policy.Dispatch) *policy.Policy {
	o := policy.NewOperation("capture")
	o.Scope.Principal = policy.Principal{Kind: policy.PrincipalHeader, Header: "X-Account"}
	o.Inputs.ClientRetryBudget.Value = 4 * time.Hour
	o.Inputs.ReconciliationCadence.Value = cadence
	o.Lease, o.Deadline, o.Dispatch = lease, deadline, dispatch
	return &policy.Policy{Version: version, Operations: []policy.Operation{o}}
}

func newStore() *memstore.Store { return memstore.New(memstore.Options{Clock: time.Now}) }

func open(t *testing.T, s counterfoil.Store, p *policy.Policy) *counterfoil.Engine {
	t.Helper()
	e, err := counterfoil.Open(t.Context(), s, p, counterfoil.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func request(key string) *counterfoil.Request {
	return &counterfoil.Request{
		Operation: "capture", Principal: "acct", Key: counterfoil.Key(key), NoWait: true,
		Fingerprint: func(*policy.Operation, uint8) (counterfoil.Fingerprint, error) {
			return counterfoil.Fingerprint{Version: 1, Sum: [16]byte{7}}, nil
		},
	}
}

// begin starts a request and holds its verdict against want.
func begin(t *testing.T, e *counterfoil.Engine, key string, want counterfoil.Verdict) *counterfoil.Decision {
	t.Helper()
	d, err := e.Begin(t.Context(), request(key))
	if err != nil {
		t.Fatal(err)
	}
	if d.Verdict != want {
		t.Fatalf("key %s: %s, want %s (record %+v)", key, d.Verdict, want, d.Record)
	}
	return d
}

func once(t *testing.T, w *reconcile.Worker, want reconcile.Report) {
	t.Helper()
	got, err := w.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got.AsOf = time.Time{}
	if got != want {
		t.Fatalf("report %+v, want %+v", got, want)
	}
}

func get(t *testing.T, s counterfoil.Store, id counterfoil.ID) counterfoil.Record {
	t.Helper()
	snap, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return snap.Record
}

// TestP4LapsedClaimBecomesUnknown: time alone never lets a dispatched effect
// run again, and the reconciler says so with its evidence.
func TestP4LapsedClaimBecomesUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		e := open(t, s, rules(1, policy.DispatchImplicit))
		w := reconcile.New(e, reconcile.Options{})
		d := begin(t, e, "k", counterfoil.VerdictProceed)
		time.Sleep(lease + time.Millisecond)
		begin(t, e, "k", counterfoil.VerdictUnknown) // the same before the pass
		once(t, w, reconcile.Report{Examined: 1, Unknown: 1})

		r := get(t, s, d.ID)
		if r.State != counterfoil.Unknown || r.Attempt != 1 || r.Token != d.Record.Token {
			t.Fatalf("record %+v: want unknown, attempt 1, its token kept", r)
		}
		if n := len(r.Evidence); n != 1 || r.Evidence[0].Kind != counterfoil.EvidenceLapsed || r.Evidence[0].At.IsZero() {
			t.Fatalf("evidence %+v: want lapsed, dated", r.Evidence)
		}
		for range 5 {
			time.Sleep(time.Hour)
			once(t, w, reconcile.Report{})
			begin(t, e, "k", counterfoil.VerdictUnknown)
		}
		// The owner knows best, however late it comes.
		snap, err := d.Claim.Complete(t.Context(), counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201}, []byte("r"))
		if err != nil || snap.Record.State != counterfoil.Completed {
			t.Fatalf("late completion by the owner: %+v, %v", snap.Record, err)
		}
	})
}

// TestNeverDispatchedFailsAfterCadence: nothing had crossed, so after lease and
// cadence the claim is failed; not a moment sooner.
func TestNeverDispatchedFailsAfterCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		e := open(t, s, rules(1, policy.DispatchExplicit))
		w := reconcile.New(e, reconcile.Options{})
		d := begin(t, e, "k", counterfoil.VerdictProceed)
		time.Sleep(lease + time.Millisecond)
		once(t, w, reconcile.Report{Examined: 1, Left: 1})
		time.Sleep(cadence - time.Millisecond) // lease and cadence are over just now
		once(t, w, reconcile.Report{Examined: 1, Left: 1})
		time.Sleep(time.Millisecond)
		once(t, w, reconcile.Report{Examined: 1, Failed: 1})
		r := get(t, s, d.ID)
		if r.State != counterfoil.Failed || r.Proof != counterfoil.ProofNeverDispatched {
			t.Fatalf("record %+v: want failed, never dispatched", r)
		}
		if n := len(r.Evidence); n != 1 || r.Evidence[0].Kind != counterfoil.EvidenceFailed {
			t.Fatalf("evidence %+v", r.Evidence)
		}
		again := begin(t, e, "k", counterfoil.VerdictProceed)
		if again.Record.Attempt != 2 {
			t.Fatalf("attempt %d, want 2", again.Record.Attempt)
		}
		// The first owner is powerless now (P5).
		if err := d.Claim.Dispatch(t.Context()); err == nil {
			t.Fatal("an owner that lost its claim could still cross")
		}
	})
}

// TestC74EqualityIsAlive: a lease that ends at this very instant is alive.
func TestC74EqualityIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		e := open(t, s, rules(1, policy.DispatchImplicit))
		w := reconcile.New(e, reconcile.Options{})
		d := begin(t, e, "k", counterfoil.VerdictProceed)
		time.Sleep(lease)
		if now := time.Now(); !d.Record.LeaseUntil.Equal(now) {
			t.Fatalf("lease until %s, now %s: the test wants them equal", d.Record.LeaseUntil, now)
		}
		once(t, w, reconcile.Report{})
		begin(t, e, "k", counterfoil.VerdictInProgress)
		time.Sleep(time.Nanosecond)
		once(t, w, reconcile.Report{Examined: 1, Unknown: 1})
	})
}

// TestC74FourWorkersBesideLiveClaims: 4 processes reconcile every 100 ms while
// 200 requests a second run; every effect runs once and none is adopted.
func TestC74FourWorkersBesideLiveClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p := rules(1, policy.DispatchImplicit)
		p.Operations[0].Lease = 30 * time.Millisecond // shorter than many handlers
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		engines := make([]*counterfoil.Engine, 4)
		for i := range engines {
			engines[i] = open(t, s, p)
			w := reconcile.New(engines[i], reconcile.Options{
				Every: 100 * time.Millisecond, Batch: 3,
				OnError: func(err error) { t.Errorf("worker %d: %v", i, err) },
			})
			wg.Go(func() { w.Run(ctx) })
		}
		var runs [400]atomic.Int32
		var requests sync.WaitGroup
		for i := range runs {
			for _, e := range engines { // every process gets the request
				requests.Go(func() {
					_, err := e.Do(ctx, request(fmt.Sprint("k", i)), func(context.Context, *counterfoil.Claim) (counterfoil.Result, error) {
						runs[i].Add(1)
						time.Sleep(time.Duration(i%51) * time.Millisecond)
						return counterfoil.Result{Outcome: counterfoil.Outcome{Class: counterfoil.Succeeded}}, nil
					})
					if err != nil {
						t.Errorf("key %d: %v", i, err)
					}
				})
			}
			time.Sleep(5 * time.Millisecond)
		}
		requests.Wait()
		stop()
		wg.Wait()
		for i := range runs {
			if n := runs[i].Load(); n != 1 {
				t.Errorf("key %d ran %d times", i, n)
			}
		}
		stats, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range stats.Operations {
			if o.Count(counterfoil.Completed) != int64(len(runs)) || o.Total() != int64(len(runs)) {
				t.Errorf("states %v: want all %d completed", o.Records, len(runs))
			}
		}
	})
}

// between calls meanwhile after every listing, before its records are judged.
type between struct {
	counterfoil.Store
	meanwhile func()
}

func (b *between) Overdue(ctx context.Context, q counterfoil.Page) (counterfoil.Records, error) {
	page, err := b.Store.Overdue(ctx, q)
	b.meanwhile()
	return page, err
}

// TestC74RenewedBetweenReadAndWrite: check and take-over are one conditional
// write; an owner that wakes up in between keeps its claim.
func TestC74RenewedBetweenReadAndWrite(t *testing.T) {
	wakeUps := map[string]func(*counterfoil.Claim) error{
		"renew": func(c *counterfoil.Claim) error { return c.Renew(context.Background()) },
		"complete": func(c *counterfoil.Claim) error {
			_, err := c.Complete(context.Background(), counterfoil.Outcome{Class: counterfoil.Succeeded}, nil)
			return err
		},
	}
	for name, wake := range wakeUps {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &between{Store: newStore(), meanwhile: func() {}}
				e := open(t, s, rules(1, policy.DispatchImplicit))
				d := begin(t, e, "k", counterfoil.VerdictProceed)
				time.Sleep(lease + time.Millisecond)
				s.meanwhile = func() {
					if err := wake(d.Claim); err != nil {
						t.Error(err)
					}
				}
				once(t, reconcile.New(e, reconcile.Options{}), reconcile.Report{Examined: 1, Left: 1})
				if r := get(t, s, d.ID); r.State == counterfoil.Unknown || len(r.Evidence) != 0 {
					t.Fatalf("record %+v was taken from its owner", r)
				}
			})
		})
	}
}

// busy is a store one of whose records a transaction holds.
type busy struct {
	counterfoil.Store
	id   counterfoil.ID
	free bool
}

func (b *busy) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	if w.Record.ID == b.id && !b.free {
		return counterfoil.Snapshot{}, counterfoil.ErrBusy
	}
	return b.Store.Update(ctx, w)
}

// TestBusyRecordStopsNobody: a record that a transaction holds is left for a
// later pass, at once; the others are moved all the same.
func TestBusyRecordStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &busy{Store: newStore()}
		e := open(t, s, rules(1, policy.DispatchImplicit))
		s.id = begin(t, e, "held", counterfoil.VerdictProceed).ID
		time.Sleep(time.Millisecond)
		begin(t, e, "other", counterfoil.VerdictProceed)
		time.Sleep(lease + time.Millisecond)
		w := reconcile.New(e, reconcile.Options{Batch: 1})
		start := time.Now()
		once(t, w, reconcile.Report{Examined: 2, Left: 1, Unknown: 1})
		if took := time.Since(start); took != 0 {
			t.Errorf("took %s", took)
		}
		s.free = true
		once(t, w, reconcile.Report{Examined: 1, Unknown: 1})
	})
}

// TestAllPages: a pass goes through every page, in batches.
func TestAllPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, newStore(), rules(1, policy.DispatchImplicit))
		for i := range 25 {
			begin(t, e, fmt.Sprint("k", i), counterfoil.VerdictProceed)
		}
		time.Sleep(lease + time.Millisecond)
		live := begin(t, e, "live", counterfoil.VerdictProceed)
		once(t, reconcile.New(e, reconcile.Options{Batch: 4}), reconcile.Report{Examined: 25, Unknown: 25})
		if r := get(t, e.Store(), live.ID); r.State != counterfoil.InProgress {
			t.Fatalf("the live claim is %s", r.State)
		}
	})
}

// TestUnreadableRecordStopsNobody: a record of a newer policy than this node
// knows is left alone and counted; the others are moved all the same.
func TestUnreadableRecordStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		old := open(t, s, rules(1, policy.DispatchImplicit))
		newer := open(t, s, rules(2, policy.DispatchImplicit))
		first := begin(t, newer, "new", counterfoil.VerdictProceed)
		begin(t, old, "old", counterfoil.VerdictProceed)
		time.Sleep(lease + time.Millisecond)
		w := reconcile.New(old, reconcile.Options{Batch: 1})
		rep, err := w.Once(t.Context())
		if !errors.Is(err, counterfoil.ErrUnreadable) || rep.Examined != 2 || rep.Errors != 1 || rep.Unknown != 1 {
			t.Fatalf("report %+v, error %v", rep, err)
		}
		if r := get(t, s, first.ID); r.State != counterfoil.InProgress {
			t.Fatalf("the unreadable record is %s", r.State)
		}
		if err := old.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		once(t, w, reconcile.Report{Examined: 1, Unknown: 1})
	})
}

// broken is a store whose listing fails as it is told.
type broken struct {
	counterfoil.Store
	calls atomic.Int32
	fail  func(call int32) error
	still bool // the cursor does not move on
}

func (b *broken) Overdue(ctx context.Context, q counterfoil.Page) (counterfoil.Records, error) {
	if err := b.fail(b.calls.Add(1)); err != nil {
		return counterfoil.Records{}, err
	}
	page, err := b.Store.Overdue(ctx, q)
	if b.still {
		page.Next = []byte("same")
	}
	return page, err
}

// TestListingThatDoesNotMoveOn ends the pass instead of going round for ever.
func TestListingThatDoesNotMoveOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &broken{Store: newStore(), fail: func(int32) error { return nil }}
		e := open(t, s, rules(1, policy.DispatchImplicit))
		begin(t, e, "k", counterfoil.VerdictProceed)
		time.Sleep(lease + time.Millisecond)
		s.Store, s.still = &ignoresCursor{s.Store}, true
		if _, err := reconcile.New(e, reconcile.Options{}).Once(t.Context()); err == nil {
			t.Fatal("no error")
		}
	})
}

type ignoresCursor struct{ counterfoil.Store }

func (s *ignoresCursor) Overdue(ctx context.Context, q counterfoil.Page) (counterfoil.Records, error) {
	q.Cursor = nil
	return s.Store.Overdue(ctx, q)
}

// TestRunOutlivesErrorsAndPanics: the first pass comes at once; an error and a
// panic are reported, and the pass after them does its work.
func TestRunOutlivesErrorsAndPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		s := &broken{Store: newStore()}
		s.fail = func(call int32) error {
			switch call {
			case 1:
				return down
			case 2:
				panic("bug")
			}
			return nil
		}
		e := open(t, s, rules(1, policy.DispatchImplicit))
		d := begin(t, e, "k", counterfoil.VerdictProceed)
		time.Sleep(lease + time.Millisecond)
		var errs []error
		w := reconcile.New(e, reconcile.Options{Every: time.Minute, OnError: func(err error) { errs = append(errs, err) }})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		synctest.Wait()
		if s.calls.Load() != 1 {
			t.Fatal("the first pass did not come at once")
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if r := get(t, s, d.ID); r.State != counterfoil.Unknown {
			t.Fatalf("the record is %s: the worker died", r.State)
		}
		stop()
		<-done
		if len(errs) != 2 || !errors.Is(errs[0], down) {
			t.Fatalf("reported %v; want the error and the panic", errs)
		}
	})
}

// TestPassEndsWithItsContext: a pass that is told to stop says that it did.
func TestPassEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, newStore(), rules(1, policy.DispatchImplicit))
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if _, err := reconcile.New(e, reconcile.Options{}).Once(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want canceled", err)
		}
	})
}
