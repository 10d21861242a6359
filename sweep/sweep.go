// Package sweep lets go of what is past its time, in bounded batches, and keeps
// a note of when it last did: a sweeper that died is seen from outside, and so
// is one that never ran (cases.md C81, C82).
//
// No answer depends on it. A record past its time is answered the same before
// and after a sweep (cases.md C83).
package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/internal/loop"
)

// Options of [New]. The zero value works.
type Options struct {
	// Every is the time between two passes of Run; 0 stands for 1 min.
	Every time.Duration
	// Limit bounds the records examined in one batch; 0 leaves it to the store
	// (10,000).
	Limit int
	// Grace is how long an announced record still answers. A store used by one
	// process needs none; for several it is three times the interval in which
	// their engines refresh.
	Grace time.Duration
	// Now is the sweeper's own clock, held against the store's before anything
	// is deleted; nil stands for time.Now.
	Now func() time.Time
	// FirstAfter is how long Run waits before its first pass when no sweep ran
	// for more than Every, so that what a broker or a caller still had to
	// deliver when everything stopped meets the records it needs (cases.md
	// C87); 0 stands for 5 min. Make it longer than the slowest redelivery
	// after a restart.
	FirstAfter time.Duration
	// Trace hears of every batch; it may be nil.
	Trace *counterfoil.Trace
	// Progress is called after every batch with the pass so far; it may be nil.
	Progress func(Report)
	// OnError is told what went wrong in a pass of Run, panics included; it may
	// be nil.
	OnError func(error)
}

// Report is what one pass did; the embedded report is the sum of its batches.
type Report struct {
	counterfoil.SweepReport
	Batches int
	// Retried counts batches that failed and were tried again, smaller.
	Retried int
	// Complete: the pass reached its end. Otherwise records are left over.
	Complete bool
}

// Deleted is how many records are gone for good.
func (r *Report) Deleted() int { return r.TombstonesDeleted + r.FailedDeleted }

// Worker sweeps. It is safe for concurrent use, and so are many of them over
// one store.
type Worker struct {
	engine *counterfoil.Engine
	o      Options

	mu sync.Mutex // held during a pass, and guards resume
	// resume is where the next pass starts: where one that failed had come to.
	resume []byte
}

// New returns a worker. It starts nothing.
func New(e *counterfoil.Engine, o Options) *Worker {
	if o.Every <= 0 {
		o.Every = time.Minute
	}
	if o.FirstAfter <= 0 {
		o.FirstAfter = 5 * time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Worker{engine: e, o: o}
}

// Bounds of one batch. A batch that fails is tried again with a quarter of its
// limit, so that one statement that is too big does not fail the same way for
// ever (cases.md C81).
const (
	batchTimeout = time.Minute
	maxRetries   = 4
	shrink       = 4
	firstLimit   = 10_000
)

// Once makes a whole pass, at once, and notes its end in the store. After a
// pass that failed it goes on where that one came to, unless it fails there
// again: then it starts anew.
//
// The error wraps ErrCharter when this node's policy is older than the store
// has seen (another node must sweep), ErrClockSkew when nothing may be deleted
// by these clocks, and otherwise what the store said; then report.Complete is
// false and records are left over. A pass whose note could not be written is
// complete and has an error.
func (w *Worker) Once(ctx context.Context) (rep Report, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.mayRun(ctx); err != nil {
		return rep, fmt.Errorf("sweep: %w", err)
	}
	noted := false
	defer func() {
		if !noted { // a panic: it goes on by itself
			_ = w.noteFailure(ctx)
		}
	}()
	err = w.pass(ctx, &rep)
	noted = true
	if err != nil {
		if ctx.Err() == nil { // being told to stop is no failure
			// Where the store cannot take the note either, staleness tells.
			_ = w.noteFailure(ctx)
		}
		return rep, fmt.Errorf("sweep: %w", err)
	}
	if err := w.noteSuccess(ctx, &rep); err != nil {
		return rep, fmt.Errorf("sweep: the pass is done and could not be noted: %w", err)
	}
	return rep, nil
}

// mayRun reads the charter anew: another node may have brought a newer policy
// since ours was last read.
func (w *Worker) mayRun(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	if err := w.engine.Refresh(ctx); err != nil {
		return err
	}
	if !w.engine.MaySweep() {
		return fmt.Errorf("%w: this node runs policy version %d and the store has seen a newer one; a node that runs that one must sweep",
			counterfoil.ErrCharter, w.engine.Policy().Version)
	}
	return nil
}

func (w *Worker) pass(ctx context.Context, rep *Report) error {
	start := w.resume
	cursor := start
	w.resume = nil // a panic, too, starts anew
	for {
		batch, err := w.batch(ctx, cursor, rep)
		if err == nil && batch.Next != nil && bytes.Equal(batch.Next, cursor) {
			err = errors.New("the store's sweep does not move on")
		}
		if err != nil {
			if !bytes.Equal(cursor, start) {
				w.resume = cursor
			}
			return err
		}
		rep.Add(batch)
		rep.Batches++
		rep.Complete = batch.Next == nil
		if w.o.Progress != nil {
			w.o.Progress(*rep)
		}
		if rep.Complete {
			return nil
		}
		cursor = batch.Next
	}
}

// batch sweeps one batch, tried again smaller when it fails.
func (w *Worker) batch(ctx context.Context, cursor []byte, rep *Report) (counterfoil.SweepReport, error) {
	limit := w.o.Limit
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return counterfoil.SweepReport{}, err
		}
		got, err := w.sweep(ctx, counterfoil.SweepOrder{Limit: limit, Grace: w.o.Grace, Now: w.o.Now(), Cursor: cursor})
		w.o.Trace.SweptBatch(got, err)
		final := errors.Is(err, counterfoil.ErrClockSkew) || errors.Is(err, counterfoil.ErrClosed)
		if err == nil || final || try == maxRetries {
			return got, err
		}
		if limit <= 0 {
			limit = firstLimit
		}
		limit = max(limit/shrink, 1)
		rep.Retried++
	}
}

func (w *Worker) sweep(ctx context.Context, o counterfoil.SweepOrder) (counterfoil.SweepReport, error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	return w.engine.Store().Sweep(ctx, o)
}

// Run makes a pass every o.Every, give or take a tenth, until ctx ends. Neither
// an error nor a panic ends it. The first pass comes when the last one noted is
// o.Every old, or after o.FirstAfter where it is older than that already, or
// there is none.
func (w *Worker) Run(ctx context.Context) {
	loop.Run(ctx, w.first(ctx), w.o.Every, func(ctx context.Context) error {
		_, err := w.Once(ctx)
		return err
	}, w.o.OnError)
}

// first is how long the first pass waits. Not knowing counts as downtime.
func (w *Worker) first(ctx context.Context) (wait time.Duration) {
	wait = w.o.FirstAfter
	err := loop.Recover(func() error {
		last, err := LastRun(ctx, w.engine.Store())
		if err != nil || last.Run.IsZero() {
			return err
		}
		if age := w.o.Now().Sub(last.Run); age <= w.o.Every {
			wait = w.o.Every - max(age, 0)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil && w.o.OnError != nil {
		w.o.OnError(fmt.Errorf("sweep: %w", err))
	}
	return wait
}
