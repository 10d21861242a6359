package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/jackc/pgx/v5"
)

// transfer is the handler of POST /transfers, under the guard.
//
// What becomes durable when:
//
//  1. The guard claims the key, by itself, before this runs: one commit.
//  2. The transaction below: the money and the completion, one commit.
//  3. The guard attaches the answer to the record, for replays: one commit.
//
// Killed before 2, no money has moved: the claim lapses with its lease, and a
// retry runs again (policy.yaml says why it may). Killed between 2 and 3, the
// outcome stands and only the answer's text is lost: a retry is told that the
// request was processed, with the Location of the transfer.
//
// Take this way for a service that exists, or that has many routes: handlers
// stay handlers, the guard does keys, fingerprints, replays and problems, and
// CompleteIn is one call before the commit. A handler that needs longer than a
// transaction should, or that also calls somebody else, can do so under the
// guard too, with attempt.Dispatch before the call. Price: three commits, and
// after a crash a retry waits for the lease.
func (s *service) transfer(w http.ResponseWriter, r *http.Request) {
	attempt, ok := httpguard.FromContext(r.Context())
	if !ok {
		// Without the guard nothing would stop the second transfer.
		fault(http.StatusInternalServerError, "the route is not guarded").write(w)
		return
	}
	body, err := io.ReadAll(r.Body) // the guard has bounded it
	if err != nil {
		fault(http.StatusBadRequest, "the body could not be read").write(w)
		return
	}
	o, err := parseOrder(r.Header.Get(accountHeader), body)
	if err != nil {
		fault(http.StatusBadRequest, err.Error()).write(w)
		return
	}
	step("claimed by the guard")
	res, err := s.transferIn(r.Context(), attempt, o)
	if err != nil {
		// Rolled back, so the key may run again. That may be said even where the
		// commit was sent and not answered: the guard looks first at what stands,
		// and a completion that was committed after all wins over this.
		attempt.NoEffect("the transaction was rolled back")
		s.log.Error("a transfer was not made", "record", attempt.ID(), "error", err)
		fault(http.StatusServiceUnavailable, "nothing was moved; send the same key again").write(w)
		return
	}
	res.write(w)
}

// transferIn is the transaction. An error, or a panic of the effect, which
// becomes one, means that it was rolled back or that its commit was not
// answered.
func (s *service) transferIn(ctx context.Context, attempt *httpguard.Attempt, o order) (_ *result, err error) {
	tx, err := s.db.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = tx.Rollback(context.WithoutCancel(ctx)) // does nothing after a commit
		// The guard takes a panic for an outcome that nobody knows, which would
		// spend the key. Here it is known: the money went back with the transaction.
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	step("transaction begun")
	res, err := move(ctx, tx, o)
	if err != nil {
		return nil, err
	}
	// The record is written beside the money. If this attempt's claim has lapsed
	// and a later one runs, it is refused here (ErrFenced), and this transaction
	// goes back: of two attempts only one can commit. A declined order is an
	// outcome too, to be told again.
	if err := attempt.CompleteIn(ctx, s.store.InTx(tx), res.outcome()); err != nil {
		return nil, err
	}
	step("completed in the transaction")
	// Not given up at the deadline: a commit that was sent will be answered.
	if err := tx.Commit(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	step("transfer committed")
	return res, nil
}
