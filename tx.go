package counterfoil

import (
	"context"
	"sync"
)

// Tx is an engine inside one transaction of the caller's: the claim, what the
// effect writes and its completion become durable by one commit, or leave no
// trace. It suits effects that are nothing but writes to that database; what
// is sent elsewhere cannot be rolled back, and needs [Engine.Begin].
//
// It decides exactly as the engine does, with these differences:
//
//   - The caller's context is used as it is, and store calls have no time of
//     their own.
//   - Nothing waits. A duplicate of a request whose transaction is open, here
//     or at another node, is told VerdictInProgress at once, whatever the
//     operation's wait.
//   - Nothing is done in the background. An error means: roll back.
//   - Until the commit nobody else sees the claim, so that Renew and KeepAlive
//     have nothing to do. Roll back instead of calling Fail.
//
// A claim that is not ended before the commit stays in progress, and lapses
// as any other. A Tx is as safe for concurrent use as the transaction is; make
// one for each transaction, and for each try of one.
type Tx struct {
	e *Engine
	s Store

	mu    sync.Mutex // guards ended
	ended []Ended    // not told yet
}

// InTx returns the engine inside a transaction. s must be bound to it: its
// calls run in the transaction and vanish with it.
func (e *Engine) InTx(s Store) *Tx { return &Tx{e: e, s: s} }

// Begin is [Engine.Begin] in the transaction. On VerdictProceed the claim is
// written but not durable: it authorises what can be rolled back with it, and
// nothing else. On every other verdict the transaction has nothing to commit.
// [Trace.Decided] is called now, whether or not the transaction is committed.
func (t *Tx) Begin(ctx context.Context, req *Request) (*Decision, error) {
	return t.e.answer(ctx, req, book{t.e, t.s, t})
}

// Committed tells [Trace.Ended] of the claims that ended in the transaction.
// The caller says it when the commit has succeeded; without it nothing is told.
func (t *Tx) Committed() {
	t.mu.Lock()
	ended := t.ended
	t.ended = nil
	t.mu.Unlock()
	for _, e := range ended {
		t.e.o.Trace.ended(e)
	}
}

func (t *Tx) note(e Ended) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(t.ended, e)
}
