package httpguard

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

// Guard is the front door of an HTTP service. It is safe for concurrent use.
type Guard struct {
	engine *counterfoil.Engine
	o      Options

	table   atomic.Pointer[table]
	refused atomic.Pointer[policy.Policy] // the last policy that did not compile
	compile sync.Mutex                    // held while table is replaced

	// old holds the fingerprint rules of earlier policies, by their content.
	old sync.Map // string → *fingerprint.Rule
}

// New returns a guard for the engine's policy. It fails where the policy asks
// for something that Options do not give, or where a JSONPath does not parse.
func New(e *counterfoil.Engine, o Options) (*Guard, error) {
	if e == nil {
		return nil, errors.New("httpguard: no engine")
	}
	g := &Guard{engine: e, o: o}
	if err := g.Reload(); err != nil {
		return nil, err
	}
	return g, nil
}

// Check reports whether New or Reload would accept a policy under o: ask before
// Engine.SetPolicy.
func Check(p *policy.Policy, o Options) error {
	_, err := newTable(p, &o)
	return err
}

// Reload puts the engine's policy in force at the door. Calling it is optional:
// the guard notices a new policy with the next request. On an error the old
// routes stay, and operations that the engine no longer has are answered 503.
func (g *Guard) Reload() error {
	g.compile.Lock()
	defer g.compile.Unlock()
	p := g.engine.Policy()
	if t := g.table.Load(); t != nil && t.policy == p {
		return nil
	}
	t, err := newTable(p, &g.o)
	if err != nil {
		g.refused.Store(p)
		return err
	}
	g.table.Store(t)
	return nil
}

// current is the table of the policy in force, or the last that compiled.
func (g *Guard) current(ctx context.Context) *table {
	t := g.table.Load()
	p := g.engine.Policy()
	if t.policy == p || g.refused.Load() == p {
		return t
	}
	if err := g.Reload(); err != nil {
		g.warn(ctx, "the new policy is not in force at the door", "error", err)
	}
	return g.table.Load()
}

// Wrap puts the guard around next. Whatever authenticates callers must be
// outside of it, so that a replay is authorised like any other answer; whatever
// parses bodies must be inside.
//
// It also answers GET /.well-known/idempotency and, beneath it, the lookup of
// each operation.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = without(r, internal)
		t := g.current(r.Context())
		if g.lookup(t, w, r) {
			return
		}
		rt, ambiguous := t.find(r)
		switch {
		case g.o.Observe:
			if rt == nil {
				next.ServeHTTP(w, r)
				return
			}
			g.observe(t, next, w, r, rt, ambiguous)
		case rt == nil:
			g.unmatched(t, next, w, r)
		case ambiguous:
			g.refuse(w, r, rt, &Problem{
				Code: ProblemRequestAmbiguous, Operation: rt.op.Name,
				Detail: "servers read this method and path in different ways; send the path of the operation exactly, without dot segments, doubled slashes or a slash at its end",
			})
		default:
			g.serve(t, next, w, r, rt)
		}
	})
}

// unmatched handles a request that no operation matches.
func (g *Guard) unmatched(t *table, next http.Handler, w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		next.ServeHTTP(w, r)
		return
	}
	if g.o.Unmatched == Reject {
		g.refuse(w, r, nil, &Problem{
			Code: ProblemRequestInvalid, Status: http.StatusNotFound,
			Detail: "no operation of the policy matches this method and path",
		})
		return
	}
	for _, name := range t.keys {
		if len(r.Header[name]) > 0 {
			// Its sender means to be protected, and is not: say so, and count it.
			w.Header().Set(HeaderStatus, string(ResultUnguarded))
			g.done(Result{Kind: ResultUnguarded})
			break
		}
	}
	next.ServeHTTP(w, r)
}

// refuse answers a request that got nowhere near the store.
func (g *Guard) refuse(w http.ResponseWriter, _ *http.Request, rt *route, p *Problem) {
	res := Result{Kind: kinds[p.Code].result, Status: p.StatusCode()}
	if rt != nil {
		res.Operation, p.Operation = rt.op.Name, rt.op.Name
	}
	p.Write(w)
	g.done(res)
}

func (g *Guard) done(r Result) {
	if g.o.Done != nil {
		g.o.Done(r)
	}
}

// rule compiles the fingerprint rule of an operation of an earlier policy. The
// engine reads those policies anew with every refresh, so they are remembered
// by content, not by address.
func (g *Guard) rule(op *policy.Operation, maxBody int64) (*fingerprint.Rule, error) {
	key := ruleKey(op, maxBody)
	if r, ok := g.old.Load(key); ok {
		return r.(*fingerprint.Rule), nil
	}
	r, err := fingerprint.Compile(op.Fingerprint, fingerprint.Options{Secret: g.o.Secret, MaxBody: maxBody})
	if err != nil {
		return nil, err
	}
	g.old.Store(key, r)
	return r, nil
}
