package httpguard

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// standingTimeout bounds the read of a standing response.
const standingTimeout = 2 * time.Second

// end reports the finding, and answers when that is durable.
func (x *exchange) end(f finding) {
	x.over = true
	ctx := x.r.Context()
	var snap counterfoil.Snapshot
	var err error
	switch f.state {
	case counterfoil.Completed:
		snap, err = x.claim.Complete(ctx, f.outcome, x.response())
	case counterfoil.Failed:
		snap, err = x.claim.Fail(ctx, f.reason)
	default:
		snap, err = x.claim.Unknown(ctx, f.evidence, f.outcome.Status, f.reason)
	}
	if x.said.err != nil {
		x.g.warn(ctx, x.said.reason, "record", x.record, "error", x.said.err)
	}
	if err == nil && f.state == counterfoil.Failed && snap.Record.State == counterfoil.Unknown {
		// That this sending came to nothing says nothing of the one before it.
		f.kind = ResultUnknown
	}
	settled := errors.Is(err, counterfoil.ErrSettled) || errors.Is(err, counterfoil.ErrFenced)
	switch {
	case err == nil, f.state == counterfoil.Unknown && !settled:
		// "Nobody knows" is what the claim itself comes to when it lapses, so
		// that it may be said before it is written.
		x.leave(f, &snap.Record)
		return
	case x.rec.phase != buffering:
		x.g.warn(ctx, "the outcome could not be recorded; the connection is cut", "record", x.record, "error", err)
		x.done(ResultUnknown, x.rec.status)
		x.cut()
	case settled:
		x.g.warn(ctx, "another outcome stands; the answer is withheld", "record", x.record, "error", err)
		x.standing(&snap.Record)
	default:
		x.g.warn(ctx, "the outcome could not be recorded; the answer is withheld", "record", x.record, "error", err)
		x.mark(ResultUnknown, nil)
		x.problem(&Problem{
			Code: ProblemOutcomeUnknown, RetryAfter: retrySoon,
			Detail: "the operation ran, but its outcome could not be recorded yet. Ask again with the same key",
		}, ResultUnknown)
	}
}

// leave lets the handler's answer leave, or the guard's own where the handler
// could not answer.
func (x *exchange) leave(f finding, rec *counterfoil.Record) {
	switch {
	case x.said.kind == saidBroken && x.rec.phase != buffering:
		x.done(ResultUnknown, x.rec.status)
		x.cut()
	case x.said.kind == saidBroken, x.said.kind == saidUnreachable && x.rec.phase == buffering:
		x.rec.phase = closed
		x.mark(f.kind, rec)
		x.problem(x.broken(f.kind), f.kind)
	default:
		x.send(f.kind, rec)
		x.done(f.kind, x.rec.status)
	}
}

// broken is the answer for a proxy that got none from its upstream.
func (x *exchange) broken(kind ResultKind) *Problem {
	if kind == ResultNoEffect {
		return &Problem{
			Code: ProblemUpstreamUnreachable, RetryAfter: retrySoon, SafeNewKey: x.first(),
			Detail: "nothing was sent, so nothing happened; the same key may be sent again",
		}
	}
	return &Problem{
		Code: ProblemOutcomeUnknown, Status: http.StatusBadGateway,
		Detail: "the upstream gave no answer to a request that it was sent; it may have taken effect. Ask again with the same key",
	}
}

// first reports that nothing can have happened under this key before.
func (x *exchange) first() bool {
	return x.d.Opens == counterfoil.OpensFirst && x.d.Late == counterfoil.WitnessNone
}

// cut ends the connection so that the caller sees that the answer is not whole.
func (x *exchange) cut() {
	if x.rec.phase == hijacked {
		x.rec.abort()
		return
	}
	x.rec.abort()
	panic(http.ErrAbortHandler)
}

// send lets the handler's answer leave.
func (x *exchange) send(kind ResultKind, rec *counterfoil.Record) {
	r := &x.rec
	switch r.phase {
	case hijacked:
		r.phase = closed
		return
	case passing:
		if len(r.held) > 0 {
			_, _ = x.w.Write(r.held)
		}
		setTrailers(x.w.Header(), r.trailers())
		r.phase = closed
		return
	}
	if !r.wrote {
		r.writeHeader(http.StatusOK)
	}
	trailers := r.trailers()
	r.phase = closed
	h := x.w.Header()
	r.apply(h)
	x.marks(h, kind, rec)
	if write(x.w, r.status, r.body, trailers) == nil {
		r.release()
	}
}

// longBody is where net/http stops working out Content-Length by itself.
const longBody = 2048

// write sends an answer whose header is set. An error means that the caller
// went away; the record answers it when it comes back.
func write(w http.ResponseWriter, status int, body []byte, trailers []trailer) (err error) {
	h := w.Header()
	if len(body) > longBody && len(trailers) == 0 && h["Content-Length"] == nil && h["Transfer-Encoding"] == nil {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	if len(body) > 0 && bodyAllowed(status) {
		_, err = w.Write(body)
	}
	setTrailers(h, trailers)
	return err
}

// response is the answer to keep, or nil where none can be: it passed, it is
// not to be kept, or its body is shorter than the handler promised.
func (x *exchange) response() []byte {
	r := &x.rec
	if r.phase != buffering && r.phase != late || r.lost || x.claim.Operation().Replay() <= 0 || x.g.o.Observe {
		return nil
	}
	if !r.wrote {
		r.writeHeader(http.StatusOK)
	}
	if r.declared >= 0 && bodyAllowed(r.status) && r.declared != r.written {
		return nil
	}
	outer := x.outer
	if outer == nil {
		outer = x.w.Header()
	}
	return r.kept(outer)
}

// standing answers with the outcome that another report has put on the record.
func (x *exchange) standing(rec *counterfoil.Record) {
	x.rec.phase = closed
	if rec.State == counterfoil.Completed && rec.HasResponse {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), standingTimeout)
		defer cancel()
		if b, err := x.g.engine.Store().Response(ctx, rec.ID, rec.Rev); err == nil && x.replay(rec, b) {
			return
		}
	}
	if known(rec) {
		x.processed(rec)
		return
	}
	x.unknown(rec, 0)
}

// known reports that the record says what came of its request.
func known(rec *counterfoil.Record) bool {
	return rec.State.Settled() && rec.Outcome.Class != counterfoil.OutcomeUnknown
}

// replay sends a kept response. It returns false, and has done nothing, where
// the response cannot be read.
func (x *exchange) replay(rec *counterfoil.Record, b []byte) bool {
	// The recorder holds nothing that is still to be sent: its room is free.
	s, err := decode(b, x.rec.inline[:0], numLines)
	if err != nil {
		x.g.warn(x.r.Context(), "a kept response cannot be read", "record", x.record, "error", err)
		return false
	}
	h := x.w.Header()
	for _, f := range s.fields {
		h[f.name] = f.values
	}
	if x.lines == nil {
		x.lines = s.spare
	}
	for _, t := range s.trailers {
		if t.announced {
			h["Trailer"] = append(h["Trailer"], t.name)
		}
	}
	x.marks(h, ResultReplayed, rec)
	h[HeaderReplayed] = isTrue
	_ = write(x.w, s.status, s.body, s.trailers)
	x.done(ResultReplayed, s.status)
	return true
}

var isTrue = []string{"true"}

// processedBody is what is left of a succeeded answer.
type processedBody struct {
	Record      string `json:"record"`
	Operation   string `json:"operation"`
	Outcome     string `json:"outcome"`
	Status      int    `json:"status,omitempty"`
	CompletedAt string `json:"completed_at,omitempty"`
	Resource    string `json:"resource,omitempty"`
}

// processed answers from a record whose response is gone.
func (x *exchange) processed(rec *counterfoil.Record) {
	x.mark(ResultAlreadyProcessed, rec)
	out, completed := rec.Outcome, rec.SettledAt
	if rec.Erased {
		out.Resource, completed = "", time.Time{}
	}
	if out.Class != counterfoil.Succeeded {
		status := out.Status
		if status < 400 || status > 599 {
			status = http.StatusConflict // settled by a person, who gave no status
		}
		x.problem(&Problem{
			Code: ProblemAlreadyProcessed, Status: status, Outcome: out.Class.String(), Resource: out.Resource, CompletedAt: completed,
			SafeNewKey: out.Class == counterfoil.NoEffect,
			Detail:     "this is the outcome of the first request; what it answered is no longer kept",
		}, ResultAlreadyProcessed)
		return
	}
	status, kind := http.StatusOK, ResultAlreadyProcessed
	resource := localResource(out.Resource, x.r.Host, "/")
	switch {
	case resource != "" && x.op.LateAnswer == policy.LateAnswerSeeOther:
		status, kind = http.StatusSeeOther, ResultRedirected
	case out.Status >= 200 && out.Status <= 204,
		out.Status >= 300 && out.Status <= 399 && out.Status != http.StatusNotModified && resource != "":
		status = out.Status
	}
	h := x.w.Header()
	if resource != "" {
		h.Set("Location", resource)
	}
	if bodyAllowed(status) {
		writeJSON(x.w, status, "application/json", processedBody{
			Record: x.record, Operation: x.op.Name, Outcome: out.Class.String(), Status: out.Status,
			CompletedAt: instant(completed), Resource: resource,
		})
	} else {
		h.Set("Cache-Control", "no-store")
		x.w.WriteHeader(status)
	}
	x.done(kind, status)
}

// unknown answers for a record of which nobody can tell the outcome.
func (x *exchange) unknown(rec *counterfoil.Record, retry time.Duration) {
	x.mark(ResultUnknown, rec)
	x.problem(&Problem{
		Code: ProblemOutcomeUnknown, Status: x.op.UnknownStatus, LastStatus: rec.Outcome.Status, RetryAfter: retry,
		Detail: "the request was attempted and may have taken effect. Do not send it under another key; look it up, or ask its operator",
	}, ResultUnknown)
}
