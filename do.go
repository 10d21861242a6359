package counterfoil

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Result is what an effect came to.
type Result struct {
	Outcome Outcome
	// Response is kept for replays; nil keeps none.
	Response []byte
}

// Do begins, runs effect if and only if it may, and reports what came of it.
// The decision says which: on VerdictProceed its Record is the settled one and
// Response the effect's. The effect's context ends at the operation's deadline
// and not with ctx.
//
// The error is Begin's, the effect's own (the record is then failed or
// unknown), or ErrUnconfirmed. A panic leaves the record unknown and goes on.
func (e *Engine) Do(ctx context.Context, req *Request, effect func(context.Context, *Claim) (Result, error)) (*Decision, error) {
	d, err := e.Begin(ctx, req)
	if err != nil || d.Verdict != VerdictProceed {
		return d, err
	}
	d.Claim.KeepAlive()
	ectx, cancel := d.Claim.Context(ctx)
	defer cancel()
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit: it goes on by itself
			_, _ = d.Claim.Unknown(ctx, EvidencePanic, 0, "the effect panicked")
		}
	}()
	res, err := effect(ectx, d.Claim)
	returned = true
	var snap Snapshot
	var settle error
	switch {
	case err == nil:
		snap, settle = d.Claim.Complete(ctx, res.Outcome, res.Response)
	case errors.Is(err, ErrNoEffect):
		snap, settle = d.Claim.Fail(ctx, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		snap, settle = d.Claim.Unknown(ctx, EvidenceDeadline, 0, "the effect passed its deadline")
	default:
		snap, settle = d.Claim.Unknown(ctx, EvidenceAmbiguous, 0, "the effect returned an error")
	}
	switch {
	case settle == nil:
		d.Record, d.AsOf = snap.Record, snap.AsOf
		d.Response = res.Response // zero unless the effect completed
	case errors.Is(settle, ErrSettled):
		d.Record = snap.Record // what stands instead
	}
	return d, errors.Join(err, settle)
}

// NotRunError is returned by [Once] when the effect neither ran nor can be
// replayed; the decision says why.
type NotRunError struct{ Decision *Decision }

// Error names the verdict and the record, never the key.
func (e *NotRunError) Error() string {
	return fmt.Sprintf("%s: record %s", e.Decision.Verdict, e.Decision.ID)
}

// Once runs effect at most once for the request and returns its value, the
// kept one (as JSON) on a repeat. Every other verdict is a [NotRunError].
func Once[T any](ctx context.Context, e *Engine, req *Request, effect func(context.Context, *Claim) (T, error)) (T, error) {
	var value T
	d, err := e.Do(ctx, req, func(ctx context.Context, c *Claim) (Result, error) {
		v, err := effect(ctx, c)
		if err != nil {
			return Result{}, err
		}
		value = v
		body, err := json.Marshal(v)
		if err != nil {
			// The effect happened; only its value cannot be kept.
			return Result{Outcome: Outcome{Class: Succeeded}}, nil
		}
		return Result{Outcome: Outcome{Class: Succeeded}, Response: body}, nil
	})
	switch {
	case err != nil:
		var zero T
		return zero, err
	case d.Verdict == VerdictProceed:
		return value, nil
	case d.Verdict == VerdictReplay:
		if err := json.Unmarshal(d.Response, &value); err != nil {
			return value, fmt.Errorf("kept value: %w: %w", ErrUnreadable, err)
		}
		return value, nil
	}
	return value, &NotRunError{d}
}
