package counterfoil

import (
	"context"
	"errors"
	"time"
)

// book is where decisions are read and claims are written: the engine's own
// store, or a store inside a caller's transaction.
type book struct {
	e     *Engine
	store Store
	// tx is nil for the engine's own store.
	tx *Tx
}

func (e *Engine) book() book { return book{e: e, store: e.store} }

// bound is the context of a store call that is made for ctx. The caller must
// cancel the second.
func (b *book) bound(ctx context.Context) (context.Context, *storeContext) {
	if b.tx != nil {
		return ctx, nil // the transaction is doomed when it ends
	}
	c := b.e.bound(ctx)
	return c, c
}

// update writes w, and waits out a transaction that holds the record. call is
// its name in the trace; empty where it is not made for a request.
func (b *book) update(ctx context.Context, call string, w *Write) (Snapshot, error) {
	for p := (patience{}); ; {
		start := time.Now()
		snap, err := b.store.Update(ctx, w)
		if call != "" {
			b.e.o.Trace.storeCall(call, start, err)
		}
		if !errors.Is(err, ErrBusy) || !p.wait(ctx, b) {
			return snap, err
		}
	}
}

// read is Get, and waits like update.
func (b *book) read(ctx context.Context, id ID) (Snapshot, error) {
	for p := (patience{}); ; {
		snap, err := b.store.Get(ctx, id)
		if !errors.Is(err, ErrBusy) || !p.wait(ctx, b) {
			return snap, err
		}
	}
}

// How long is paused between two tries on a record that a transaction holds:
// most end within milliseconds of having written.
const (
	busyPause    = 5 * time.Millisecond
	maxBusyPause = 50 * time.Millisecond
)

// patience spaces out tries on a record that a transaction holds.
type patience struct {
	pause time.Duration // the last
	until time.Time
}

// wait returns false when the call's time is over, and at once in a transaction
// of the caller's, where nothing waits.
func (p *patience) wait(ctx context.Context, b *book) bool {
	if b.tx != nil {
		return false
	}
	if p.pause == 0 {
		p.until = time.Now().Add(b.e.o.StoreTimeout)
	}
	if !time.Now().Before(p.until) {
		return false
	}
	p.pause = min(max(2*p.pause, busyPause), maxBusyPause)
	t := time.NewTimer(p.pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
