package counterfoil

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// Claim is the exclusive right to attempt one effect. Whoever gets one must
// end it by Complete, Fail or Unknown; a claim that is dropped lapses, and its
// record becomes unknown. It is safe for concurrent use.
type Claim struct {
	e  *Engine
	op *policy.Operation
	// start is monotonic, taken before the store was asked: the owner sends
	// nothing after start + deadline.
	start time.Time
	// id and attempt never change, and are read without the lock.
	id      ID
	attempt uint32

	mu    sync.Mutex // guards rec and ended, and orders this claim's writes
	rec   Record
	ended bool
	// unsure: what ended the claim was Unknown. The owner may still learn what
	// happened, and say so once.
	unsure bool
	timer  *time.Timer
	flight flight // ends with the claim, and wakes waiting duplicates
}

func (c *Claim) init(e *Engine, op *policy.Operation, rec *Record, start time.Time) {
	c.e, c.op, c.id, c.attempt, c.rec, c.start = e, op, rec.ID, rec.Attempt, *rec, start
	e.flights.start(c.id, &c.flight)
}

// ID is the record's place.
func (c *Claim) ID() ID { return c.id }

// Attempt is 1, 2, … per record.
func (c *Claim) Attempt() uint32 { return c.attempt }

// Identity is the same on every attempt of a record, fit as a downstream
// idempotency key.
func (c *Claim) Identity() string { return c.id.String() }

// Operation holds the rules this claim was made under.
func (c *Claim) Operation() *policy.Operation { return c.op }

// Record is the record as this claim last wrote it.
func (c *Claim) Record() Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rec.Clone()
}

// Deadline is the owner's own monotonic deadline, counted from before the
// claim: nothing may be sent after it.
func (c *Claim) Deadline() time.Time { return c.start.Add(c.op.Deadline) }

// Context is the context for the effect: it carries parent's values, ends at
// the deadline, and does not end when the caller goes away (contract.md §4).
func (c *Claim) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(context.WithoutCancel(parent), c.Deadline(), context.DeadlineExceeded)
}

// Dispatch marks the crossing to something remote. It must be confirmed before
// anything is sent: on any error the caller sends nothing. It renews the lease
// in the same write. Operations with dispatch: implicit need not call it.
func (c *Claim) Dispatch(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return fmt.Errorf("dispatch: %w", ErrSettled)
	}
	if time.Now().After(c.Deadline()) {
		return fmt.Errorf("dispatch: %w", context.DeadlineExceeded)
	}
	if c.rec.Dispatched {
		return nil
	}
	next := c.rec.Clone()
	next.Dispatched = true
	stamps := Stamps{LastDispatch: In(0), LeaseUntil: In(c.op.Lease), Gates: c.op.Gates}
	if next.FirstDispatch.IsZero() {
		stamps.FirstDispatch = In(0)
	}
	return c.write(ctx, "dispatch", next, stamps)
}

// Renew extends the lease. ErrConflict or ErrFenced mean that the claim
// lapsed: the outcome may still be reported.
func (c *Claim) Renew(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return fmt.Errorf("renew: %w", ErrSettled)
	}
	if time.Now().After(c.Deadline()) {
		return fmt.Errorf("renew: %w", context.DeadlineExceeded)
	}
	return c.write(ctx, "renew", c.rec, Stamps{LeaseUntil: In(c.op.Lease)})
}

func (c *Claim) write(ctx context.Context, call string, next Record, stamps Stamps) error {
	cctx := c.e.bound(ctx)
	defer cctx.cancel()
	for try := 0; ; try++ {
		start := time.Now()
		snap, err := c.e.store.Update(cctx, &Write{Record: next, IfRev: c.rec.Rev, IfToken: c.rec.Token, Stamps: stamps})
		c.e.o.Trace.storeCall(call, start, err)
		if err == nil {
			c.rec = snap.Record
			return nil
		}
		if !errors.Is(err, ErrConflict) || try > 0 || !c.again(cctx) {
			return fmt.Errorf("%s: %w", call, err)
		}
		// An earlier write of ours was done and its answer lost.
		dispatched := next.Dispatched
		next = c.rec.Clone()
		next.Dispatched = next.Dispatched || dispatched
	}
}

// again reads the record after a conflict, and reports whether the claim still
// stands: nobody but its owner writes to a record in progress.
func (c *Claim) again(ctx context.Context) bool {
	snap, err := c.e.store.Get(ctx, c.id)
	if err != nil || snap.Record.Token != c.rec.Token || snap.Record.State != InProgress {
		return false
	}
	c.rec = snap.Record
	return true
}

// KeepAlive renews the lease every third of it until the claim ends or its
// deadline passes. It costs a timer, and a goroutine only while renewing.
func (c *Claim) KeepAlive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.timer != nil {
		return
	}
	every := max(c.op.Lease/3, 10*time.Millisecond)
	c.timer = time.AfterFunc(every, func() {
		err := c.Renew(context.Background())
		if errors.Is(err, ErrSettled) || errors.Is(err, ErrFenced) || errors.Is(err, ErrConflict) ||
			errors.Is(err, ErrNotFound) || errors.Is(err, context.DeadlineExceeded) && time.Now().After(c.Deadline()) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.ended {
			c.timer.Reset(every)
		}
	})
}

// Complete reports the outcome. When it returns nil the outcome and response
// are durable and the answer may leave. A lapsed claim still completes: the
// owner is the best evidence there is, while no later attempt opened.
//
// ErrUnconfirmed: the store did not say; the answer must be withheld, and the
// engine goes on trying until t_quiet. ErrSettled: the record already has
// another outcome, returned in the snapshot. ErrFenced: a later attempt
// opened; nothing changed and the contradiction is counted.
func (c *Claim) Complete(ctx context.Context, out Outcome, response []byte) (Snapshot, error) {
	out.Resource = clipResource(out.Resource)
	return c.end(ctx, report{call: "complete", state: Completed, outcome: out, response: response})
}

// Fail states that no effect happened: the same request may run again.
func (c *Claim) Fail(ctx context.Context, reason string) (Snapshot, error) {
	return c.end(ctx, report{call: "fail", state: Failed, evidence: Evidence{Kind: EvidenceFailed, Reason: reason}})
}

// Unknown states that nobody can tell what happened, and why. last is the last
// status seen, if any. The owner may still Complete or Fail the claim once, if
// it learns the outcome after all (a handler that passed its deadline).
func (c *Claim) Unknown(ctx context.Context, kind EvidenceKind, last int, reason string) (Snapshot, error) {
	return c.end(ctx, report{
		call: "unknown", state: Unknown, outcome: Outcome{Status: last},
		evidence: Evidence{Kind: kind, Outcome: Outcome{Status: last}, Reason: reason},
	})
}

// clipResource drops a resource that is too long to keep: half an address is
// worse than none.
func clipResource(s string) string {
	if len(s) > MaxResource {
		return ""
	}
	return s
}

func (c *Claim) end(ctx context.Context, rep report) (Snapshot, error) {
	effect := time.Since(c.start)
	c.mu.Lock()
	defer c.mu.Unlock()
	late := c.ended
	if late && (!c.unsure || rep.state == Unknown) {
		return Snapshot{}, fmt.Errorf("%s: %w", rep.call, ErrSettled)
	}
	c.ended, c.unsure = true, rep.state == Unknown
	if c.timer != nil {
		c.timer.Stop()
	}
	s := newSettling(c.e, c.op, &c.rec, rep)
	cctx := c.e.bound(ctx)
	defer cctx.cancel()
	snap, err := s.run(cctx)
	if err != nil && !s.final(err) {
		c.e.o.Trace.unconfirmed(c.op.Name, c.rec.ID, err)
		// Waiting duplicates stay asleep until the outcome is settled.
		s.detach()
		c.e.background(c.start.Add(c.op.QuietAfter()), func(ctx context.Context) bool {
			snap, err := s.run(ctx)
			if err == nil {
				c.tell(snap, effect)
			}
			return err == nil || s.final(err)
		}, func() { c.wake(late) })
		return Snapshot{}, fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	c.wake(late)
	if err == nil {
		c.rec = snap.Record
		c.tell(snap, effect)
	}
	return snap, err
}

func (c *Claim) tell(snap Snapshot, effect time.Duration) {
	c.e.o.Trace.ended(Ended{Operation: c.op.Name, ID: c.id, State: snap.Record.State, Effect: effect})
}

// wake lets waiting duplicates decide again. A late report wakes nobody: the
// flight ended with the first one.
func (c *Claim) wake(late bool) {
	if late {
		return
	}
	c.e.flights.end(c.id, &c.flight)
}
