package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/counterfoil/counterfoil"
)

// worker takes what is queued, does it in one transaction and hands out the
// answers: group commit. Its calls have no deadline of their own: a commit that
// waits for a standby must not be cancelled (dangers.md G02).
type worker struct {
	s     *Store
	queue *queue
}

// busyFor is how long a step is tried again that another transaction holds,
// before its caller is told: the commit of another batch takes less.
const busyFor = 25 * time.Millisecond

func (w *worker) run() {
	defer w.s.workers.Done()
	for w.queue.wait() {
		// The connection first: while it is waited for, more callers come.
		conn, err := w.s.pool.Acquire(w.s.stop)
		batch := w.queue.take(w.s.o.Batch)
		if err != nil {
			w.unreachable(batch, err)
			continue
		}
		if len(batch) > 0 && w.s.begin(conn) {
			// Stable: steps of one ID keep their order.
			slices.SortStableFunc(batch, func(a, b *step) int { return a.id.Compare(b.id) })
			w.batch(conn, batch)
			w.s.end(conn)
		} else {
			for _, s := range batch {
				s.answer(answer{err: errClosed})
			}
		}
		conn.Release()
	}
}

// unreachable answers steps of which nothing was sent.
func (w *worker) unreachable(batch []*step, err error) {
	if w.s.stop.Err() != nil {
		err = errClosed
	} else {
		err = fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
	}
	for _, s := range batch {
		s.answer(answer{err: err})
	}
}

// batch does the steps and answers them.
func (w *worker) batch(conn *pgxpool.Conn, steps []*step) {
	answers := make([]answer, len(steps))
	warned := warnings(conn)
	before := warned.Load()
	err := w.s.apply.run(context.Background(), conn.Conn().PgConn(), steps, answers, false)
	if err == nil && warned.Load() != before {
		// The wait for a standby was cancelled: committed here, and perhaps
		// nowhere else (dangers.md G03). Asking again waits again.
		err = errors.New("the server committed with a warning")
	}
	if err == nil {
		for i, s := range steps {
			w.settle(s, &answers[i])
		}
		return
	}
	var pg *pgconn.PgError
	refused := errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR" && !conn.Conn().IsClosed()
	switch {
	case refused && (pg.Code == codeSerialization || pg.Code == codeDeadlock):
		w.later(steps, err)
	case refused && len(steps) > 1 && !strings.HasPrefix(pg.Code, "CF") && !strings.HasPrefix(pg.Code, "42"):
		// One step spoils it for all, or it is too much at once: a lock table
		// that is full (53200), a statement_timeout.
		w.s.log.Warn("a batch was refused and is done in halves", "steps", len(steps), "error", err)
		w.batch(conn, steps[:len(steps)/2])
		w.batch(conn, steps[len(steps)/2:])
	case refused || pgconn.SafeToRetry(err):
		for _, s := range steps {
			s.answer(answer{err: w.s.explain(err)})
		}
	default:
		// The connection was lost and nobody knows what was done. Each step is
		// done again: a claim knows itself by its token, a write by what it wrote.
		for _, s := range steps {
			s.unclear = true
		}
		w.later(steps, err)
	}
}

// later queues the steps again; one that has been at it for too long is
// answered.
func (w *worker) later(steps []*step, err error) {
	for _, s := range steps {
		if s.tries++; s.tries > maxTries {
			s.answer(answer{err: w.s.explain(err)})
			continue
		}
		w.queue.addLater(s)
	}
}

// maxTries bounds how often a step is done again after errors: some 15 s.
const maxTries = 300

// settle answers a step, or queues it again where it was in somebody's way.
func (w *worker) settle(s *step, a *answer) {
	switch a.outcome {
	case again:
		w.queue.addLater(s)
		return
	case busy:
		if s.since.IsZero() {
			s.since = time.Now()
		}
		// The transaction of an unclear try may be what holds it: that will end.
		if s.unclear || time.Since(s.since) < busyFor {
			w.queue.addLater(s)
			return
		}
	case fenced, conflict:
		if s.unclear && s.kind == stepUpdate && s.wrote(a) {
			a.outcome = done
		}
	}
	s.answer(*a)
}

// wrote recognises the step's own write in what stands: the next rev, under the
// token that the write carried, with the content that it carried.
func (s *step) wrote(a *answer) bool {
	return a.err == nil && a.record.Rev == uint64(s.ifRev)+1 && int16(a.record.State) == s.state &&
		bytes.Equal(s.token, bytesOrNil(a.record.Token[:], a.record.Token.IsZero())) && bytes.Equal(s.body, a.raw)
}

// SQLSTATEs that are told apart.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeReadOnly      = "25006"
	codeUndefinedRel  = "42P01"
	codeUndefinedFunc = "42883"
	codePrivilege     = "42501"
	codeClockSkew     = "CF001"
	codeIsolation     = "CF002"
	codeStandby       = "CF003"
)

// explain wraps what the server said, and adds what to do.
func (s *Store) explain(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
	}
	switch pg.Code {
	case codeClockSkew:
		return fmt.Errorf("%w: %s", counterfoil.ErrClockSkew, pg.Message)
	case codeReadOnly:
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	case codeUndefinedRel, codeUndefinedFunc:
		return fmt.Errorf("%w: %w; run counterfoil store migrate", counterfoil.ErrUnavailable, err)
	case codePrivilege:
		return fmt.Errorf("%w: %w; docs/store-postgres.md has the GRANTs", counterfoil.ErrUnavailable, err)
	}
	if pg.Hint != "" {
		return fmt.Errorf("%w: %w; %s", counterfoil.ErrUnavailable, err, pg.Hint)
	}
	return fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
}

// warnings is the count of warnings that the server sent on a connection.
func warnings(conn *pgxpool.Conn) *atomic.Int64 {
	if n, ok := conn.Conn().PgConn().CustomData()[warningsKey].(*atomic.Int64); ok {
		return n
	}
	return new(atomic.Int64)
}

const warningsKey = "counterfoil warnings"
