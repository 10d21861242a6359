package httpguard

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/counterfoil/counterfoil"
)

// observe decides and counts, and lets the request through whatever it decided.
// The records it makes are marked by the engine and never replayed.
func (g *Guard) observe(t *table, next http.Handler, w http.ResponseWriter, r *http.Request, rt *route, ambiguous bool) {
	x := newExchange(g, t, rt, w, r)
	if ambiguous {
		x.done(ResultInvalid, 0)
		next.ServeHTTP(w, r)
		return
	}
	seen := &tee{from: r.Body}
	if r.Body != nil && r.Body != http.NoBody {
		c := *r
		c.Body = seen
		x.r = &c
	}
	x.req.NoWait = true
	answer, p := x.admit()
	if x.r != r {
		c := *r
		c.Body = seen.again()
		x.r = &c
	}
	switch {
	case answer != nil:
		x.done(ResultInvalid, 0)
	case p != nil:
		x.done(kinds[p.Code].result, 0)
	case x.req.Key == "":
		x.done(ResultUnguarded, 0)
	default:
		x.watch(next)
		return
	}
	through(next, w, x.r)
}

// watch runs the handler, and records what came of it where the key was new.
func (x *exchange) watch(next http.Handler) {
	x.request.Header = x.r.Header
	d, err := x.g.engine.Begin(x.r.Context(), &x.req)
	if err != nil {
		x.identify()
		x.done(kinds[x.refusal(err).Code].result, 0)
		through(next, x.w, x.r)
		return
	}
	x.d = d
	x.name(d.ID)
	if d.Claim == nil {
		x.done(watched(d), 0)
		through(next, x.w, x.r)
		return
	}
	x.claim = d.Claim
	x.claim.KeepAlive()
	seen := &watcher{ResponseWriter: x.w, header: http.Header{}}
	defer func() {
		if !x.returned { // a panic goes on by itself
			_, _ = x.claim.Unknown(x.r.Context(), counterfoil.EvidencePanic, 0, "the handler panicked")
			x.done(ResultUnknown, 0)
		}
	}()
	r := x.r.WithContext(context.WithValue(x.r.Context(), attemptKey{}, &Attempt{x}))
	next.ServeHTTP(seen, r)
	x.returned = true
	seen.strip()
	x.settle(seen)
}

// settle records what the handler came to. Nothing that goes wrong with it may
// touch the answer.
func (x *exchange) settle(seen *watcher) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rec.header, x.rec.status, x.rec.wrote = seen.header, seen.status, seen.status != 0
	if seen.taken {
		x.rec.phase = hijacked
	}
	f := x.judge()
	x.over = true
	if (x.said.kind == saidUnreachable || x.said.kind == saidBroken) && seen.status == 0 && !seen.taken {
		// A proxy that says so leaves the answer to us, here too.
		seen.status = http.StatusBadGateway
		x.broken(f.kind).Write(x.w)
	}
	var err error
	ctx := x.r.Context()
	switch f.state {
	case counterfoil.Completed:
		_, err = x.claim.Complete(ctx, f.outcome, nil)
	case counterfoil.Failed:
		_, err = x.claim.Fail(ctx, f.reason)
	default:
		_, err = x.claim.Unknown(ctx, f.evidence, f.outcome.Status, f.reason)
	}
	if err != nil {
		x.g.warn(ctx, "an observed outcome could not be recorded", "record", x.record, "error", err)
	}
	x.done(f.kind, seen.status)
}

// watched is how a verdict would have been counted if it were enforced. No
// response is kept of what was only observed, so a replay is told by its time.
func watched(d *counterfoil.Decision) ResultKind {
	switch d.Verdict {
	case counterfoil.VerdictReplay:
		return ResultReplayed
	case counterfoil.VerdictAlreadyProcessed:
		if d.Record.Observed && d.AsOf.Before(d.Record.SettledAt.Add(d.Operation.Replay())) {
			return ResultReplayed
		}
		return ResultAlreadyProcessed
	case counterfoil.VerdictInProgress:
		return ResultInProgress
	case counterfoil.VerdictUnknown:
		return ResultUnknown
	case counterfoil.VerdictMismatch:
		return ResultMismatch
	case counterfoil.VerdictExpired:
		return ResultExpired
	case counterfoil.VerdictKeyInvalid:
		return ResultInvalid
	}
	return ResultStoreError
}

// tee remembers what was read of a body, so that all of it can be read again.
type tee struct {
	from io.ReadCloser
	read bytes.Buffer
}

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.from.Read(p)
	t.read.Write(p[:n])
	return n, err
}

func (t *tee) Close() error { return t.from.Close() }

func (t *tee) again() io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&t.read, t.from), t.from}
}

// through lets a request to an operation through that is not guarded.
func through(next http.Handler, w http.ResponseWriter, r *http.Request) {
	seen := &watcher{ResponseWriter: w, header: http.Header{}}
	next.ServeHTTP(seen, r)
	seen.strip()
}

// watcher sees an answer pass. It takes off what is meant for the guard, and
// changes nothing else.
type watcher struct {
	http.ResponseWriter
	status int
	header http.Header // the fields meant for the guard, and Location
	taken  bool
}

// Unwrap serves http.ResponseController.
func (s *watcher) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *watcher) WriteHeader(status int) {
	s.strip()
	if s.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		s.status = status
		if l := s.ResponseWriter.Header()["Location"]; l != nil {
			s.header["Location"] = l
		}
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *watcher) Write(p []byte) (int, error) {
	if s.status == 0 {
		s.WriteHeader(http.StatusOK)
	}
	return s.ResponseWriter.Write(p)
}

// FlushError sends the header first, as net/http does.
func (s *watcher) FlushError() error {
	if s.status == 0 {
		s.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// Flush is FlushError for those who ask for an http.Flusher.
func (s *watcher) Flush() { _ = s.FlushError() }

// Hijack hands the connection over.
func (s *watcher) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(s.ResponseWriter).Hijack()
	s.taken = s.taken || err == nil
	return conn, rw, err
}

// strip moves the fields meant for the guard out of the answer.
func (s *watcher) strip() {
	h := s.ResponseWriter.Header()
	for _, name := range internal {
		if v, ok := h[name]; ok {
			s.header[name] = v
			delete(h, name)
		}
	}
}
