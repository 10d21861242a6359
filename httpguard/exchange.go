package httpguard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

// exchange is one guarded request with its answer.
type exchange struct {
	g *Guard
	t *table
	*route
	w http.ResponseWriter
	r *http.Request

	req     counterfoil.Request
	request fingerprint.Request

	id     counterfoil.ID
	record string // id in hexadecimal; empty while not worked out
	// lines are the values of the fields that the guard sets. Whoever sends an
	// answer's header reads them, when the exchange may have been released.
	lines []string
	room  [512]byte // for a body that fits

	// The rest is used once the claim is ours.
	d       *counterfoil.Decision
	claim   *counterfoil.Claim
	rec     recorder
	own     [numLines]string // lines of an exchange that is not released
	attempt Attempt
	effect  effect
	inner   http.Request // as the handler gets it
	body    bytes.Reader // of inner
	// returned is the handler's goroutine's own.
	returned bool

	mu    sync.Mutex // guards what follows and the recorder
	said  statement
	told  counterfoil.Outcome // by CompleteIn; committed or not
	ended bool                // the handler has returned
	over  bool                // the caller has been answered; the handler may still run
	outer http.Header         // what middleware had set, where the answer is not the handler's
	timer *time.Timer
}

// exchanges holds those that no handler has seen. What a handler has had in
// hand it may keep for ever, by its Attempt, its context or its writer; an
// exchange that made it so far is never used again.
var exchanges = sync.Pool{New: func() any {
	x := new(exchange)
	x.req.Fingerprint = x.sum
	return x
}}

func newExchange(g *Guard, t *table, rt *route, w http.ResponseWriter, r *http.Request) *exchange {
	x := exchanges.Get().(*exchange)
	x.g, x.t, x.route, x.w, x.r = g, t, rt, w, r
	x.req.Operation = rt.op.Name
	return x
}

// release gives back an exchange that came to no claim. Nothing of a request
// stays in it.
func (x *exchange) release() {
	sum := x.req.Fingerprint
	*x = exchange{}
	x.req.Fingerprint = sum
	exchanges.Put(x)
}

// sum is the engine's FingerprintFunc.
func (x *exchange) sum(op *policy.Operation, version uint8) (counterfoil.Fingerprint, error) {
	if version == 0 {
		version = fingerprint.Current
	}
	rule := x.rule
	if op != x.op {
		var err error
		// A limit that has shrunk must not make old records unreadable.
		if rule, err = x.g.rule(op, max(op.MaxRequest, x.op.MaxRequest)); err != nil {
			return counterfoil.Fingerprint{}, err
		}
	}
	return rule.Sum(version, &x.request)
}

// run lets the handler act under the claim, in this goroutine, and answers.
func (x *exchange) run(next http.Handler) {
	x.rec.init(x, x.op.MaxResponse)
	x.lines, x.attempt.x = x.own[:], x
	x.effect.caller, x.effect.attempt = x.r.Context(), &x.attempt
	x.effect.deadline = x.claim.Deadline()
	defer x.effect.end(context.Canceled)
	x.schedule()
	defer func() {
		switch {
		case x.returned:
		case !x.broke():
			x.thrown() // the panic goes on by itself
		default:
			// httputil.ReverseProxy aborts the handler where its upstream broke
			// half-way; while nothing has left, that can still be answered.
			v := recover()
			if v == http.ErrAbortHandler { //nolint:errorlint // a panic value
				x.finish()
				return
			}
			x.thrown()
			if v != nil {
				panic(v)
			}
		}
	}()
	next.ServeHTTP(&x.rec, x.handed())
	x.returned = true
	x.finish()
}

// handed is the request as the handler gets it.
func (x *exchange) handed() *http.Request {
	r := &x.inner
	*r = *x.r.WithContext(&x.effect)
	r.Header = cloneHeader(x.r.Header, 1)
	for _, name := range overrides {
		delete(r.Header, name)
	}
	r.Header[HeaderIdentity] = x.line(lineIdentity, x.record)
	x.body.Reset(x.request.Body)
	// Without GetBody, and never nil: net/http's transport would otherwise send a
	// request that carries Idempotency-Key again by itself (dependencies.md, trap
	// 1). Of io.NopCloser it knows that the body is in memory, and that header and
	// body can go to an upstream in one write.
	r.Body, r.GetBody = io.NopCloser(&x.body), nil
	r.ContentLength, r.TransferEncoding = int64(len(x.request.Body)), nil
	return r
}

// broke reports that the handler has said itself that its upstream broke.
func (x *exchange) broke() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.said.kind == saidBroken || x.said.kind == saidUnreachable
}

// thrown handles a handler that did not return: it panicked, or ended its
// goroutine.
func (x *exchange) thrown() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stop()
	x.rec.abort()
	if x.over {
		return
	}
	x.over = true
	_, err := x.claim.Unknown(x.r.Context(), counterfoil.EvidencePanic, 0, "the handler panicked")
	switch {
	case errors.Is(err, counterfoil.ErrSettled):
		x.g.warn(x.r.Context(), "the handler panicked when its outcome was recorded already; that stands", "record", x.record)
	case err != nil:
		x.g.warn(x.r.Context(), "a panic could not be recorded; the claim will lapse", "record", x.record, "error", err)
	}
	x.done(ResultUnknown, 0)
}

// schedule sets the one timer of the exchange. Most handlers return before it
// is time to renew the lease, and so pay for no other. Timers are not pooled:
// one that was made in a testing/synctest bubble panics outside of it.
func (x *exchange) schedule() {
	x.mu.Lock()
	defer x.mu.Unlock()
	left := time.Until(x.effect.deadline)
	if renew := x.claim.Operation().Lease / 3; renew < left {
		x.timer = time.AfterFunc(renew, x.renew)
	} else {
		x.timer = time.AfterFunc(left, x.expire)
	}
}

// renew renews the lease for the first time, sees to it that it is renewed from
// then on, and waits for the deadline.
func (x *exchange) renew() {
	x.mu.Lock()
	if x.ended {
		x.mu.Unlock()
		return
	}
	x.timer = time.AfterFunc(time.Until(x.effect.deadline), x.expire)
	x.mu.Unlock()
	x.claim.KeepAlive()
	if err := x.claim.Renew(context.WithoutCancel(x.r.Context())); err != nil && !errors.Is(err, counterfoil.ErrSettled) {
		x.g.warn(x.r.Context(), "a lease could not be renewed", "record", x.record, "error", err)
	}
}

// expire answers the caller at the deadline, whether or not the handler still
// runs. It is called by the timer.
func (x *exchange) expire() {
	x.effect.end(context.DeadlineExceeded)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expired()
}

func (x *exchange) expired() {
	if x.over || x.rec.phase != buffering {
		return // an answer is on its way: the handler's context has ended
	}
	x.over = true
	x.rec.phase = late
	x.outer = cloneHeader(x.w.Header(), 0)
	snap, err := x.claim.Unknown(x.r.Context(), counterfoil.EvidenceDeadline, 0, "the handler passed its deadline")
	stands := errors.Is(err, counterfoil.ErrSettled) && known(&snap.Record)
	if err != nil && !stands {
		x.g.warn(x.r.Context(), "a passed deadline could not be recorded; the claim will lapse", "record", x.record, "error", err)
	}
	if x.r.ProtoMajor == 1 {
		// The connection stays taken until the handler returns.
		x.w.Header().Set("Connection", "close")
	}
	if stands {
		// The handler committed it, and goes on; its answer may still be kept.
		x.processed(&snap.Record)
	} else {
		x.mark(ResultUnknown, &snap.Record)
		x.problem(&Problem{
			Code: ProblemOutcomeUnknown, Status: http.StatusGatewayTimeout,
			Detail: "the operation did not answer in time; it may have taken effect. Ask again with the same key",
		}, ResultUnknown)
	}
	_ = http.NewResponseController(x.w).Flush()
}

// finish settles the attempt when the handler has returned, and lets the answer
// leave once that is durable.
func (x *exchange) finish() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stop()
	f := x.judge()
	if x.effect.Err() != nil && !f.proves {
		x.expired()
	}
	if x.over {
		x.late(f)
		x.rec.phase = closed
		x.rec.release()
		return
	}
	x.end(f)
}

// late reports what a handler came to after the caller was told that nobody
// knew. Only what it said itself counts: a status that it gave because its
// time was up proves nothing.
func (x *exchange) late(f finding) {
	if !f.proves {
		return
	}
	var err error
	ctx := x.r.Context()
	switch f.state {
	case counterfoil.Completed:
		_, err = x.claim.Complete(ctx, f.outcome, x.response())
	case counterfoil.Failed:
		_, err = x.claim.Fail(ctx, f.reason)
	}
	if err != nil {
		x.g.warn(ctx, "a late outcome could not be recorded", "record", x.record, "error", err)
	}
}

// stop ends the timer with the handler.
func (x *exchange) stop() {
	x.ended = true
	x.timer.Stop()
}

// passing marks an answer that begins to leave before its record is settled.
func (x *exchange) passing(h http.Header) {
	x.marks(h, x.judge().kind, nil)
}

// mark sets the fields of contract.md §4 on the caller's answer.
func (x *exchange) mark(kind ResultKind, rec *counterfoil.Record) { x.marks(x.w.Header(), kind, rec) }

func (x *exchange) marks(h http.Header, kind ResultKind, rec *counterfoil.Record) {
	if kind != "" {
		h[HeaderStatus] = x.line(lineStatus, string(kind))
	}
	if x.record != "" {
		h[HeaderRecord] = x.line(lineRecord, x.record)
	}
	if rec == nil || kind == ResultMismatch || kind == ResultNoEffect {
		return
	}
	if rec.HasResponse && !rec.ReplayUntil.IsZero() {
		h[HeaderReplayUntil] = x.line(lineReplayUntil, x.replayUntil.text(rec.ReplayUntil))
	}
	if t := rec.ProtectedUntil(); !t.IsZero() {
		h[HeaderProtectedUntil] = x.line(lineProtectedUntil, x.protectedUntil.text(t))
	}
}

// The places of exchange.lines.
const (
	// lineIdentity is the handler's to read, at any time: nobody writes it later.
	lineIdentity = iota
	lineRecord
	lineStatus
	lineReplayUntil
	lineProtectedUntil
	numLines
)

// line is a field of one line, which stands in x.lines with its like: one
// allocation for all of them.
func (x *exchange) line(i int, value string) []string {
	if x.lines == nil {
		x.lines = make([]string, numLines)
	}
	x.lines[i] = value
	return x.lines[i : i+1 : i+1]
}

// problem sends p for this request and counts it as kind.
func (x *exchange) problem(p *Problem, kind ResultKind) {
	p.Operation, p.Record = x.op.Name, x.record
	switch p.Code {
	case ProblemInProgress, ProblemOutcomeUnknown:
		x.w.Header().Add("Link", x.link)
	}
	p.Write(x.w)
	x.done(kind, p.StatusCode())
}

// done reports the one result of this request.
func (x *exchange) done(kind ResultKind, status int) {
	if x.g.o.Done == nil {
		return
	}
	res := Result{Operation: x.op.Name, Kind: kind, Status: status, Record: x.id, Horizon: x.op.Retention(), Observed: x.g.o.Observe}
	if x.d != nil {
		res.Late = x.d.Late
		if x.d.Claim == nil && x.d.Record.State != counterfoil.Absent {
			res.Age = max(x.d.AsOf.Sub(x.d.Record.CreatedAt), 0)
		}
	}
	x.g.o.Done(res)
}

// abort makes sure that nothing more leaves.
func (rec *recorder) abort() {
	if rec.conn != nil {
		_ = rec.conn.Close()
	}
	rec.phase, rec.body = closed, nil
}
