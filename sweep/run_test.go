package sweep_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/sweep"
)

func start(t *testing.T, w *sweep.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	return func() { cancel(); <-done }
}

// TestC82DeadSweeperIsSeen: never ran, failed, panicked and ran again are told
// apart from outside; neither an error nor a panic ends the loop.
func TestC82DeadSweeperIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &seam{Store: newStore()}
		s.before = func(call int32, _ counterfoil.SweepOrder) error {
			switch {
			case call == 2:
				panic("bug")
			case call > 2 && call <= 2+5: // with its retries, one pass
				return errTimeout
			}
			return nil
		}
		e := open(t, s, rules(1, time.Second))
		if last := lastRun(t, s); !last.Run.IsZero() {
			t.Fatalf("noted %+v before any sweep", last)
		}
		var errs []error
		stop := start(t, sweep.New(e, sweep.Options{
			Every: time.Hour, FirstAfter: time.Minute, OnError: func(err error) { errs = append(errs, err) },
		}))
		time.Sleep(time.Minute)
		synctest.Wait()
		first := lastRun(t, s)
		if !first.Run.Equal(time.Now()) || first.Failures != 0 {
			t.Fatalf("noted %+v after the first pass at %s", first, time.Now())
		}
		time.Sleep(66 * time.Minute) // an hour and a tenth: the panic
		synctest.Wait()
		if last := lastRun(t, s); last.Run != first.Run || last.Failures != 1 {
			t.Errorf("noted %+v after the panic; want 1 failure since %s", last, first.Run)
		}
		time.Sleep(66 * time.Minute) // the error
		synctest.Wait()
		if last := lastRun(t, s); last.Run != first.Run || last.Failures != 2 {
			t.Errorf("noted %+v after the error; want 2 failures since %s", last, first.Run)
		}
		time.Sleep(66 * time.Minute)
		synctest.Wait()
		if last := lastRun(t, s); !last.Run.After(first.Run) || last.Failures != 0 {
			t.Errorf("noted %+v; want a new run and no failure", last)
		}
		stop()
		if len(errs) != 2 || !errors.Is(errs[1], errTimeout) {
			t.Errorf("reported %v; want the panic and the error", errs)
		}
	})
}

// TestC87FirstSweepAfterDowntime: everything stood still for an hour; what the
// broker delivers a minute after the start still meets its record.
func TestC87FirstSweepAfterDowntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p := rules(1, 5*time.Minute)
		e := open(t, s, p)
		pass(t, sweep.New(e, sweep.Options{}))
		if d := run(t, e, "m1"); d.Verdict != counterfoil.VerdictProceed {
			t.Fatal(d.Verdict)
		}
		time.Sleep(time.Hour)

		e = open(t, s, p)
		stop := start(t, sweep.New(e, sweep.Options{}))
		defer stop()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := total(t, s); n != 1 {
			t.Fatalf("%d records ten seconds after the start, want 1", n)
		}
		time.Sleep(50 * time.Second)
		begin(t, e, "m1", counterfoil.VerdictExpired) // recognised: E = 1
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if n := total(t, s); n != 0 {
			t.Fatalf("%d records after the grace, want 0", n)
		}
	})
}

// TestC87FirstAfter: how long the first pass waits, by what was noted before.
func TestC87FirstAfter(t *testing.T) {
	const every, firstAfter = 10 * time.Minute, 30 * time.Minute
	for _, c := range []struct {
		name  string
		since time.Duration // between the last run and the start; negative: never ran
		want  time.Duration
	}{
		{"never ran", -1, firstAfter},
		{"restarted at once", 0, every},
		{"restarted between two passes", 4 * time.Minute, 6 * time.Minute},
		{"restarted when one was due", every, 0},
		{"was down", every + time.Second, firstAfter},
		{"was down for a day", 24 * time.Hour, firstAfter},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &seam{Store: newStore(), before: func(int32, counterfoil.SweepOrder) error { return nil }}
				e := open(t, s, rules(1, time.Second))
				if c.since >= 0 {
					pass(t, sweep.New(e, sweep.Options{}))
					time.Sleep(c.since)
				}
				before := s.calls.Load()
				defer start(t, sweep.New(e, sweep.Options{Every: every, FirstAfter: firstAfter}))()
				if c.want > 0 {
					time.Sleep(c.want - time.Nanosecond)
					synctest.Wait()
					if s.calls.Load() != before {
						t.Fatalf("swept before %s", c.want)
					}
					time.Sleep(time.Nanosecond)
				}
				synctest.Wait()
				if s.calls.Load() == before {
					t.Fatalf("did not sweep after %s", c.want)
				}
			})
		})
	}
}

// TestLastRunUnreadable: a note of another form is an error to whoever asks,
// and no reason not to sweep.
func TestLastRunUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, note := range []string{"garbage", `{"format":2}`, `{}`} {
			s := newStore()
			if _, err := s.SetMeta(t.Context(), counterfoil.MetaSweep, 0, []byte(note)); err != nil {
				t.Fatal(err)
			}
			if _, err := sweep.LastRun(t.Context(), s); !errors.Is(err, counterfoil.ErrUnreadable) {
				t.Errorf("%s: error %v, want unreadable", note, err)
			}
			pass(t, sweep.New(open(t, s, rules(1, time.Second)), sweep.Options{}))
			if last := lastRun(t, s); last.Run.IsZero() {
				t.Errorf("%s: noted %+v", note, last)
			}
		}
	})
}

// TestLastRunForm: the note is what doctor and other versions read.
func TestLastRunForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		e := open(t, s, rules(1, time.Second))
		fill(t, e, "k", 3)
		time.Sleep(time.Hour)
		pass(t, sweep.New(e, sweep.Options{}))
		m, err := s.Meta(t.Context(), counterfoil.MetaSweep)
		if err != nil {
			t.Fatal(err)
		}
		const want = `{"format":1,"last_run":"2000-01-01T01:00:00Z","deleted":3,"failures":0}`
		if !json.Valid(m.Value) || string(m.Value) != want {
			t.Errorf("noted %s, want %s", m.Value, want)
		}
	})
}
