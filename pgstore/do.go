package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil"
)

// Beginner begins transactions: a pgxpool.Pool, or a pgx.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Effect is what [Store.Do] runs at most once: it writes through tx and does
// nothing that cannot be rolled back with it. It may be run again after a
// serialization failure, when all it wrote is undone.
type Effect[T any] func(ctx context.Context, tx T, c *counterfoil.Claim) (counterfoil.Result, error)

// Do begins a transaction, claims, runs effect if and only if it may, completes
// and commits: claim, effect and completion become durable together, or not at
// all. The decision says what happened; on VerdictProceed its Record is the
// completed one and Response the effect's.
//
// An error of effect, or a panic, rolls everything back: nothing happened, and
// the same request may run again. A transaction that failed to serialize, or
// whose commit was not answered, is begun again: its claim tells whether the
// one before was committed. A duplicate that finds the claim uncommitted waits
// as long as the policy says, holding no connection, and is then told
// VerdictInProgress.
//
// ErrUnconfirmed: the commit was not answered and the database does not say
// what became of it; withhold the answer, and ask again with the same request.
func (s *Store) Do(ctx context.Context, e *counterfoil.Engine, db Beginner, o pgx.TxOptions, req *counterfoil.Request, effect Effect[pgx.Tx]) (*counterfoil.Decision, error) {
	return do(ctx, e, req, effect, func(ctx context.Context) (*unit[pgx.Tx], error) {
		tx, err := db.BeginTx(ctx, o)
		if err != nil {
			return nil, err
		}
		return &unit[pgx.Tx]{tx, s.InTx(tx), tx.Commit, tx.Rollback}, nil
	})
}

// DoSQL is [Store.Do] over database/sql.
func (s *Store) DoSQL(ctx context.Context, e *counterfoil.Engine, db *sql.DB, o *sql.TxOptions, req *counterfoil.Request, effect Effect[*sql.Tx]) (*counterfoil.Decision, error) {
	return do(ctx, e, req, effect, func(ctx context.Context) (*unit[*sql.Tx], error) {
		tx, err := db.BeginTx(ctx, o)
		if err != nil {
			return nil, err
		}
		return &unit[*sql.Tx]{
			tx, s.InSQLTx(tx),
			func(context.Context) error { return tx.Commit() },
			func(context.Context) error { return tx.Rollback() },
		}, nil
	})
}

// unit is one transaction of either kind.
type unit[T any] struct {
	tx       T
	store    *TxStore
	commit   func(context.Context) error
	rollback func(context.Context) error
}

// doTries bounds how often a transaction is begun again.
const doTries = 20

// doPause is how often a duplicate that waits looks again.
const doPause = 25 * time.Millisecond

// attempt is what Do remembers of a commit that was not answered.
type attempt struct {
	token  counterfoil.Token
	result counterfoil.Result
	err    error
}

func do[T any](ctx context.Context, e *counterfoil.Engine, req *counterfoil.Request, effect Effect[T], begin func(context.Context) (*unit[T], error)) (*counterfoil.Decision, error) {
	var wait time.Duration
	if op := e.Policy().Operation(req.Operation); op != nil && !req.NoWait {
		wait = op.Wait
	}
	until := time.Now().Add(wait)
	var last attempt
	for try := 0; ; {
		d, err := once(ctx, e, req, effect, begin, &last)
		switch {
		case err != nil && retriable(err) && try < doTries:
			try++
		case err != nil && last.err != nil:
			if errors.Is(err, last.err) && try < doTries { // just now: look what came of it
				try++
				continue
			}
			return d, fmt.Errorf("%w: %w", counterfoil.ErrUnconfirmed, err)
		case err != nil || d.Verdict != counterfoil.VerdictInProgress || !time.Now().Before(until):
			return d, err
		}
		t := time.NewTimer(doPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			if last.err != nil {
				return d, fmt.Errorf("%w: %w", counterfoil.ErrUnconfirmed, ctx.Err())
			}
			return d, errors.Join(err, ctx.Err())
		}
	}
}

// once is one transaction.
func once[T any](ctx context.Context, e *counterfoil.Engine, req *counterfoil.Request, effect Effect[T], begin func(context.Context) (*unit[T], error), last *attempt) (_ *counterfoil.Decision, err error) {
	u, err := begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
	}
	over := false
	defer func() {
		if !over { // also after a panic, which goes on by itself
			_ = u.rollback(context.WithoutCancel(ctx))
		}
	}()
	tx := e.InTx(u.store)
	d, err := tx.Begin(ctx, req)
	if err != nil {
		return nil, err
	}
	if d.Verdict != counterfoil.VerdictProceed {
		// The commit is the fence of what was read.
		over = true
		if err := u.commit(context.WithoutCancel(ctx)); err != nil {
			return nil, fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
		}
		if last.err != nil && !last.token.IsZero() && d.Record.Token == last.token && d.Record.State == counterfoil.Completed {
			// Our own commit, whose answer was lost.
			d.Verdict, d.Response = counterfoil.VerdictProceed, last.result.Response
		}
		return d, nil
	}
	res, err := effect(ctx, u.tx, d.Claim)
	if err != nil {
		return d, err
	}
	snap, err := d.Claim.Complete(ctx, res.Outcome, res.Response)
	if err != nil {
		return d, err
	}
	over = true
	if err := u.commit(context.WithoutCancel(ctx)); err != nil {
		if unanswered(err) {
			*last = attempt{snap.Record.Token, res, err}
		}
		return d, fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
	}
	tx.Committed()
	d.Record, d.AsOf, d.Response = snap.Record, snap.AsOf, res.Response
	return d, nil
}

// unanswered reports that a commit may have been done: the server said nothing,
// or only that it ends the connection.
func unanswered(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return strings.HasPrefix(state.SQLState(), "57P") || strings.HasPrefix(state.SQLState(), "08")
	}
	return !errors.Is(err, pgx.ErrTxCommitRollback) && !errors.Is(err, sql.ErrTxDone)
}

// retriable reports a serialization failure or a deadlock: the transaction is
// undone, and may be run again as it is.
func retriable(err error) bool {
	var state interface{ SQLState() string } // pgx and lib/pq alike
	if !errors.As(err, &state) {
		return false
	}
	return state.SQLState() == codeSerialization || state.SQLState() == codeDeadlock
}
