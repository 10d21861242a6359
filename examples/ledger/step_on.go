//go:build faultpoints

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// LEDGER_DIE_AT=NAME:N ends the program by SIGKILL when it comes to the step
// NAME for the N-th time.
var (
	dieAt, dieCount, _ = strings.Cut(os.Getenv("LEDGER_DIE_AT"), ":")
	left               = func() *atomic.Int64 {
		var n atomic.Int64
		if dieAt != "" {
			count, err := strconv.ParseInt(dieCount, 10, 64)
			if err != nil || count < 1 {
				panic("LEDGER_DIE_AT: want NAME:N")
			}
			n.Store(count)
		}
		return &n
	}()
)

func step(name string) {
	if reached(name) {
		die(name)
	}
}

func reached(name string) bool { return name == dieAt && left.Add(-1) == 0 }

func die(name string) {
	fmt.Fprintln(os.Stderr, "dying at:", name)
	// Nothing after this line runs: the kernel takes the process away.
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// stepping has steps around every commit, also those inside of pgstore.
func stepping(pool *pgxpool.Pool) pgstore.Beginner { return beginner{pool} }

type beginner struct{ *pgxpool.Pool }

func (b beginner) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	tx, err := b.Pool.BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return steppingTx{tx}, nil
}

type steppingTx struct{ pgx.Tx }

func (t steppingTx) Commit(ctx context.Context) error {
	step("before the commit")
	if reached("during the commit") {
		time.AfterFunc(300*time.Microsecond, func() { die("during the commit") })
	}
	err := t.Tx.Commit(ctx)
	step("after the commit")
	return err
}
