package pgstore

import (
	"context"
	"fmt"

	"github.com/counterfoil/counterfoil"
)

// call queues the step and waits for its answer, or for the caller's end.
func (s *Store) call(ctx context.Context, q *queue, st *step) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	st.done = make(chan answer, 1)
	st.until, _ = ctx.Deadline()
	if !q.add(st) {
		return answer{}, errClosed
	}
	select {
	case a := <-st.done:
		return a, a.err
	case <-ctx.Done():
		return answer{}, fmt.Errorf("%w: no answer in time: %w", counterfoil.ErrUnavailable, ctx.Err())
	}
}

// Create implements [counterfoil.Store].
func (s *Store) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	st, err := newCreate(d)
	if err != nil {
		return counterfoil.Standing{}, fmt.Errorf("pgstore: create %s: %w", d.Record.ID, err)
	}
	a, err := s.call(ctx, s.writes, st)
	if err != nil {
		return counterfoil.Standing{}, fmt.Errorf("pgstore: create %s: %w", d.Record.ID, err)
	}
	out, err := a.standing(d)
	if err != nil {
		return out, fmt.Errorf("pgstore: create %s: %w", d.Record.ID, err)
	}
	return out, nil
}

// standing is the answer to a Create.
func (a *answer) standing(d *counterfoil.Draft) (out counterfoil.Standing, err error) {
	out.Record, out.AsOf = a.record, a.asOf
	switch a.outcome {
	case done:
		out.Created = true
	case standing:
		// A zero token is nobody's: tombstones have it too.
		out.Created = !d.Record.Token.IsZero() && a.record.Token == d.Record.Token
	case forgotten:
		out.Forgotten = a.forgotten
	case overQuota:
		out.OverQuota = true
	case busy:
		return out, counterfoil.ErrBusy
	default:
		return out, fmt.Errorf("%w: outcome %d", counterfoil.ErrUnavailable, a.outcome)
	}
	return out, nil
}

// Update implements [counterfoil.Store].
func (s *Store) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	st, err := newUpdate(w)
	if err != nil {
		return counterfoil.Snapshot{}, fmt.Errorf("pgstore: update %s: %w", w.Record.ID, err)
	}
	s.days.want(s, st)
	a, err := s.call(ctx, s.writes, st)
	if err == nil {
		err = a.updated()
	}
	if err != nil {
		return counterfoil.Snapshot{}, fmt.Errorf("pgstore: update %s: %w", w.Record.ID, err)
	}
	return counterfoil.Snapshot{Record: a.record, AsOf: a.asOf}, nil
}

// updated is the error of an Update, if it was not done.
func (a *answer) updated() error {
	switch a.outcome {
	case done:
		return nil
	case busy:
		return counterfoil.ErrBusy
	case overQuota:
		return counterfoil.ErrOverQuota
	case fenced:
		return counterfoil.ErrFenced
	case conflict:
		return counterfoil.ErrConflict
	case notFound:
		return counterfoil.ErrNotFound
	case unreadable:
		return counterfoil.ErrUnreadable
	}
	return fmt.Errorf("%w: outcome %d", counterfoil.ErrUnavailable, a.outcome)
}

// Get implements [counterfoil.Store].
func (s *Store) Get(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	a, err := s.call(ctx, s.reads, newGet(id))
	if err == nil {
		err = a.found()
	}
	if err != nil {
		return counterfoil.Snapshot{AsOf: a.asOf}, fmt.Errorf("pgstore: get %s: %w", id, err)
	}
	return counterfoil.Snapshot{Record: a.record, AsOf: a.asOf}, nil
}

// Response implements [counterfoil.Store].
func (s *Store) Response(ctx context.Context, id counterfoil.ID, rev uint64) ([]byte, error) {
	a, err := s.call(ctx, s.reads, newResponse(id, rev))
	if err == nil {
		err = a.found()
	}
	if err != nil {
		return nil, fmt.Errorf("pgstore: response of %s: %w", id, err)
	}
	return a.response, nil
}

func newGet(id counterfoil.ID) *step { return &step{kind: stepGet, id: id, born: none} }

func newResponse(id counterfoil.ID, rev uint64) *step {
	return &step{kind: stepResponse, id: id, ifRev: int64(rev), born: none}
}

// found is the error of a Get or Response, if there is nothing to give.
func (a *answer) found() error {
	switch {
	case a.outcome == notFound:
		return counterfoil.ErrNotFound
	case a.outcome == conflict:
		return counterfoil.ErrConflict
	case a.response == nil && a.record.State == counterfoil.Absent:
		return counterfoil.ErrNotFound // of a response, where none is kept
	}
	return nil
}
