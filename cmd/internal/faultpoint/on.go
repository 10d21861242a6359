//go:build faultpoints

package faultpoint

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/counterfoil/counterfoil"
)

// Wrap returns a store that ends the process at the step that the environment
// names, or s itself where it names none.
func Wrap(s counterfoil.Store) counterfoil.Store {
	at := os.Getenv("COUNTERFOIL_FAULT_AT")
	if at == "" {
		return s
	}
	name, count, _ := strings.Cut(at, ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || n < 1 || !slices.Contains(Crashes, name) && !slices.Contains(Failures, name) {
		panic(fmt.Sprintf("COUNTERFOIL_FAULT_AT=%s: want NAME:N with NAME one of %v or %v", at, Crashes, Failures))
	}
	c := &faulty{Store: s, at: name}
	c.left.Store(n)
	return c
}

type faulty struct {
	counterfoil.Store
	at   string
	left atomic.Int64
}

// hit counts one arrival at a step, and reports whether it is the one.
func (c *faulty) hit(name string) bool {
	return c.at == name && c.left.Add(-1) == 0
}

// fails counts one call that may fail, and reports whether it does.
func (c *faulty) fails(name string) error {
	if c.at == name && c.left.Add(-1) <= 0 {
		return fmt.Errorf("%w: fault point %s", counterfoil.ErrUnavailable, name)
	}
	return nil
}

func die() {
	// Nothing after this line runs: the kernel takes the process away.
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// dieSoon dies a moment later, while the call that follows is under way.
func dieSoon() {
	time.AfterFunc(300*time.Microsecond, die)
}

func (c *faulty) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	if err := c.fails("claim-fails"); err != nil {
		return counterfoil.Standing{}, err
	}
	if c.hit("before-claim-commit") {
		die()
	}
	if c.hit("during-claim-commit") {
		dieSoon()
	}
	st, err := c.Store.Create(ctx, d)
	if err == nil && st.Created && c.hit("after-claim-commit") {
		die()
	}
	return st, err
}

func (c *faulty) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	completion := w.Record.State == counterfoil.Completed
	if completion {
		if err := c.fails("completion-fails"); err != nil {
			return counterfoil.Snapshot{}, err
		}
	}
	if completion && c.hit("before-completion-commit") {
		die()
	}
	if completion && c.hit("during-completion-commit") {
		dieSoon()
	}
	snap, err := c.Store.Update(ctx, w)
	if completion && err == nil && c.hit("after-completion-commit") {
		die()
	}
	return snap, err
}

func (c *faulty) Sweep(ctx context.Context, o counterfoil.SweepOrder) (counterfoil.SweepReport, error) {
	if c.hit("mid-sweep") {
		dieSoon()
	}
	return c.Store.Sweep(ctx, o)
}
