package sweep_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/sweep"
)

var errTimeout = errors.New("statement timeout")

// TestC81BatchThatIsTooBig: a store that cannot do the batch in its time gets a
// smaller one, and the pass comes to its end.
func TestC81BatchThatIsTooBig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, fits = 400, 30
		s := &seam{Store: newStore()}
		s.before = func(_ int32, o counterfoil.SweepOrder) error {
			if o.Limit > limit || o.Limit <= 0 {
				t.Errorf("a batch of %d; at most %d was asked for", o.Limit, limit)
			}
			if o.Limit > fits {
				return errTimeout
			}
			return nil
		}
		e := open(t, s, rules(1, time.Second))
		fill(t, e, "old", 1000)
		time.Sleep(time.Hour)
		fill(t, e, "live", 20)
		rep := pass(t, sweep.New(e, sweep.Options{Limit: limit}))
		if rep.Deleted() != 1000 || rep.Retried == 0 || total(t, s) != 20 {
			t.Fatalf("report %+v, %d records left; want 1000 deleted and 20 left", rep, total(t, s))
		}
	})
}

// TestC81ResumesAfterError: what was done before the error stays done, the next
// pass goes on where the last one failed, and one that fails there again starts
// anew.
func TestC81ResumesAfterError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		var orders []counterfoil.SweepOrder
		s := &seam{Store: newStore()}
		s.before = func(_ int32, o counterfoil.SweepOrder) error {
			orders = append(orders, o)
			if broken && o.Cursor != nil {
				return errTimeout
			}
			return nil
		}
		e := open(t, s, rules(1, time.Second))
		fill(t, e, "k", 100)
		time.Sleep(time.Hour)
		w := sweep.New(e, sweep.Options{Limit: 10})

		rep, err := w.Once(t.Context())
		if !errors.Is(err, errTimeout) || rep.Complete || rep.Deleted() != 10 || total(t, s) != 90 {
			t.Fatalf("report %+v, error %v, %d left; want one batch done", rep, err, total(t, s))
		}
		failedAt := orders[len(orders)-1].Cursor

		orders = nil
		if _, err := w.Once(t.Context()); !errors.Is(err, errTimeout) {
			t.Fatalf("error %v", err)
		}
		if string(orders[0].Cursor) != string(failedAt) {
			t.Errorf("the next pass began at %x, want %x", orders[0].Cursor, failedAt)
		}
		if last := lastRun(t, s); last.Failures != 2 {
			t.Errorf("noted %+v, want 2 failures", last)
		}

		orders, broken = nil, false
		if rep := pass(t, w); rep.Deleted() != 90 || total(t, s) != 0 {
			t.Errorf("report %+v, %d left", rep, total(t, s))
		}
		if orders[0].Cursor != nil {
			t.Error("failed twice at the same place, and did not start anew")
		}
	})
}

// TestC81KilledHalfWay: every batch stands by itself, so that a pass that is
// told to stop leaves its work, and another worker finishes it.
func TestC81KilledHalfWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		e := open(t, s, rules(1, time.Second))
		fill(t, e, "k", 100)
		time.Sleep(time.Hour)
		ctx, kill := context.WithCancel(t.Context())
		rep, err := sweep.New(e, sweep.Options{Limit: 10, Progress: func(r sweep.Report) {
			if r.Batches == 4 {
				kill()
			}
		}}).Once(ctx)
		if !errors.Is(err, context.Canceled) || rep.Complete || rep.Deleted() != 40 || total(t, s) != 60 {
			t.Fatalf("report %+v, error %v, %d left", rep, err, total(t, s))
		}
		if last := lastRun(t, s); last != (sweep.Last{}) {
			t.Errorf("being told to stop was noted: %+v", last)
		}
		if rep := pass(t, sweep.New(e, sweep.Options{Limit: 10})); rep.Deleted() != 60 {
			t.Errorf("the second worker deleted %d, want 60", rep.Deleted())
		}
	})
}

// TestC81TwoSweepersBesideClaims share the work, and both notes are right.
func TestC81TwoSweepersBesideClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p := rules(1, time.Second)
		a, b := open(t, s, p), open(t, s, p)
		fill(t, a, "k", 500)
		time.Sleep(time.Hour)
		var wg sync.WaitGroup
		var reps [2]sweep.Report
		for i, e := range []*counterfoil.Engine{a, b} {
			wg.Go(func() {
				var err error
				if reps[i], err = sweep.New(e, sweep.Options{Limit: 7}).Once(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() { fill(t, a, "new", 100) })
		wg.Wait()
		if n := reps[0].Deleted() + reps[1].Deleted(); n != 500 || total(t, s) != 100 {
			t.Errorf("deleted %d between them and %d left; want 500 and 100", n, total(t, s))
		}
		if last := lastRun(t, s); last.Run.IsZero() || last.Failures != 0 {
			t.Errorf("noted %+v", last)
		}
	})
}

// TestSweepThatDoesNotMoveOn ends the pass instead of going round for ever.
func TestSweepThatDoesNotMoveOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, &still{newStore()}, rules(1, time.Second))
		rep, err := sweep.New(e, sweep.Options{}).Once(t.Context())
		if err == nil || rep.Complete {
			t.Fatalf("report %+v, error %v", rep, err)
		}
	})
}

type still struct{ counterfoil.Store }

func (s *still) Sweep(context.Context, counterfoil.SweepOrder) (counterfoil.SweepReport, error) {
	return counterfoil.SweepReport{Next: []byte("here")}, nil
}
