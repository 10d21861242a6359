package httpguard

import (
	"context"
	"errors"
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
	record string    // id in hexadecimal; empty while not worked out
	lines  [5]string // values of the fields that the guard sets

	// The rest is used once the claim is ours.
	d       *counterfoil.Decision
	claim   *counterfoil.Claim
	rec     recorder
	attempt Attempt
	effect  effect
	body    body
	// returned is the handler's goroutine's own.
	returned bool

	mu    sync.Mutex // guards what follows and the recorder
	said  statement
	ended bool        // the handler has returned
	over  bool        // the caller has been answered; the handler may still run
	outer http.Header // what middleware had set, where the answer is not the handler's
	timer *time.Timer
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
	x.attempt.x = x
	x.effect.Context, x.effect.attempt = context.WithoutCancel(x.r.Context()), &x.attempt
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
	r := x.r.WithContext(&x.effect)
	r.Header = cloneHeader(x.r.Header, 1)
	for _, name := range overrides {
		delete(r.Header, name)
	}
	x.lines[0] = x.record
	r.Header[HeaderIdentity] = x.lines[:1:1]
	x.body.Reset(x.request.Body)
	r.Body, r.GetBody = &x.body, nil
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
	if _, err := x.claim.Unknown(x.r.Context(), counterfoil.EvidencePanic, 0, "the handler panicked"); err != nil {
		x.g.warn(x.r.Context(), "a panic could not be recorded; the claim will lapse", "record", x.record, "error", err)
	}
	x.done(ResultUnknown, 0)
}

// schedule sets the one timer of the exchange. Most handlers return before it
// is time to renew the lease, and so pay for no other.
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
	if err != nil {
		x.g.warn(x.r.Context(), "a passed deadline could not be recorded; the claim will lapse", "record", x.record, "error", err)
	}
	if x.r.ProtoMajor == 1 {
		// The connection stays taken until the handler returns.
		x.w.Header().Set("Connection", "close")
	}
	x.mark(ResultUnknown, &snap.Record)
	x.problem(&Problem{
		Code: ProblemOutcomeUnknown, Status: http.StatusGatewayTimeout,
		Detail: "the operation did not answer in time; it may have taken effect. Ask again with the same key",
	}, ResultUnknown)
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
	set := func(i int, name, value string) {
		x.lines[i] = value
		h[name] = x.lines[i : i+1 : i+1]
	}
	if kind != "" {
		set(1, HeaderStatus, string(kind))
	}
	if x.record != "" {
		set(0, HeaderRecord, x.record)
	}
	if rec == nil || kind == ResultMismatch || kind == ResultNoEffect {
		return
	}
	// Both instants in one text, for one allocation.
	buf := make([]byte, 0, 64)
	if rec.HasResponse && !rec.ReplayUntil.IsZero() {
		buf = rec.ReplayUntil.UTC().AppendFormat(buf, time.RFC3339)
	}
	n := len(buf)
	if t := rec.ProtectedUntil(); !t.IsZero() {
		buf = t.UTC().AppendFormat(buf, time.RFC3339)
	}
	both := string(buf)
	if n > 0 {
		set(2, HeaderReplayUntil, both[:n])
	}
	if len(both) > n {
		set(3, HeaderProtectedUntil, both[n:])
	}
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
