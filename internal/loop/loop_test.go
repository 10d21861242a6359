package loop_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil/internal/loop"
)

// TestRun: the first pass comes when asked, the others about every tenth of a
// minute apart from each other's end, whatever became of them.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		var starts []time.Duration
		reported := 0
		loop.Run(ctx, 5*time.Second, time.Minute, func(context.Context) error {
			starts = append(starts, time.Since(began))
			switch len(starts) {
			case 1:
				return errors.New("an error")
			case 2:
				panic("a bug")
			case 100:
				stop()
				return ctx.Err()
			}
			return nil
		}, func(error) { reported++ })
		if len(starts) != 100 || starts[0] != 5*time.Second {
			t.Fatalf("%d passes, the first after %s", len(starts), starts[0])
		}
		if reported != 2 {
			t.Errorf("%d errors reported, want 2: ending is none", reported)
		}
		waits := map[time.Duration]bool{}
		for i := 1; i < len(starts); i++ {
			d := starts[i] - starts[i-1]
			waits[d] = true
			if d < 54*time.Second || d > 66*time.Second {
				t.Errorf("waited %s before pass %d", d, i+1)
			}
		}
		if len(waits) < 50 {
			t.Errorf("only %d different waits: no jitter", len(waits))
		}
	})
}

// TestRunEndsBeforeFirstPass without having made one.
func TestRunEndsBeforeFirstPass(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	loop.Run(ctx, time.Hour, time.Hour, func(context.Context) error { t.Error("ran"); return nil }, nil)
}

// TestRecover keeps the stack: without it nobody finds the bug.
func TestRecover(t *testing.T) {
	err := loop.Recover(func() error { panic("a bug") })
	if err == nil || !strings.Contains(err.Error(), "a bug") || !strings.Contains(err.Error(), "loop_test.go") {
		t.Errorf("error %v, want the panic with its stack", err)
	}
}
