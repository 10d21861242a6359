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

// TestC42OnlySettledRowsGo: of five rows past their time the sweep deletes the
// settled two; what is open waits for the reconciler or for a person.
func TestC42OnlySettledRowsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		e := open(t, s, rules(1, time.Second))
		now := time.Now()
		past, ahead := now.Add(-time.Hour), now.Add(time.Hour)
		rows := []struct {
			name string
			goes bool
			rec  counterfoil.Record
		}{
			{"in progress, alive", false, counterfoil.Record{State: counterfoil.InProgress, LeaseUntil: ahead, Horizon: past}},
			{"in progress, lapsed", false, counterfoil.Record{State: counterfoil.InProgress, LeaseUntil: past, Horizon: past}},
			{"unknown, held open", false, counterfoil.Record{State: counterfoil.Unknown, QuietAt: past}},
			{"unknown, on hold", false, counterfoil.Record{State: counterfoil.Unknown, QuietAt: past, Horizon: past, Holds: []counterfoil.Hold{{At: past, Actor: "ann"}}}},
			{"completed", true, counterfoil.Record{State: counterfoil.Completed, Horizon: past, ReplayUntil: past}},
			{"tombstone", true, counterfoil.Record{State: counterfoil.Tombstone, Horizon: past}},
			{"tombstone, gate open", false, counterfoil.Record{State: counterfoil.Tombstone, Horizon: past, Gates: []counterfoil.Gate{{Name: "settlement", Until: ahead}}}},
		}
		for i, row := range rows {
			row.rec.ID, row.rec.Operation, row.rec.CreatedAt = counterfoil.ID{byte(i)}, 1, past
			row.rec.Attempt, row.rec.Dispatched, row.rec.Policy = 1, true, 1
			row.rec.Outcome.Class = counterfoil.Succeeded
			if row.rec.State.Open() {
				row.rec.Token, row.rec.Outcome = counterfoil.NewToken(), counterfoil.Outcome{}
			}
			if _, err := s.Create(t.Context(), &counterfoil.Draft{Record: row.rec}); err != nil {
				t.Fatal(row.name, err)
			}
		}
		rep := pass(t, sweep.New(e, sweep.Options{Limit: 2}))
		if rep.Deleted() != 2 || rep.Kept["hold"] != 1 || rep.Kept["settlement"] != 1 {
			t.Errorf("report %+v: want 2 deleted, 1 held, 1 kept by its gate", rep)
		}
		for i, row := range rows {
			snap, err := s.Get(t.Context(), counterfoil.ID{byte(i)})
			if gone := errors.Is(err, counterfoil.ErrNotFound); gone != row.goes {
				t.Errorf("%s: gone %t, want %t", row.name, gone, row.goes)
			} else if !gone && snap.Record.State != row.rec.State {
				t.Errorf("%s: became %s", row.name, snap.Record.State)
			}
		}
	})
}

// TestC42LongEffectBesideSweeps: an effect that runs longer than its record
// would be kept does not lose its claim. (The case keeps records 1 s; two let
// the last duplicate come inside the protection, which counts from completion.)
func TestC42LongEffectBesideSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, newStore(), rules(1, 2*time.Second))
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		w := sweep.New(e, sweep.Options{Every: 200 * time.Millisecond, FirstAfter: time.Nanosecond, OnError: func(err error) { t.Error(err) }})
		wg.Go(func() { w.Run(ctx) })
		d := begin(t, e, "c42", counterfoil.VerdictProceed)
		d.Claim.KeepAlive()
		time.Sleep(3 * time.Second)
		begin(t, e, "c42", counterfoil.VerdictInProgress)
		time.Sleep(2 * time.Second)
		if _, err := d.Claim.Complete(ctx, counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201}, []byte("r")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		begin(t, e, "c42", counterfoil.VerdictReplay)
		stop()
		wg.Wait()
	})
}

// TestC83AnswerDoesNotDependOnSweep: at every age, the verdict is the same
// whether or not a sweep has just been there.
func TestC83AnswerDoesNotDependOnSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rules(1, time.Hour)
		replay := 10 * time.Minute
		p.Operations[0].ReplayFor = &replay
		swept, unswept := open(t, newStore(), p), open(t, newStore(), p)
		// As long as announced records answer, dated and undated keys are alike.
		w := sweep.New(swept, sweep.Options{Grace: 24 * time.Hour})
		dated := uuidv7(time.Now(), 1)
		for _, key := range []counterfoil.Key{"undated", dated} {
			run(t, swept, key)
			run(t, unswept, key)
		}
		ages := []struct {
			step time.Duration
			want counterfoil.Verdict
		}{
			{replay - 1, counterfoil.VerdictReplay},
			{1, counterfoil.VerdictAlreadyProcessed},
			{time.Hour - replay - 1, counterfoil.VerdictAlreadyProcessed},
			{1, counterfoil.VerdictExpired},
			{time.Hour, counterfoil.VerdictExpired},
		}
		for _, age := range ages {
			time.Sleep(age.step)
			pass(t, w)
			for _, key := range []counterfoil.Key{"undated", dated} {
				begin(t, unswept, key, age.want)
				begin(t, swept, key, age.want)
			}
		}
		// After the grace the record is gone; F still knows of the dated key.
		time.Sleep(24 * time.Hour)
		if rep := pass(t, w); rep.TombstonesDeleted != 2 {
			t.Fatalf("report %+v: want 2 deleted", rep)
		}
		d := begin(t, swept, dated, counterfoil.VerdictExpired)
		if d.Late != counterfoil.WitnessKeyTime {
			t.Errorf("witness %q, want the key's time", d.Late)
		}
	})
}

// TestClockSkew: nothing is deleted while the two clocks differ by more than a
// minute, in either direction; and just a minute is fine.
func TestClockSkew(t *testing.T) {
	for _, off := range []time.Duration{-time.Minute - time.Second, time.Minute + time.Second} {
		synctest.Test(t, func(t *testing.T) {
			inner := newStore()
			s := &seam{Store: inner, before: func(int32, counterfoil.SweepOrder) error { return nil }}
			e := open(t, s, rules(1, time.Second))
			fill(t, e, "k", 3)
			time.Sleep(time.Hour)
			skew := off
			w := sweep.New(e, sweep.Options{Now: func() time.Time { return time.Now().Add(skew) }})
			rep, err := w.Once(t.Context())
			if !errors.Is(err, counterfoil.ErrClockSkew) || rep.Complete || rep.Deleted() != 0 {
				t.Fatalf("off by %s: report %+v, error %v", off, rep, err)
			}
			if n := s.calls.Load(); n != 1 {
				t.Errorf("off by %s: %d tries; trying again does not mend a clock", off, n)
			}
			if n := total(t, s); n != 3 {
				t.Errorf("off by %s: %d records left, want 3", off, n)
			}
			if last := lastRun(t, s); !last.Run.IsZero() || last.Failures != 1 {
				t.Errorf("off by %s: noted %+v", off, last)
			}
			skew = skew.Truncate(time.Minute)
			if rep := pass(t, w); rep.Deleted() != 3 {
				t.Errorf("off by %s: deleted %d, want 3", skew, rep.Deleted())
			}
		})
	}
}

// TestOlderPolicyDoesNotSweep: a node behind the newest policy leaves sweeping
// to others, also when the newer one came after it started (design.md §5).
func TestOlderPolicyDoesNotSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		old := open(t, s, rules(1, time.Second))
		fill(t, old, "k", 3)
		time.Sleep(time.Hour)
		newer := open(t, s, rules(2, time.Second)) // old has not heard of it
		rep, err := sweep.New(old, sweep.Options{}).Once(t.Context())
		if !errors.Is(err, counterfoil.ErrCharter) || rep.Examined != 0 || total(t, s) != 3 {
			t.Fatalf("report %+v, error %v, %d records", rep, err, total(t, s))
		}
		if last := lastRun(t, s); last != (sweep.Last{}) {
			t.Errorf("a refusal was noted as a run: %+v", last)
		}
		if rep := pass(t, sweep.New(newer, sweep.Options{})); rep.Deleted() != 3 {
			t.Errorf("the newer node deleted %d, want 3", rep.Deleted())
		}
	})
}

// TestHooks: the trace hears of every batch and the progress adds up.
func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, newStore(), rules(1, time.Second))
		fill(t, e, "k", 10)
		time.Sleep(time.Hour)
		batches, deleted := 0, 0
		var seen []int
		w := sweep.New(e, sweep.Options{
			Limit: 4,
			Trace: &counterfoil.Trace{Swept: func(r counterfoil.SweepReport, err error) {
				batches++
				deleted += r.TombstonesDeleted
				if err != nil {
					t.Error(err)
				}
			}},
			Progress: func(r sweep.Report) { seen = append(seen, r.Examined) },
		})
		rep := pass(t, w)
		if rep.Batches != 3 || batches != 3 || deleted != 10 || rep.Deleted() != 10 || rep.ResponsesDropped != 10 {
			t.Errorf("report %+v; the trace heard of %d batches and %d deleted", rep, batches, deleted)
		}
		if len(seen) != 3 || seen[0] != 4 || seen[2] != 10 {
			t.Errorf("progress %v, want 4, 8, 10", seen)
		}
	})
}
