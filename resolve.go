package counterfoil

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Resolution is what a person says of a record whose outcome is unknown.
type Resolution struct {
	// Applied: the effect happened, with this outcome (class succeeded or
	// declined). Otherwise it is absent, on the strength of Proof.
	Applied bool
	Outcome Outcome
	// Proof of absence: ProofQuiet (looked up after t_quiet, the default),
	// ProofCancelled or ProofDeduped.
	Proof Proof
	// Early accepts absence before t_quiet; the reason is kept.
	Early bool
	// Actor and Reason are required and kept in the record's evidence.
	Actor, Reason string
	// IfRev refuses, with ErrConflict, when the record changed since it was
	// shown; 0 accepts any.
	IfRev uint64
}

// Resolve settles an unknown record by a person's word. ErrNotFound: no such
// record. ErrConflict: an attempt still holds the claim, or the record
// changed. ErrSettled: its outcome is known. ErrTooEarly: absence was claimed
// before t_quiet. ErrEvidenceFull: it can hold no more words. A record that a
// transaction holds is waited for; ErrConflict with ErrBusy when that takes
// longer than a store call may.
func (e *Engine) Resolve(ctx context.Context, id ID, res Resolution) (Snapshot, error) {
	if res.Actor == "" || res.Reason == "" {
		return Snapshot{}, errors.New("resolve: an actor and a reason are needed; they are kept as evidence")
	}
	if res.Applied && res.Outcome.Class != Succeeded && res.Outcome.Class != Declined {
		return Snapshot{}, errors.New("resolve: an applied effect has succeeded or was declined; say which")
	}
	if len(res.Outcome.Resource) > MaxResource {
		return Snapshot{}, fmt.Errorf("resolve: the resource is longer than %d bytes", MaxResource)
	}
	for range maxTries {
		cctx := e.bound(ctx)
		bk := e.book()
		snap, err := bk.read(cctx, id)
		switch {
		case err == nil, errors.Is(err, ErrNotFound), errors.Is(err, ErrUnreadable):
		case errors.Is(err, ErrBusy):
			err = errHeld
		default:
			err = unavailable(err)
		}
		if err == nil {
			if res.IfRev != 0 && res.IfRev != snap.Record.Rev {
				err = fmt.Errorf("resolve: %w: the record is at rev %d, not %d; look again", ErrConflict, snap.Record.Rev, res.IfRev)
			} else {
				snap, err = e.resolve(cctx, snap, res)
				if res.IfRev == 0 && errors.Is(err, errMoved) {
					cctx.cancel()
					continue
				}
			}
		}
		cctx.cancel()
		return snap, err
	}
	return Snapshot{}, fmt.Errorf("resolve: %w: record %s keeps changing", ErrConflict, id)
}

// errMoved marks a conflict between reading and writing, as against one that
// the person must hear of.
var errMoved = fmt.Errorf("%w: written by somebody else at the same moment", ErrConflict)

// errHeld is what a person is told of a record that a transaction has held for
// as long as a store call may take: not an answer of the store's about itself.
var errHeld = fmt.Errorf("resolve: %w: it is %w; look again when that has ended", ErrConflict, ErrBusy)

func (e *Engine) resolve(ctx context.Context, snap Snapshot, res Resolution) (Snapshot, error) {
	rec := &snap.Record
	op := e.rules.Load().made(rec)
	if op == nil {
		return Snapshot{}, fmt.Errorf("resolve: policy version %d %w", rec.Policy, ErrUnreadable)
	}
	next := rec.Clone()
	var stamps Stamps
	out := res.Outcome
	if !res.Applied {
		out = Outcome{Class: NoEffect}
	}
	ev := Evidence{Kind: EvidenceResolved, Attempt: rec.Attempt, Outcome: out, Actor: res.Actor, Reason: res.Reason}
	switch {
	case rec.State == InProgress && !rec.Lapsed(snap.AsOf):
		return Snapshot{}, fmt.Errorf("resolve: %w: attempt %d holds the claim until %s; wait for it", ErrConflict, rec.Attempt, rec.LeaseUntil.Format(time.RFC3339))
	case rec.State == Failed, rec.State == Completed, rec.State.Settled() && rec.Outcome.Class != OutcomeUnknown:
		return Snapshot{}, fmt.Errorf("resolve: %w: it is %s (%s)", ErrSettled, rec.State, rec.Outcome.Class)
	case rec.State.Settled(), rec.Closed(snap.AsOf):
		stamps = closeRecord(&next)
		next.Outcome = out // closed as unknown: filled in, never reopened
	case res.Applied:
		stamps = settleRecord(&next, op, Completed, out, ProofNone)
	default:
		proof, err := proofOfAbsence(snap, res)
		if err != nil {
			return Snapshot{}, err
		}
		stamps = settleRecord(&next, op, Failed, Outcome{}, proof)
	}
	if err := next.AddEvidence(ev); err != nil {
		return Snapshot{}, fmt.Errorf("resolve: %w", err)
	}
	stamps.EvidenceAt = In(0)
	bk := e.book()
	got, err := bk.update(ctx, "", &Write{Record: next, IfRev: rec.Rev, IfToken: rec.Token, Stamps: stamps})
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrFenced), errors.Is(err, ErrNotFound):
		return Snapshot{}, errMoved
	case errors.Is(err, ErrBusy):
		return Snapshot{}, errHeld
	case err != nil:
		return Snapshot{}, unavailable(err)
	}
	e.o.Trace.reconciled(e.OperationName(rec.Operation), rec.ID, got.Record.State)
	return got, nil
}

// proofOfAbsence is why a record may be called failed by somebody who is not
// its owner: asked after t_quiet, unless the effect was cancelled or cannot
// repeat (design.md §3).
func proofOfAbsence(snap Snapshot, res Resolution) (Proof, error) {
	rec := &snap.Record
	switch {
	case rec.State == InProgress && !rec.Dispatched:
		return ProofNeverDispatched, nil
	case res.Proof == ProofCancelled, res.Proof == ProofDeduped:
		return res.Proof, nil
	case !snap.AsOf.Before(rec.QuietAt):
		return ProofQuiet, nil
	case res.Early:
		return ProofEarly, nil
	}
	return ProofNone, fmt.Errorf("resolve: %w: something sent may still take effect until %s; ask again then, or say --early and why",
		ErrTooEarly, rec.QuietAt.Format(time.RFC3339))
}

// Reconcile moves one abandoned claim on: to unknown when it had crossed to
// something remote, to failed when it never did and lease and reconciliation
// cadence have passed. It reports the state the record is left in; a record
// that is not overdue, that somebody else moved, or that a transaction holds is
// left alone: a later pass finds it.
func (e *Engine) Reconcile(ctx context.Context, rec Record, asOf time.Time) (State, error) {
	if !rec.Lapsed(asOf) {
		return rec.State, nil
	}
	op := e.rules.Load().made(&rec)
	if op == nil {
		return rec.State, fmt.Errorf("record %s: policy version %d %w", rec.ID, rec.Policy, ErrUnreadable)
	}
	next := rec.Clone()
	var stamps Stamps
	switch {
	case rec.Dispatched:
		stamps = settleRecord(&next, op, Unknown, Outcome{}, ProofNone)
		if err := next.AddEvidence(Evidence{Kind: EvidenceLapsed, Attempt: rec.Attempt}); err == nil {
			stamps.EvidenceAt = In(0)
		}
	case rec.LeaseUntil.Add(op.Inputs.ReconciliationCadence.Total()).Before(asOf):
		stamps = settleRecord(&next, op, Failed, Outcome{}, ProofNeverDispatched)
		if err := next.AddEvidence(Evidence{Kind: EvidenceFailed, Attempt: rec.Attempt, Reason: "never dispatched"}); err == nil {
			stamps.EvidenceAt = In(0)
		}
	default:
		return rec.State, nil
	}
	cctx := e.bound(ctx)
	defer cctx.cancel()
	got, err := e.store.Update(cctx, &Write{Record: next, IfRev: rec.Rev, IfToken: rec.Token, Stamps: stamps})
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrFenced), errors.Is(err, ErrNotFound), errors.Is(err, ErrBusy):
		return rec.State, nil
	case err != nil:
		return rec.State, unavailable(err)
	}
	e.o.Trace.reconciled(e.OperationName(rec.Operation), rec.ID, got.Record.State)
	return got.Record.State, nil
}

// Distrust latches the store as untrusted and sets F of every operation to
// now: nothing that is absent may run, except under keys born later (P14).
func (e *Engine) Distrust(ctx context.Context, reason string) error {
	if err := Distrust(ctx, e.store, reason); err != nil {
		return err
	}
	return e.Refresh(ctx)
}

// Distrust is [Engine.Distrust] for a store without an engine.
func Distrust(ctx context.Context, s Store, reason string) error {
	c, _, err := ReadCharter(ctx, s)
	if err != nil {
		return err
	}
	ops := make([]OperationNumber, 0, len(c.Operations))
	for _, o := range c.Operations {
		ops = append(ops, o.Number)
	}
	if err := raiseForgotten(ctx, s, ops); err != nil {
		return err
	}
	return updateTrust(ctx, s, func(t *Trust) error {
		if !t.DistrustedAt.IsZero() {
			return nil // the first loss is the one that counts
		}
		t.DistrustedAt, t.Reason = Instant(time.Now()), reason
		return nil
	})
}

// TrustAgain ends the distrust by a person's word. ErrConflict when the store
// was not distrusted.
func (e *Engine) TrustAgain(ctx context.Context, actor, reason string) error {
	if actor == "" || reason == "" {
		return errors.New("trust: an actor and a reason are needed; they are kept")
	}
	err := updateTrust(ctx, e.store, func(t *Trust) error {
		if t.Trusted() {
			return fmt.Errorf("trust: %w: the store is trusted", ErrConflict)
		}
		*t = Trust{TrustedAt: Instant(time.Now()), Actor: actor, Word: reason}
		return nil
	})
	if err != nil {
		return err
	}
	return e.Refresh(ctx)
}
