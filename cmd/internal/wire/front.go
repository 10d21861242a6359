package wire

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/proxy"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/policyfile"
)

// Front is the guarded way to the upstream.
type Front struct {
	core    *Core
	guard   *httpguard.Guard
	proxy   *proxy.Proxy
	handler http.Handler
	ask     *proxy.Asker // auth_request; nil when not configured
	probe   *proxy.Asker // auth_probe; nil when not configured
	options httpguard.Options
	// named are the fields that name a principal under the policy in force.
	named atomic.Pointer[[]string]
}

// NewFront puts guard and proxy over a core. before, when not nil, wraps what
// the guard lets through to the upstream. Close releases connections.
func NewFront(c *Core, before func(http.Handler) http.Handler) (*Front, error) {
	f := &Front{core: c}
	f.proxy = proxy.New(proxy.Options{Upstream: c.Config.Upstream, Attempt: attemptOf, Logger: c.log})
	o := httpguard.Options{
		Secret: c.key.Secret(), Principal: f.principal, Observe: c.Config.Observe, Logger: c.log,
		Done: func(r httpguard.Result) { c.Metrics.Requests(r.Operation, string(r.Kind)) },
	}
	if c.Config.Reject {
		o.Unmatched = httpguard.Reject
	}
	if a := c.Config.AuthRequest; a != nil {
		f.ask = proxy.NewAuthRequest(a.URL, a.PrincipalHeader, a.Timeout)
	}
	if a := c.Config.AuthProbe; a != nil {
		var err error
		if f.probe, err = proxy.NewAuthProbe(c.Config.Upstream, a.Method, a.Path); err != nil {
			return nil, err
		}
		o.Authorize = f.authorize
	}
	var err error
	f.options = o
	if f.guard, err = httpguard.New(c.Engine, o); err != nil {
		return nil, err
	}
	var inner http.Handler = f.proxy
	if before != nil {
		inner = before(inner)
	}
	f.nameFields()
	f.handler = f.guard.Wrap(inner)
	return f, nil
}

// Close lets go of idle connections.
func (f *Front) Close() {
	f.proxy.Close()
	for _, a := range []*proxy.Asker{f.ask, f.probe} {
		if a != nil {
			a.Close()
		}
	}
}

// Reload reads the policy file again and puts it in force for new records. On
// an error the former policy stays in force.
func (f *Front) Reload(ctx context.Context) error {
	c := f.core
	p, err := policyfile.Load(c.Config.Policy)
	if err != nil {
		return err
	}
	if err := errors.Join(checkPrincipals(c.Config, p), checkDurability(c.Config, p, c.Store.Info()), httpguard.Check(p, f.options)); err != nil {
		return err
	}
	if err := c.Engine.SetPolicy(ctx, p); err != nil {
		return err
	}
	if err := f.guard.Reload(); err != nil {
		return err // Check has just accepted it
	}
	f.nameFields()
	c.Metrics.Policy(p)
	return nil
}

func attemptOf(ctx context.Context) proxy.Attempt {
	if a, ok := httpguard.FromContext(ctx); ok {
		return a
	}
	return nil
}

// ServeHTTP takes the principal's field from those who may not set it, on
// every route: the upstream may believe it too.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if named := *f.named.Load(); len(named) > 0 && !f.trusted(r) {
		r = strip(r, named)
	}
	f.handler.ServeHTTP(w, r)
}

// nameFields reads from the policy in force which fields name a principal.
func (f *Front) nameFields() {
	var named []string
	p := f.core.Engine.Policy()
	for i := range p.Operations {
		if pr := p.Operations[i].Scope.Principal; pr.Kind == policy.PrincipalHeader && !slices.Contains(named, pr.Header) {
			named = append(named, pr.Header)
		}
	}
	f.named.Store(&named)
}

// strip returns r without the named fields, however they are disguised: some
// upstreams take X_Account_Id for X-Account-Id.
func strip(r *http.Request, named []string) *http.Request {
	var out *http.Request
	for name := range r.Header {
		plain := name
		if strings.Contains(name, "_") {
			plain = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		}
		if !slices.Contains(named, plain) {
			continue
		}
		if out == nil {
			c := *r
			c.Header = r.Header.Clone()
			out = &c
		}
		delete(out.Header, name)
	}
	if out == nil {
		return r
	}
	return out
}

func (f *Front) trusted(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	addr := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(f.core.Config.TrustedPeers, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// principal follows the rule of the operation.
func (f *Front) principal(r *http.Request, op *policy.Operation) (counterfoil.Principal, error) {
	switch rule := op.Scope.Principal; rule.Kind {
	case policy.PrincipalHeader:
		values := r.Header.Values(rule.Header)
		if len(values) > 1 {
			return "", nil // nobody knows which
		}
		return counterfoil.Principal(strings.Trim(r.Header.Get(rule.Header), " \t")), nil
	case policy.PrincipalAuthRequest:
		if f.ask == nil {
			return "", errors.New("auth_request is not configured")
		}
		return f.ask.Ask(r)
	}
	return "", nil // anonymous
}

// authorize asks the upstream, with the caller's own credentials of today,
// before an answer leaves that was given earlier.
func (f *Front) authorize(r *http.Request) (*httpguard.Answer, error) {
	_, err := f.probe.Ask(r)
	var answer *httpguard.Answer
	if errors.As(err, &answer) {
		return answer, nil
	}
	return nil, err
}
