// Package reconcile moves abandoned claims on: a claim whose lease lapsed after
// it had crossed to something remote becomes unknown, one that never crossed
// becomes failed once lease and reconciliation cadence have passed. Nothing is
// run again by it, and a claim that is alive is never touched (design.md §3).
package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/internal/loop"
)

// Options of [New]. The zero value works.
type Options struct {
	// Every is the time between two passes of Run; 0 stands for 10 s. What
	// callers are told does not depend on it: the verdict on an abandoned claim
	// is the same before and after a pass.
	Every time.Duration
	// Batch is how many records are read at a time; 0 stands for 500.
	Batch int
	// OnError is told what went wrong in a pass of Run, panics included. It
	// may be nil; nothing else hears of it then.
	OnError func(error)
}

// Report is what one pass did.
type Report struct {
	// Examined are the abandoned claims that were looked at.
	Examined int
	// Unknown and Failed are those that this pass moved there.
	Unknown, Failed int
	// Left are those that must wait for their cadence, or that somebody else
	// moved first.
	Left int
	// Errors are those that could not be judged or written.
	Errors int
	// AsOf is the store's time of the last page.
	AsOf time.Time
}

// Worker reconciles. It is safe for concurrent use, and so are many of them
// over one store: every move is a compare-and-swap on the record as read.
type Worker struct {
	engine *counterfoil.Engine
	o      Options
}

// New returns a worker. It starts nothing.
func New(e *counterfoil.Engine, o Options) *Worker {
	if o.Every <= 0 {
		o.Every = 10 * time.Second
	}
	if o.Batch <= 0 {
		o.Batch = 500
	}
	return &Worker{engine: e, o: o}
}

// pageTimeout bounds one listing, so that a store that hangs does not hang the
// worker with it.
const pageTimeout = 30 * time.Second

// Once goes through every abandoned claim. A record that cannot be judged is
// counted, and the pass goes on behind it; when the store does not answer the
// pass ends there. The error says what went wrong first; the report is right
// as far as the pass came, with or without one.
func (w *Worker) Once(ctx context.Context) (Report, error) {
	var rep Report
	var first error
	var cursor []byte
	for {
		page, err := w.page(ctx, cursor)
		if err != nil {
			return rep, errors.Join(first, fmt.Errorf("reconcile: %w", err))
		}
		rep.AsOf = page.AsOf
		for _, rec := range page.Records {
			if err := ctx.Err(); err != nil {
				return rep, errors.Join(first, fmt.Errorf("reconcile: %w", err))
			}
			err := w.move(ctx, &rep, rec, page.AsOf)
			if err == nil {
				continue
			}
			rep.Errors++
			if first == nil {
				first = fmt.Errorf("reconcile: %w", err)
			}
			if errors.Is(err, counterfoil.ErrUnavailable) {
				return rep, first // the others would wait for the store as long
			}
		}
		if page.Next == nil {
			return rep, first
		}
		if bytes.Equal(page.Next, cursor) {
			return rep, errors.Join(first, errors.New("reconcile: the store's listing does not move on"))
		}
		cursor = page.Next
	}
}

func (w *Worker) page(ctx context.Context, cursor []byte) (counterfoil.Records, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return w.engine.Store().Overdue(ctx, counterfoil.Page{Limit: w.o.Batch, Cursor: cursor})
}

// move judges rec by the store's time at which it was read, never by ours.
func (w *Worker) move(ctx context.Context, rep *Report, rec counterfoil.Record, asOf time.Time) error {
	rep.Examined++
	to, err := w.engine.Reconcile(ctx, rec, asOf)
	switch {
	case err != nil:
		return err
	case to == rec.State:
		rep.Left++
	case to == counterfoil.Unknown:
		rep.Unknown++
	case to == counterfoil.Failed:
		rep.Failed++
	}
	return nil
}

// Run calls Once at once and then every o.Every, give or take a tenth, until
// ctx ends. Neither an error nor a panic ends it.
func (w *Worker) Run(ctx context.Context) {
	loop.Run(ctx, 0, w.o.Every, func(ctx context.Context) error {
		_, err := w.Once(ctx)
		return err
	}, w.o.OnError)
}
