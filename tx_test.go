package counterfoil_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

func waits(d time.Duration) func(*policy.Operation) {
	return func(o *policy.Operation) { o.Wait = d }
}

// within begins a request in t, and holds its verdict against want.
func (w *world) within(t *counterfoil.Tx, req *counterfoil.Request, want counterfoil.Verdict) *counterfoil.Decision {
	w.t.Helper()
	began := time.Now()
	d, err := t.Begin(w.t.Context(), req)
	if err != nil {
		w.t.Fatalf("begin: %v; want %s", err, want)
	}
	if d.Verdict != want || (d.Claim != nil) != (want == proceed) {
		w.t.Fatalf("verdict %s (row %d), want %s; record %+v", d.Verdict, d.Row, want, d.Record)
	}
	if waited := time.Since(began); waited != 0 {
		w.t.Fatalf("waited %s", waited)
	}
	return d
}

func (w *world) endings() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ended)
}

// idle fails the test when anything is done in the background.
func (w *world) idle() {
	w.t.Helper()
	if n := w.e.Settling(); n != 0 {
		w.t.Errorf("%d settling in the background", n)
	}
}

// TestTxCommitted: one commit makes claim and completion durable; until then
// everybody else is told in progress, and afterwards the answer is replayed.
func TestTxCommitted(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		dbtx := s.begin()
		tx := w.e.InTx(dbtx)
		d := w.within(tx, request("k", 1), proceed)
		if d.Opens != counterfoil.OpensFirst || d.Record.Attempt != 1 || len(w.decided) != 1 {
			t.Errorf("%+v, %d decided", d.Ruling, len(w.decided))
		}
		busy := w.ask(request("k", 2), inProgress) // even of another request: nobody can tell
		if busy.Record.State != counterfoil.Absent || busy.RetryAfter != time.Second || busy.Row != 0 || !busy.AsOf.Equal(time.Now()) {
			t.Errorf("told %+v", busy)
		}
		w.complete(d.Claim)
		w.within(tx, request("k", 1), replay) // what it wrote, it sees
		w.ask(request("k", 1), inProgress)
		if !w.gone(d.ID) || w.endings() != 0 {
			t.Error("something is out before the commit")
		}
		dbtx.commit()
		if w.endings() != 0 {
			t.Error("told before the caller said that it committed")
		}
		tx.Committed()
		tx.Committed()
		if w.endings() != 1 || w.ended[0].State != counterfoil.Completed || w.ended[0].ID != d.ID {
			t.Errorf("told %+v", w.ended)
		}
		if again := w.ask(request("k", 1), replay); string(again.Response) != "response" {
			t.Errorf("replayed %q", again.Response)
		}
		w.ask(request("k", 2), mismatch)
		r := w.state(d.ID, counterfoil.Completed)
		if now := time.Now(); !r.Horizon.Equal(now.Add(retention)) || !r.ReplayUntil.Equal(now.Add(ttl)) || r.Outcome != succeeded {
			t.Errorf("record %+v", r)
		}
		w.idle()
	})
}

// TestTxRolledBack: no trace is left, nothing is told, and the key runs.
func TestTxRolledBack(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		for i := range 3 {
			dbtx := s.begin()
			tx := w.e.InTx(dbtx)
			d := w.within(tx, request("k", 1), proceed)
			if i > 0 {
				w.complete(d.Claim)
			}
			dbtx.rollback()
			if !w.gone(d.ID) || w.endings() != 0 {
				t.Fatal("the rolled back claim left a trace")
			}
			if _, err := d.Claim.Complete(t.Context(), succeeded, nil); err == nil {
				t.Error("completed after the rollback")
			}
			w.idle()
		}
		if d := w.ask(request("k", 1), proceed); d.Record.Attempt != 1 {
			t.Errorf("attempt %d", d.Record.Attempt)
		}
	})
}

// TestTxNextAttempt: an attempt on a standing record opens, and vanishes, with
// its transaction.
func TestTxNextAttempt(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		c := w.claim("k")
		if _, err := c.Fail(t.Context(), "refused"); err != nil {
			t.Fatal(err)
		}
		dbtx := s.begin()
		d := w.within(w.e.InTx(dbtx), request("k", 1), proceed)
		if d.Opens != counterfoil.OpensNext || d.Record.Attempt != 2 {
			t.Errorf("%+v, attempt %d", d.Ruling, d.Record.Attempt)
		}
		if busy := w.ask(request("k", 1), inProgress); busy.Record.State != counterfoil.Absent {
			t.Errorf("told %+v", busy.Record)
		}
		other := s.begin()
		w.within(w.e.InTx(other), request("k", 1), inProgress)
		other.rollback()
		dbtx.rollback()
		if r := w.state(c.ID(), counterfoil.Failed); r.Attempt != 1 {
			t.Errorf("attempt %d", r.Attempt)
		}
		dbtx = s.begin()
		w.complete(w.within(w.e.InTx(dbtx), request("k", 1), proceed).Claim)
		dbtx.commit()
		if r := w.state(c.ID(), counterfoil.Completed); r.Attempt != 2 {
			t.Errorf("attempt %d", r.Attempt)
		}
		w.idle()
	})
}

// TestTxDuplicates: a waiting duplicate outside of transactions learns what
// came of one; a duplicate inside of one never waits.
func TestTxDuplicates(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commits %t", commits), func(t *testing.T) {
			inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
				other := w.open(w.e.Policy(), counterfoil.Options{})
				dbtx, dup := s.begin(), s.begin()
				d := w.within(w.e.InTx(dbtx), request("k", 1), proceed)
				if got := w.within(other.InTx(dup), request("k", 1), inProgress); got.RetryAfter <= 0 {
					t.Error("no word of when to ask again")
				}
				dup.rollback()
				var wg sync.WaitGroup
				ran := 0
				for range 2 {
					wg.Go(func() {
						began := time.Now()
						got, err := other.Begin(t.Context(), request("k", 1))
						// More than 16 polls: waiting is no disagreement.
						if took := time.Since(began); err != nil || took < 5*time.Second || took > 6*time.Second {
							t.Errorf("%v after %s", err, took)
							return
						}
						switch got.Verdict {
						case proceed:
							ran++
							w.complete(got.Claim)
						case replay:
						default:
							t.Errorf("verdict %s", got.Verdict)
						}
					})
				}
				pass(5 * time.Second)
				w.complete(d.Claim)
				want := 1
				if commits {
					want = 0
					dbtx.commit()
				} else {
					dbtx.rollback()
				}
				wg.Wait()
				if ran != want {
					t.Errorf("%d duplicates ran, want %d", ran, want)
				}
				w.idle()
			}, waits(10*time.Second))
		})
	}
}

// TestTxDuplicateOfClaim: a claim that is not a transaction's is seen in one,
// and not waited for.
func TestTxDuplicateOfClaim(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		c := w.claim("k")
		dbtx := s.begin()
		d := w.within(w.e.InTx(dbtx), request("k", 1), inProgress)
		if d.Record.Token != c.Record().Token || d.RetryAfter != 5*time.Second {
			t.Errorf("told %+v", d)
		}
		w.within(w.e.InTx(dbtx), request("k", 2), mismatch)
	}, waits(10*time.Second))
}

// TestTxDecidesLikeBegin: what stands, and what is remembered, leads to the
// same answer in a transaction and outside of one.
func TestTxDecidesLikeBegin(t *testing.T) {
	dated := func() string { return uuidv7(time.Now().Add(-time.Hour), 7) }
	scenes := map[string]struct {
		changes []func(*policy.Operation)
		set     func(w *world)
		key     func() string
		content byte
	}{
		"absent":                       {},
		"malformed key":                {key: func() string { return "" }},
		"made in the future":           {key: func() string { return uuidv7(time.Now().Add(time.Hour), 7) }},
		"older than F":                 {set: (*world).forgot, key: dated},
		"older than F, counted":        {changes: with(countLate), set: (*world).forgot, key: dated},
		"untrusted":                    {set: (*world).distrusts},
		"untrusted, older than F":      {set: (*world).distrusts, key: dated},
		"untrusted, born later":        {set: func(w *world) { w.distrusts(); pass(time.Hour) }, key: func() string { return uuidv7(time.Now(), 7) }},
		"untrusted, failed":            {set: func(w *world) { w.failed("k"); w.distrusts() }},
		"in quota no more":             {changes: with(func(o *policy.Operation) { o.MaxUnresolved = 1 }), set: func(w *world) { w.claim("other") }},
		"failed, in quota no more":     {changes: with(func(o *policy.Operation) { o.MaxUnresolved = 1 }), set: func(w *world) { w.failed("k"); w.claim("other") }},
		"in progress":                  {set: func(w *world) { w.claim("k") }},
		"in progress, another request": {set: func(w *world) { w.claim("k") }, content: 2},
		"lapsed, dispatched":           {set: func(w *world) { w.claim("k"); pass(lease + tick) }},
		"lapsed, not dispatched":       {changes: with(explicit), set: func(w *world) { w.claim("k"); pass(lease + tick) }},
		"unknown":                      {set: func(w *world) { w.unknown("k") }},
		"unknown, sent again":          {changes: with(redispatchWithin(23 * time.Hour)), set: func(w *world) { w.unknown("k") }},
		"unknown, window over":         {changes: with(redispatchWithin(23 * time.Hour)), set: func(w *world) { w.unknown("k"); pass(23 * time.Hour) }},
		"failed":                       {set: func(w *world) { w.failed("k") }},
		"failed, another request":      {set: func(w *world) { w.failed("k") }, content: 2},
		"completed":                    {set: func(w *world) { w.completed("k") }},
		"completed, another request":   {set: func(w *world) { w.completed("k") }, content: 2},
		"completed, replay over":       {set: func(w *world) { w.completed("k"); pass(ttl) }},
		"past its time":                {set: func(w *world) { w.completed("k"); pass(retention) }},
		"past its time, counted":       {changes: with(countLate), set: func(w *world) { w.completed("k"); pass(retention) }},
		"deleted":                      {set: func(w *world) { w.completed("k"); pass(retention); w.sweep(0) }},
	}
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) {
			inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
				if scene.set != nil {
					scene.set(w)
				}
				key := "k"
				if scene.key != nil {
					key = scene.key()
				}
				req := request(key, max(scene.content, 1))
				dbtx := s.begin()
				got, gotErr := w.e.InTx(dbtx).Begin(t.Context(), req)
				dbtx.rollback()
				want, wantErr := w.e.Begin(t.Context(), req)
				if counterfoil.Code(gotErr) != counterfoil.Code(wantErr) || (got == nil) != (want == nil) {
					t.Fatalf("error %v, outside %v", gotErr, wantErr)
				}
				if n := len(w.refused); n != 0 && n != 2 {
					t.Errorf("told of %d refusals", n)
				}
				if want == nil {
					return
				}
				for _, d := range []*counterfoil.Decision{got, want} {
					if d.Claim != nil {
						d.Record.Token, d.Claim = counterfoil.Token{}, nil
					}
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("in a transaction %+v\noutside           %+v", got, want)
				}
				if n := len(w.decided); n < 2 || w.decided[n-1] != w.decided[n-2] {
					t.Errorf("told %+v", w.decided)
				}
			}, scene.changes...)
		})
	}
}

func (w *world) failed(key string) {
	w.t.Helper()
	if _, err := w.claim(key).Fail(w.t.Context(), "refused"); err != nil {
		w.t.Fatal(err)
	}
}

// forgot deletes a record, so that F is now.
func (w *world) forgot() {
	w.t.Helper()
	if err := counterfoil.Distrust(w.t.Context(), w.store, "test"); err != nil {
		w.t.Fatal(err)
	}
	if err := w.e.TrustAgain(w.t.Context(), "ann", "looked"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) distrusts() {
	w.t.Helper()
	if err := w.e.Distrust(w.t.Context(), "test"); err != nil {
		w.t.Fatal(err)
	}
}

// TestTxErrors: an error comes back as it is, and nothing goes on behind it.
func TestTxErrors(t *testing.T) {
	for name, f := range map[string]fault{"refused": refuse, "answer lost": lose} {
		t.Run(name, func(t *testing.T) {
			inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
				try := func(call string, do func(tx *counterfoil.Tx) error) {
					t.Helper()
					dbtx := s.begin()
					bad := &faults{Store: dbtx}
					tx := w.e.InTx(bad)
					var c *counterfoil.Claim
					if call == "outcome" {
						c = w.within(tx, request("new", 1), proceed).Claim
						call = "update"
					}
					bad.plan(call, f)
					var err error
					if c != nil {
						_, err = c.Complete(t.Context(), succeeded, []byte("response"))
					} else {
						err = do(tx)
					}
					if !errors.Is(err, errDown) || errors.Is(err, counterfoil.ErrUnconfirmed) {
						t.Errorf("%s: error %v", call, err)
					}
					w.idle()
					calls := bad.count(call)
					pass(time.Minute)
					if bad.count(call) != calls {
						t.Errorf("%s: went on after the error", call)
					}
					dbtx.rollback()
				}
				begin := func(key string) func(*counterfoil.Tx) error {
					return func(tx *counterfoil.Tx) error {
						_, err := tx.Begin(t.Context(), request(key, 1))
						return err
					}
				}
				w.failed("failed")
				w.completed("completed")
				try("create", begin("new"))
				try("update", begin("failed"))
				try("response", begin("completed"))
				try("outcome", nil)
				w.ask(request("new", 1), proceed)
				w.ask(request("failed", 1), proceed)
				if _, unconfirmed := w.counts(); unconfirmed != 0 {
					t.Errorf("%d unconfirmed", unconfirmed)
				}
			})
		})
	}
}

// sees notes the contexts that a store is called with.
type sees struct {
	counterfoil.Store
	ctx []context.Context
}

func (s *sees) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	s.ctx = append(s.ctx, ctx)
	return s.Store.Create(ctx, d)
}

func (s *sees) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	s.ctx = append(s.ctx, ctx)
	return s.Store.Update(ctx, w)
}

// TestTxContext: the caller's context is used as it is, and ends the calls.
func TestTxContext(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		dbtx := &sees{Store: s.begin()}
		ctx, cancel := context.WithCancel(t.Context())
		d, err := w.e.InTx(dbtx).Begin(ctx, request("k", 1))
		if err != nil || d.Verdict != proceed {
			t.Fatal(err)
		}
		if err := d.Claim.Dispatch(ctx); err != nil {
			t.Fatal(err)
		}
		for _, c := range dbtx.ctx {
			if c != ctx {
				t.Errorf("called with %v", c)
			}
		}
		if len(dbtx.ctx) != 2 {
			t.Errorf("%d calls", len(dbtx.ctx))
		}
		cancel()
		if _, err := d.Claim.Complete(ctx, succeeded, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if _, err := w.e.InTx(s.begin()).Begin(ctx, request("other", 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		w.idle()
	}, explicit)
}

// TestTxClaim: a claim in a transaction crosses and ends through it, and has no
// lease to renew.
func TestTxClaim(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		dbtx := s.begin()
		c := w.within(w.e.InTx(dbtx), request("k", 1), proceed).Claim
		c.KeepAlive()
		if err := c.Renew(t.Context()); err != nil || c.Record().Rev != 1 {
			t.Errorf("renewed: %v, rev %d", err, c.Record().Rev)
		}
		pass(lease)
		if err := c.Dispatch(t.Context()); err != nil || c.Record().Rev != 2 || !c.Record().Dispatched {
			t.Errorf("dispatch: %v, %+v", err, c.Record())
		}
		pass(lease) // nothing renews, and nobody sees it lapse
		w.ask(request("k", 1), inProgress)
		w.complete(c)
		if _, err := c.Complete(t.Context(), succeeded, nil); !errors.Is(err, counterfoil.ErrSettled) {
			t.Errorf("completed twice: %v", err)
		}
		dbtx.commit()
		if r := w.state(c.ID(), counterfoil.Completed); r.Rev != 3 {
			t.Errorf("rev %d", r.Rev)
		}
	}, explicit)
}

// TestTxOtherEnds: Fail and Unknown do in a transaction what they do outside.
func TestTxOtherEnds(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		dbtx := s.begin()
		tx := w.e.InTx(dbtx)
		failed, unsure := w.within(tx, request("f", 1), proceed).Claim, w.within(tx, request("u", 1), proceed).Claim
		if _, err := failed.Fail(t.Context(), "refused"); err != nil {
			t.Fatal(err)
		}
		if _, err := unsure.Unknown(t.Context(), counterfoil.EvidenceAmbiguous, 502, "bad gateway"); err != nil {
			t.Fatal(err)
		}
		dbtx.commit()
		tx.Committed()
		w.state(failed.ID(), counterfoil.Failed)
		w.state(unsure.ID(), counterfoil.Unknown)
		if w.endings() != 2 {
			t.Errorf("told %+v", w.ended)
		}
	})
}

// TestTxDropped: a claim that is committed without an outcome lapses as any
// other.
func TestTxDropped(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		dbtx := s.begin()
		tx := w.e.InTx(dbtx)
		d := w.within(tx, request("k", 1), proceed)
		dbtx.commit()
		tx.Committed()
		w.ask(request("k", 1), inProgress)
		pass(lease + tick)
		w.ask(request("k", 1), unknown)
		w.reconcile(d.ID)
		w.state(d.ID, counterfoil.Unknown)
		if w.endings() != 0 {
			t.Errorf("told %+v", w.ended)
		}
	})
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		// Nobody here will say when such a claim ends: who waits looks for itself.
		dbtx := s.begin()
		d := w.within(w.e.InTx(dbtx), request("k", 1), proceed)
		dbtx.commit()
		time.AfterFunc(time.Second, func() { w.edit(d.ID, func(r *counterfoil.Record) { r.State = counterfoil.Failed }) })
		began := time.Now()
		w.ask(request("k", 1), proceed)
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("went on after %s", took)
		}
	}, waits(10*time.Second))
}

// stubborn is a store that answers every update with err.
type stubborn struct {
	counterfoil.Store
	err   error
	calls int
}

func (s *stubborn) Update(context.Context, *counterfoil.Write) (counterfoil.Snapshot, error) {
	s.calls++
	return counterfoil.Snapshot{}, s.err
}

// TestTxBusyClaim: what is busy inside of a transaction is not waited for.
func TestTxBusyClaim(t *testing.T) {
	for call, report := range reports {
		if call == "renew" {
			continue
		}
		inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
			c := w.within(w.e.InTx(&stubborn{Store: s.begin(), err: counterfoil.ErrBusy}), request("k", 1), proceed).Claim
			began := time.Now()
			if err := report(t.Context(), c); !errors.Is(err, counterfoil.ErrBusy) || time.Since(began) != 0 {
				t.Errorf("%s: %v after %s", call, err, time.Since(began))
			}
			w.idle()
		}, explicit)
	}
}

// TestKeepsChanging: deciding again ends, whoever is always first.
func TestKeepsChanging(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		w.failed("k")
		w.faults.Store = &stubborn{Store: s, err: counterfoil.ErrConflict}
		if _, err := w.e.Begin(t.Context(), request("k", 1)); !errors.Is(err, counterfoil.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
		if _, err := w.e.InTx(&stubborn{Store: s.begin(), err: counterfoil.ErrConflict}).Begin(t.Context(), request("k", 1)); !errors.Is(err, counterfoil.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
	}, waits(time.Second))
}

// TestTxSavepoint: the caller rolled back to before the claim, and ends it all
// the same. Nothing is written, and nobody is paged: it is all in one hand.
func TestTxSavepoint(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		dbtx := s.begin()
		c := w.within(w.e.InTx(dbtx), request("k", 1), proceed).Claim
		delete(dbtx.rows, c.ID())
		if _, err := c.Complete(t.Context(), succeeded, nil); !errors.Is(err, counterfoil.ErrFenced) {
			t.Errorf("error %v", err)
		}
		dbtx.commit()
		if n, _ := w.counts(); n != 0 || !w.gone(c.ID()) {
			t.Errorf("%d contradicted, gone %t", n, w.gone(c.ID()))
		}
	})
}

// finds is a store whose Create finds its own earlier try, moved on since.
type finds struct {
	counterfoil.Store
	moved func(*counterfoil.Record)
}

func (s *finds) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	st, err := s.Store.Create(ctx, d)
	if err != nil || !st.Created {
		return st, err
	}
	next := st.Record.Clone()
	s.moved(&next)
	st.Snapshot, err = s.Store.Update(ctx, &counterfoil.Write{Record: next, IfRev: st.Record.Rev, IfToken: st.Record.Token})
	return st, err
}

// TestOwnRecordMovedOn: that a record carries our token does not make it a
// fresh claim.
func TestOwnRecordMovedOn(t *testing.T) {
	for name, c := range map[string]struct {
		moved func(*counterfoil.Record)
		want  counterfoil.Verdict
	}{
		"not at all": {func(*counterfoil.Record) {}, proceed},
		"completed": {func(r *counterfoil.Record) {
			r.State, r.Outcome, r.SettledAt, r.Horizon = counterfoil.Completed, succeeded, time.Now(), time.Now().Add(retention)
		}, already},
		"unknown": {func(r *counterfoil.Record) { r.State = counterfoil.Unknown }, unknown},
		"failed, and held": {func(r *counterfoil.Record) {
			r.State = counterfoil.Failed
			r.Holds = []counterfoil.Hold{{Actor: "ann"}}
		}, counterfoil.VerdictUnavailable},
		"failed":          {func(r *counterfoil.Record) { r.State = counterfoil.Failed }, proceed},
		"another attempt": {func(r *counterfoil.Record) { r.Attempt = 2 }, inProgress},
	} {
		t.Run(name, func(t *testing.T) {
			inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
				dbtx := s.begin()
				d := w.within(w.e.InTx(&finds{dbtx, c.moved}), request("k", 1), c.want)
				if name == "failed" && d.Record.Attempt != 2 {
					t.Errorf("attempt %d", d.Record.Attempt)
				}
				dbtx.rollback()
				w.faults.Store = &finds{s, c.moved}
				w.ask(request("k", 1), c.want)
			})
		})
	}
}

// TestP1TxRace: transactions and plain claims on few keys, at two engines, that
// commit and roll back as they please: what is committed is one effect a key.
func TestP1TxRace(t *testing.T) {
	for seed := range uint64(20) {
		inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
			engines := []*counterfoil.Engine{w.e, w.open(w.e.Policy(), counterfoil.Options{})}
			s.busyReads = seed%2 == 1
			var mu sync.Mutex
			effects := map[string]int{}
			happen := func(key string) {
				mu.Lock()
				defer mu.Unlock()
				effects[key]++
			}
			var wg sync.WaitGroup
			for i := range 60 {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				e, key, pause := engines[i%2], fmt.Sprint("k", rng.IntN(4)), func() { time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond) }
				wg.Go(func() {
					pause()
					if rng.IntN(3) == 0 {
						d, err := e.Begin(t.Context(), request(key, 1))
						if err != nil {
							t.Error(err)
							return
						}
						if d.Verdict == proceed {
							dbtx := s.begin()
							defer dbtx.rollback()
							if err := d.Claim.CompleteIn(t.Context(), dbtx, succeeded); err != nil {
								t.Error(err)
							}
							pause()
							if rng.IntN(2) == 0 {
								dbtx.rollback()
								if _, err := d.Claim.Fail(t.Context(), "rolled back"); err != nil {
									t.Error(err)
								}
								return
							}
							dbtx.commit()
							happen(key)
							w.complete(d.Claim)
						}
						return
					}
					dbtx := s.begin()
					defer dbtx.rollback()
					tx := e.InTx(dbtx)
					d, err := tx.Begin(t.Context(), request(key, 1))
					if err != nil {
						t.Error(err)
						return
					}
					if d.Verdict != proceed {
						// Already processed: committed, and its response not attached yet.
						if d.Verdict != inProgress && d.Verdict != replay && d.Verdict != already {
							t.Errorf("verdict %s, %+v", d.Verdict, d.Record)
						}
						return
					}
					pause()
					w.complete(d.Claim)
					pause()
					if rng.IntN(2) == 0 {
						dbtx.commit()
						tx.Committed()
						happen(key)
					}
				})
			}
			wg.Wait()
			synctest.Wait()
			for key, n := range effects {
				if n != 1 {
					t.Errorf("seed %d: %d effects under %s", seed, n, key)
				}
				w.ask(request(key, 1), replay)
			}
			if contradicted, unconfirmed := w.counts(); contradicted+unconfirmed != 0 {
				t.Errorf("%d contradicted, %d unconfirmed", contradicted, unconfirmed)
			}
			w.idle()
		}, waits(400*time.Millisecond))
		if t.Failed() {
			return
		}
	}
}
