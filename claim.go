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
	book
	op *policy.Operation
	// start is monotonic, taken before the store was asked: the owner sends
	// nothing after start + deadline.
	start time.Time
	// id and attempt never change, and are read without the lock.
	id      ID
	attempt uint32

	mu    sync.Mutex // guards what follows, and orders this claim's writes
	rec   Record
	ended bool
	// unsure: what ended the claim was Unknown. The owner may still learn what
	// happened, and say so once.
	unsure bool
	// completedIn: CompleteIn was called, so that the record may be completed
	// without this claim having seen it.
	completedIn bool
	timer       *time.Timer
	flight      flight // ends with the claim, and wakes waiting duplicates
}

func (c *Claim) init(bk book, op *policy.Operation, rec *Record, start time.Time) {
	c.book, c.op, c.id, c.attempt, c.rec, c.start = bk, op, rec.ID, rec.Attempt, *rec, start
	if c.tx == nil {
		c.e.flights.start(c.id, &c.flight)
	}
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
// lapsed, or that what CompleteIn wrote was committed: the outcome may still be
// reported. ErrBusy: a transaction holds the record; the claim stands, as far
// as it is known. In a transaction of its own ([Tx]) a claim has no lease that
// others could see, and Renew does nothing.
func (c *Claim) Renew(ctx context.Context) error {
	if c.tx != nil {
		return nil
	}
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
	cctx, own := c.bound(ctx)
	defer own.cancel()
	for try := 0; ; try++ {
		snap, err := c.update(cctx, call, &Write{Record: next, IfRev: c.rec.Rev, IfToken: c.rec.Token, Stamps: stamps})
		if err == nil {
			c.rec = snap.Record
			return nil
		}
		if !errors.Is(err, ErrConflict) || try > 0 {
			return fmt.Errorf("%s: %w", call, err)
		}
		if stands, unread := c.again(cctx); unread != nil {
			return fmt.Errorf("%s: %w", call, unread)
		} else if !stands {
			return fmt.Errorf("%s: %w", call, err)
		}
		// An earlier write of ours was done and its answer lost.
		dispatched := next.Dispatched
		next = c.rec.Clone()
		next.Dispatched = next.Dispatched || dispatched
	}
}

// again reads the record after a conflict, and reports whether the claim still
// stands: nobody but its owner writes to a record in progress. An error means
// that it may.
func (c *Claim) again(ctx context.Context) (bool, error) {
	snap, err := c.read(ctx, c.id)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case snap.Record.Token != c.rec.Token || snap.Record.State != InProgress:
		return false, nil
	}
	c.rec = snap.Record
	return true, nil
}

// KeepAlive renews the lease every third of it until the claim ends or its
// deadline passes. It costs a timer, and a goroutine only while renewing. In a
// transaction of its own ([Tx]) a claim has nothing to renew, and it does nothing.
func (c *Claim) KeepAlive() {
	if c.tx != nil {
		return
	}
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
//
// After [Claim.CompleteIn] it looks first at what stands. Where that was
// committed it only attaches the response, if out does not say otherwise than
// the record; when that fails the outcome stands without it, and so does the
// nil. Where it was rolled back Complete does as always.
func (c *Claim) Complete(ctx context.Context, out Outcome, response []byte) (Snapshot, error) {
	out.Resource = clipResource(out.Resource)
	return c.end(ctx, report{call: "complete", state: Completed, outcome: out, response: response})
}

// CompleteIn writes the outcome through s, a store inside the caller's own
// transaction, beside what the effect writes there: both become durable by one
// commit, or neither does. The caller's ctx bounds the call.
//
// The claim does not end by it, since the transaction may still be rolled back:
// whoever holds it goes on to Complete, Fail or Unknown when the transaction
// has ended, and these find out which it was. Between the commit and Complete
// a duplicate is told that the request was processed already. On any error the transaction must
// be rolled back. ErrFenced: a later attempt opened. ErrSettled: the claim has
// ended, or another outcome stands. ErrBusy: another transaction holds the
// record.
//
// It may be called past the deadline and past the lease, for the owner is the
// best evidence there is; again in the same transaction with the same outcome;
// and in another transaction once the first was rolled back.
func (c *Claim) CompleteIn(ctx context.Context, s Store, out Outcome) error {
	out.Resource = clipResource(out.Resource)
	c.mu.Lock()
	if c.ended && !c.unsure {
		c.mu.Unlock()
		return fmt.Errorf("complete: %w", ErrSettled)
	}
	// Before it is written: the caller may commit in spite of an error.
	c.completedIn = true
	rec := c.rec.Clone()
	c.mu.Unlock()
	// Not under the lock: the deadline must not wait for the caller's database.
	w := newSettling(book{c.e, s, c.tx}, c.op, &rec, report{call: "complete", state: Completed, outcome: out})
	w.undoable = true
	_, err := w.run(ctx)
	return err
}

// Fail states that no effect happened: the same request may run again. Where
// [Claim.CompleteIn] was committed after all it is ErrSettled, with the record
// that stands, and nothing changes.
func (c *Claim) Fail(ctx context.Context, reason string) (Snapshot, error) {
	return c.end(ctx, report{call: "fail", state: Failed, evidence: Evidence{Kind: EvidenceFailed, Reason: reason}})
}

// Unknown states that nobody can tell what happened, and why. last is the last
// status seen, if any. The owner may still Complete or Fail the claim once, if
// it learns the outcome after all (a handler that passed its deadline). After
// [Claim.CompleteIn] it is as Fail.
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
	s := newSettling(c.book, c.op, &c.rec, rep)
	s.completedIn, s.undoable = c.completedIn, c.tx != nil
	cctx, own := c.bound(ctx)
	defer own.cancel()
	snap, err := s.run(cctx)
	if c.tx != nil {
		if err == nil {
			c.rec = snap.Record
			c.tx.note(c.told(snap, effect))
		}
		return snap, err
	}
	if err != nil && !s.final(err) {
		c.e.o.Trace.unconfirmed(c.op.Name, c.rec.ID, err)
		// Waiting duplicates stay asleep until the outcome is settled.
		s.detach()
		c.e.background(c.start.Add(c.op.QuietAfter()), func(ctx context.Context) bool {
			snap, err := s.run(ctx)
			if err == nil {
				c.e.o.Trace.ended(c.told(snap, effect))
			}
			return err == nil || s.final(err)
		}, func() { c.wake(late) })
		return Snapshot{}, fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	c.wake(late)
	if err == nil {
		c.rec = snap.Record
		c.e.o.Trace.ended(c.told(snap, effect))
	}
	return snap, err
}

func (c *Claim) told(snap Snapshot, effect time.Duration) Ended {
	return Ended{Operation: c.op.Name, ID: c.id, State: snap.Record.State, Effect: effect}
}

// wake lets waiting duplicates decide again. A late report wakes nobody: the
// flight ended with the first one.
func (c *Claim) wake(late bool) {
	if late {
		return
	}
	c.e.flights.end(c.id, &c.flight)
}
