package storecopy_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/storecopy"
)

func TestVerifyWritesNothingAndSaysWhatIsMissing(t *testing.T) {
	tests := map[string]struct {
		change func(t *testing.T, from, to counterfoil.Store)
		says   string
	}{
		"never copied": {func(*testing.T, counterfoil.Store, counterfoil.Store) {}, "not a finished copy"},
		"F of the source grew": {func(t *testing.T, from, to counterfoil.Store) {
			run(t, from, to)
			forget(t, from, opPay, now)
		}, "copy again"},
		"the source has one more": {func(t *testing.T, from, to counterfoil.Store) {
			run(t, from, to)
			put(t, from, plain("more", counterfoil.Completed), nil)
		}, "the target does not have it"},
		"the source moved on": {func(t *testing.T, from, to counterfoil.Store) {
			run(t, from, to)
			move(t, from, all(t, from)[newID("plain unknown")], func(r *counterfoil.Record) { r.State = counterfoil.Completed })
		}, "the source attempt 1, completed"},
		"one field": {func(t *testing.T, from, to counterfoil.Store) {
			run(t, from, to)
			move(t, from, all(t, from)[newID("plain unknown")], func(r *counterfoil.Record) { r.Policy = 2 })
		}, "they differ in Policy"},
		"the response is gone": {func(t *testing.T, from, to counterfoil.Store) {
			run(t, from, to)
			move(t, to, all(t, to)[newID("answered")], func(r *counterfoil.Record) { r.HasResponse = false })
		}, "their responses differ"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			from, to := fill(t), newStore()
			tt.change(t, from, to)
			w := &wire{}
			rep, err := storecopy.Verify(ctx, from, readOnly{far{to, w}, t}, storecopy.Options{Page: 4})
			if !errors.Is(err, storecopy.ErrDiffers) || !strings.Contains(err.Error(), tt.says) || rep.Verified {
				t.Errorf("error %v", err)
			}
		})
	}
}

// readOnly fails the test when it is written to.
type readOnly struct {
	far
	t *testing.T
}

func (r readOnly) Create(context.Context, *counterfoil.Draft) (counterfoil.Standing, error) {
	r.t.Error("Create")
	return counterfoil.Standing{}, errBroken
}

func (r readOnly) Update(context.Context, *counterfoil.Write) (counterfoil.Snapshot, error) {
	r.t.Error("Update")
	return counterfoil.Snapshot{}, errBroken
}

func (r readOnly) SetMeta(context.Context, string, uint64, []byte) (uint64, error) {
	r.t.Error("SetMeta")
	return 0, errBroken
}

// TestResponseIsMended: a finished copy whose response was lost is mended.
func TestResponseIsMended(t *testing.T) {
	from, to := fill(t), newStore()
	run(t, from, to)
	move(t, to, all(t, to)[newID("answered")], func(r *counterfoil.Record) { r.HasResponse = false })
	if rep := run(t, from, to); rep.Updated != 1 || rep.Responses != 1 {
		t.Errorf("report %+v", rep)
	}
	sameStores(t, from, to)
}

// TestSourceHasMoreThanAFinishedCopy: the rest is copied under the note again.
func TestSourceHasMoreThanAFinishedCopy(t *testing.T) {
	from, to := fill(t), newStore()
	run(t, from, to)
	put(t, from, plain("more", counterfoil.Completed), []byte("201"))
	forget(t, from, opPay, now)
	if _, err := counterfoil.Open(ctx, from, payments(2), counterfoil.Options{}); err != nil {
		t.Fatal(err)
	}
	if rep := run(t, from, to); rep.Copied != 1 || rep.Present != 16 {
		t.Errorf("report %+v", rep)
	}
	sameStores(t, from, to)
}

// TestSomethingElseWritesTheCharter: a serve was started on the target at the
// moment at which the copy began, or ended.
func TestSomethingElseWritesTheCharter(t *testing.T) {
	for nth := 1; nth <= 2; nth++ {
		from, to := fill(t), newStore()
		_, err := storecopy.Run(ctx, from, &meddled{Store: to, nth: nth}, storecopy.Options{})
		if !errors.Is(err, counterfoil.ErrConflict) || !strings.Contains(err.Error(), "something else writes it") {
			t.Errorf("the charter was written before its SetMeta %d: %v", nth, err)
		}
	}
}

// meddled has its charter written by somebody else just before it is set for
// the nth time.
type meddled struct {
	counterfoil.Store
	nth int
}

func (m *meddled) SetMeta(ctx context.Context, name string, ifRev uint64, value []byte) (uint64, error) {
	if name == counterfoil.MetaCharter {
		if m.nth--; m.nth == 0 {
			if _, err := m.Store.SetMeta(ctx, name, ifRev, []byte(`{"layout":1}`)); err != nil {
				return 0, err
			}
		}
	}
	return m.Store.SetMeta(ctx, name, ifRev, value)
}

func TestNoteOfALaterFormat(t *testing.T) {
	from, to := fill(t), newStore()
	if _, err := to.SetMeta(ctx, counterfoil.MetaCharter, 0, []byte(`{"layout":0,"unfinished_copy":{"format":2}}`)); err != nil {
		t.Fatal(err)
	}
	refused(t, from, to, counterfoil.ErrUnreadable, "format 2")
}

// TestUnreadableRecordOfTheTarget is refused, and the others are copied.
func TestUnreadableRecordOfTheTarget(t *testing.T) {
	from, to := fill(t), newStore()
	rep := refused(t, from, blind{to}, storecopy.ErrRefused)
	if rep.Refused != 1 || rep.Copied != 15 || rep.Differences[0].ID != newID("answered") {
		t.Errorf("report %+v", rep)
	}
}

type blind struct{ counterfoil.Store }

func (b blind) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	if d.Record.ID == newID("answered") {
		return counterfoil.Standing{}, counterfoil.ErrUnreadable
	}
	return b.Store.Create(ctx, d)
}

// TestPanicIsAnError, after which the copy goes on like after any other.
func TestPanicIsAnError(t *testing.T) {
	from, to := fill(t), newStore()
	w := &wire{before: func(n int) {
		if n == 20 {
			panic("a bug")
		}
	}}
	if _, err := storecopy.Run(ctx, from, far{to, w}, storecopy.Options{}); err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("error %v", err)
	}
	run(t, from, to)
}

// TestTwoClaimsOfOneAttempt cannot be ordered.
func TestTwoClaimsOfOneAttempt(t *testing.T) {
	from, to := newStore(), newStore()
	engine(t, from)
	engine(t, to)
	r := plain("k", counterfoil.Unknown)
	put(t, from, r, nil)
	r.Token, r.State, r.LeaseUntil = counterfoil.NewToken(), counterfoil.InProgress, now.Add(time.Minute)
	put(t, to, r, nil)
	if rep := refused(t, from, to, storecopy.ErrRefused); rep.Refused != 1 {
		t.Errorf("report %+v", rep)
	}
}
