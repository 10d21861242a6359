package httpguard

import (
	"context"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// Attempt is what a handler under the guard can know and say of the attempt it
// is making. It is safe for concurrent use. What is said after the handler
// returned is ignored; of several things said the gravest counts.
type Attempt struct{ x *exchange }

type attemptKey struct{}

// FromContext returns the attempt that a request's context belongs to, and
// false where the request is not guarded.
func FromContext(ctx context.Context) (*Attempt, bool) {
	a, ok := ctx.Value(attemptKey{}).(*Attempt)
	return a, ok
}

// ID is the record's id, which logs may carry.
func (a *Attempt) ID() counterfoil.ID { return a.x.id }

// Identity is the same on every attempt of the record, fit as a downstream
// idempotency key. The request carries it as Counterfoil-Identity too.
func (a *Attempt) Identity() string { return a.x.record }

// Number is 1, 2, … per record.
func (a *Attempt) Number() uint32 { return a.x.claim.Attempt() }

// Operation holds the rules this attempt was claimed under.
func (a *Attempt) Operation() *policy.Operation { return a.x.claim.Operation() }

// Dispatch marks the crossing to something remote, for operations with
// dispatch: explicit. It must return nil before anything is sent: on any error
// send nothing.
func (a *Attempt) Dispatch(ctx context.Context) error { return a.x.claim.Dispatch(ctx) }

// CompleteIn writes the outcome into the record through s, a store inside the
// handler's own transaction, beside what the handler writes there: one commit
// makes both durable, or neither. On any error roll back; the errors are those
// of [counterfoil.Claim.CompleteIn].
//
// Commit before returning, then answer with out.Status: the answer leaves, and
// is kept for replays. Once it is committed the outcome stands whatever else the
// handler does: another answer is withheld, and the caller told that the
// request has been processed. A transaction that was rolled back leaves the
// attempt as if CompleteIn had never been called.
func (a *Attempt) CompleteIn(ctx context.Context, s counterfoil.Store, out counterfoil.Outcome) error {
	x := a.x
	if out.Resource != "" {
		out.Resource = localResource(out.Resource, x.r.Host, x.r.URL.EscapedPath())
	}
	x.mu.Lock()
	x.told = out
	x.mu.Unlock()
	return x.claim.CompleteIn(ctx, s, out)
}

// NoEffect states that nothing happened, whatever status is answered: the same
// key may run again. reason is kept in the record; put no secrets in it.
func (a *Attempt) NoEffect(reason string) { a.say(statement{kind: saidNoEffect, reason: reason}) }

// Unknown states that nobody can tell what happened, whatever status is
// answered. reason is kept in the record; put no secrets in it.
func (a *Attempt) Unknown(reason string) { a.say(statement{kind: saidUnknown, reason: reason}) }

// Unreachable states that the upstream could not be reached and that not one
// byte of the request was sent. Unless the handler's answer has begun to
// leave, the caller is answered 502 upstream-unreachable and the same key may
// run again.
func (a *Attempt) Unreachable(err error) {
	a.say(statement{kind: saidUnreachable, reason: "the upstream could not be reached", err: err})
}

// Broken states that the exchange with the upstream broke after bytes were
// sent. Unless the handler's answer has begun to leave, the caller is answered
// 502 outcome-unknown.
func (a *Attempt) Broken(err error) {
	a.say(statement{kind: saidBroken, reason: "the upstream broke after bytes were sent", err: err})
}

func (a *Attempt) say(s statement) {
	s.err = loggable(s.err)
	a.x.mu.Lock()
	defer a.x.mu.Unlock()
	if s.kind > a.x.said.kind {
		a.x.said = s
	}
}

// said is what a handler stated, the gravest last.
type said uint8

const (
	saidNothing said = iota
	saidUnreachable
	saidNoEffect
	saidUnknown
	saidBroken
)

type statement struct {
	kind   said
	reason string
	// err is logged, never kept or shown: it may name addresses.
	err error
}
