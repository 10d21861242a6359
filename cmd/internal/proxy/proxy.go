// Package proxy is the effect behind the guard: it passes one request to one
// fixed upstream, once, and says whether the upstream can have seen it.
//
// It never sends a request twice. net/http does, inside one RoundTrip, when a
// reused connection breaks and the request looks repeatable, which it does as
// soon as it carries an idempotency key (cases.md C49, C50).
package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil/httpguard"
)

// Attempt is what an effect may say of itself; *httpguard.Attempt is one.
type Attempt interface {
	// Identity is the same on every attempt of a record.
	Identity() string
	// Unreachable: no byte was sent, so nothing can have happened.
	Unreachable(err error)
	// Broken: something was sent, and no whole answer came.
	Broken(err error)
}

// Options of [New].
type Options struct {
	// Upstream has a scheme and a host, and nothing else.
	Upstream *url.URL
	// Attempt returns the attempt that a request's context carries; nil for a
	// request that is not guarded.
	Attempt func(context.Context) Attempt
	// Logger may be nil.
	Logger *slog.Logger
	// DialTimeout bounds connecting; 0 stands for 5 s.
	DialTimeout time.Duration
}

// Proxy is an http.Handler, safe for concurrent use. Close lets go of its idle
// connections.
type Proxy struct {
	o       Options
	once    *once
	reverse httputil.ReverseProxy
}

// New returns a proxy. It starts nothing.
func New(o Options) *Proxy {
	if o.Attempt == nil {
		o.Attempt = func(context.Context) Attempt { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = 5 * time.Second
	}
	p := &Proxy{o: o, once: newOnce(o.DialTimeout)}
	p.reverse = httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      p.once,
		ModifyResponse: p.answer,
		ErrorHandler:   p.failed,
		ErrorLog:       log.New(io.Discard, "", 0), // what it says is said by failed and by source
	}
	return p
}

// Close closes idle connections to the upstream.
func (p *Proxy) Close() { p.once.transport.CloseIdleConnections() }

// exchange is one request on its way.
type exchange struct {
	in      *http.Request
	attempt Attempt // nil when unguarded
	// asked is what reading the caller's body ended in, where it is not guarded,
	// answered what reading the upstream's answer ended in, unless that was its
	// end.
	asked, answered ending
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	return r.Context().Value(exchangeKey{}).(*exchange)
}

// ServeHTTP passes the request up and the answer back.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{in: r, attempt: p.o.Attempt(r.Context())}
	out := r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if x.attempt == nil {
		if r.Body != nil {
			out.Body = &source{r.Body, &x.asked}
		}
		p.reverse.ServeHTTP(w, out)
		return
	}
	defer func() {
		// ReverseProxy can only abort when an answer ends early; the guard, which
		// may still hold all of it, can do better once it knows why.
		if err := x.answered.get(); err != nil {
			x.attempt.Broken(err)
		}
	}()
	p.reverse.ServeHTTP(&steady{ResponseWriter: w}, out)
}

// ending is an error that one goroutine notes and another looks at.
type ending struct{ err atomic.Pointer[error] }

func (e *ending) get() error {
	if err := e.err.Load(); err != nil {
		return *err
	}
	return nil
}

// source notes what reading ended in.
type source struct {
	io.ReadCloser
	end *ending
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	if err != nil && err != io.EOF {
		s.end.err.Store(&err)
	}
	return n, err
}

// steady is the writer of a guarded answer. It flushes only what is a stream
// by its own word, since the guard takes a flush for one and does not keep it,
// and ReverseProxy flushes whatever has no length. It also reads an answer to
// its end when the caller has gone away: the outcome still counts.
type steady struct {
	http.ResponseWriter
	gone bool
}

// Unwrap is for http.ResponseController.
func (s *steady) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *steady) Write(b []byte) (int, error) {
	if !s.gone {
		_, err := s.ResponseWriter.Write(b)
		s.gone = err != nil
	}
	return len(b), nil
}

// FlushError is what http.ResponseController looks for first.
func (s *steady) FlushError() error {
	if !streams(s.Header()) || s.gone {
		return nil
	}
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// streams reports whether an answer is to be passed on as it comes.
func streams(h http.Header) bool {
	if strings.EqualFold(h.Get("X-Accel-Buffering"), "no") {
		return true
	}
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch kind {
	case "text/event-stream", "application/x-ndjson", "application/jsonl", "application/json-seq",
		"application/stream+json", "multipart/x-mixed-replace":
		return true
	}
	return strings.HasPrefix(kind, "application/grpc")
}

// overrides let a request act under another method than the one that was
// matched (dangers.md H14).
var overrides = httpguard.MethodOverrides()

// rewrite makes the request that goes up: the caller's own, less what only we
// may say.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	x := exchangeOf(pr.In)
	out := pr.Out
	out.URL.Scheme, out.URL.Host = p.o.Upstream.Scheme, p.o.Upstream.Host
	// ReverseProxy drops what it cannot parse from a query; what was
	// fingerprinted is what goes up (dangers.md U07).
	out.URL.RawQuery = pr.In.URL.RawQuery
	keepTarget(out.URL, pr.In.RequestURI)
	for name := range out.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Counterfoil-") {
			delete(out.Header, name)
		}
	}
	for _, name := range overrides {
		delete(out.Header, name)
	}
	pr.SetXForwarded()
	if x.attempt != nil {
		out.Header.Set("Counterfoil-Identity", x.attempt.Identity())
		// What is upgraded has no outcome to record.
		out.Header.Del("Connection")
		out.Header.Del("Upgrade")
		if out.Body != nil {
			// The guard's is in memory, and may be read at any time. As long as
			// nothing is put around it net/http sends it in one write with the header.
			out.Body = pr.In.Body
		}
	}
	out.GetBody = nil // with it net/http would send the body again
}

// keepTarget makes u be written as the target that came in, byte by byte, where
// encoding its path anew would change it.
func keepTarget(u *url.URL, target string) {
	path, _, _ := strings.Cut(target, "?")
	if path == u.EscapedPath() || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return
	}
	u.Opaque = path
}

// answer sees the upstream's answer before the caller does.
func (p *Proxy) answer(resp *http.Response) error {
	x := exchangeOf(resp.Request)
	if x.attempt == nil {
		// The guard reads these and takes them off; here nobody reads them.
		resp.Header.Del("Counterfoil-Outcome")
		resp.Header.Del("Counterfoil-Resource")
		return nil
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return &sendError{errors.New("the upstream changed the protocol, which nobody asked for"), true}
	}
	resp.Body = &source{resp.Body, &x.answered}
	return nil
}

// failed says what became of a request that got no answer.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r)
	var send *sendError
	sent := !errors.As(err, &send) || send.sent // not known counts as sent
	switch {
	case x.attempt != nil && sent:
		x.attempt.Broken(err)
	case x.attempt != nil:
		x.attempt.Unreachable(err)
	case errors.Is(x.asked.get(), os.ErrDeadlineExceeded):
		problem(w, http.StatusRequestTimeout, httpguard.ProblemRequestInvalid, "The body came too slowly.")
	case x.asked.get() != nil:
		problem(w, http.StatusBadRequest, httpguard.ProblemRequestInvalid, "The body is malformed or ends early.")
	case x.in.Context().Err() != nil:
		return // the caller went away
	case sent:
		p.o.Logger.Warn("upstream broke", "error", err)
		problem(w, http.StatusBadGateway, httpguard.ProblemOutcomeUnknown, "The upstream broke off after the request was sent.")
	default:
		p.o.Logger.Warn("upstream unreachable", "error", err)
		problem(w, http.StatusBadGateway, httpguard.ProblemUpstreamUnreachable, "The upstream could not be reached; nothing was sent.")
	}
}

// problem answers an unguarded request; guarded ones are the guard's to answer.
func problem(w http.ResponseWriter, status int, code httpguard.ProblemCode, detail string) {
	(&httpguard.Problem{Code: code, Status: status, Detail: detail}).Write(w)
}
