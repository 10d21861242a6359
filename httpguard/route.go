package httpguard

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

// route is what one operation of today's policy needs at the door.
type route struct {
	op   *policy.Operation
	rule *fingerprint.Rule
	// keyHeader is the canonical name of the key's field.
	keyHeader string
	// guardKeys are the fields whose disguises are refused: the key's, the
	// principal's and the fingerprint's.
	guardKeys []string
	link      string // value of the status Link

	replayUntil, protectedUntil instantText
}

// ServeHTTP is never called: routes are only looked up.
func (rt *route) ServeHTTP(http.ResponseWriter, *http.Request) {}

// table finds the operation of a request under one policy. It never changes.
type table struct {
	policy *policy.Policy
	mux    *http.ServeMux
	routes map[string]*route // by operation
	hosts  bool              // some pattern names a host
	keys   []string          // all key headers
}

// newTable compiles a policy. The error joins nothing: it is the first fault,
// since a validated policy has none but in its JSONPaths.
func newTable(p *policy.Policy, o *Options) (*table, error) {
	t := &table{policy: p, mux: http.NewServeMux(), routes: make(map[string]*route, len(p.Operations))}
	for i := range p.Operations {
		op := &p.Operations[i]
		if op.Scope.Principal.Kind == policy.PrincipalAuthRequest && o.Principal == nil {
			return nil, fmt.Errorf("operation %s: its principal comes from auth_request; set Options.Principal", op.Name)
		}
		rule, err := fingerprint.Compile(op.Fingerprint, fingerprint.Options{Secret: o.Secret, MaxBody: op.MaxRequest})
		if err != nil {
			return nil, fmt.Errorf("operation %s: fingerprint: %w", op.Name, err)
		}
		rt := &route{
			op: op, rule: rule, link: "<" + wellKnown + "/" + op.Name + ">; rel=\"status\"",
			keyHeader: http.CanonicalHeaderKey(op.Key.Header),
			guardKeys: []string{HeaderFirstSent, HeaderIdentity, HeaderOutcome, HeaderResource},
		}
		for _, name := range append([]string{op.Key.Header, op.Scope.Principal.Header}, op.Fingerprint.Headers...) {
			if name != "" {
				rt.guardKeys = append(rt.guardKeys, http.CanonicalHeaderKey(name))
			}
		}
		t.routes[op.Name] = rt
		if !slices.Contains(t.keys, rt.keyHeader) {
			t.keys = append(t.keys, rt.keyHeader)
		}
		for _, pattern := range op.Match {
			method, rest, _ := strings.Cut(strings.Replace(pattern, "\t", " ", 1), " ")
			rest = strings.TrimLeft(rest, " \t")
			host, path, _ := strings.Cut(rest, "/")
			t.hosts = t.hosts || host != ""
			// Hosts are compared in lower case, whatever the caller writes.
			if err := t.register(method+" "+strings.ToLower(host)+"/"+path, rt); err != nil {
				return nil, fmt.Errorf("operation %s: %w", op.Name, err)
			}
		}
	}
	if len(t.keys) == 0 {
		t.keys = []string{policy.DefaultKeyHeader}
	}
	return t, nil
}

// register turns the panic of ServeMux into an error.
func (t *table) register(pattern string, rt *route) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("pattern %q: %v", pattern, r)
		}
	}()
	t.mux.Handle(pattern, rt)
	return nil
}

func guardedMethod(m string) bool {
	switch m {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

// find returns the route that a request matches, or nil. With ambiguous the
// request itself matches nothing, or not the same, but another reading of it
// does match the route returned.
func (t *table) find(r *http.Request) (rt *route, ambiguous bool) {
	if len(t.routes) == 0 {
		return nil, false
	}
	method := r.Method
	if !guardedMethod(method) {
		m := strings.ToUpper(method)
		if !guardedMethod(m) {
			if m = overridden(r); !guardedMethod(m) {
				return nil, false
			}
		}
		return t.reading(r, m), true
	}
	q := r
	if t.hosts {
		if host := lowerHost(r.Host); host != r.Host {
			c := *r
			c.Host = host
			q = &c
		}
	}
	h, _ := t.mux.Handler(q)
	rt, ok := h.(*route)
	switch {
	case ok && plainPath(r.URL.RawPath, r.URL.Path):
		return rt, false
	case ok:
		return t.disguised(r, rt)
	}
	if rt := t.reading(r, method); rt != nil {
		return rt, true
	}
	if m := overridden(r); m != method && guardedMethod(m) {
		return t.reading(r, m), true
	}
	return nil, false
}

// plainPath reports that no upstream can read the path in another way.
func plainPath(raw, path string) bool {
	return raw == "" && !strings.ContainsAny(path, ";\\%") && !strings.Contains(path, "//") && !strings.Contains(path, "/.")
}

// disguised checks a request that matches rt for a path that something behind
// us may read as another: encoded dot segments and slashes, path parameters.
func (t *table) disguised(r *http.Request, rt *route) (*route, bool) {
	if clean(r.URL.Path) != strings.TrimSuffix(r.URL.Path, "/") && r.URL.Path != "/" {
		return rt, true
	}
	if other := t.reading(r, r.Method); other != nil && other.op != rt.op {
		return rt, true
	}
	return rt, false
}

// reading looks for an operation that another reading of the request matches.
// It returns nil where there is none.
func (t *table) reading(r *http.Request, method string) *route {
	path := clean(strings.ReplaceAll(stripParams(r.URL.Path), "\\", "/"))
	for _, p := range [...]string{path, path + "/"} {
		if p == "" {
			continue
		}
		q := &http.Request{Method: method, Host: lowerHost(r.Host), URL: escaped(p)}
		h, _ := t.mux.Handler(q)
		if rt, ok := h.(*route); ok {
			return rt
		}
	}
	return nil
}

// overridden is the method that a framework behind us may take instead of the
// one in the request line; empty where none is named.
func overridden(r *http.Request) string {
	for _, name := range overrides {
		if v := r.Header.Get(name); v != "" {
			return strings.ToUpper(textproto.TrimString(v))
		}
	}
	return ""
}

// values matches once more to learn the path values of pattern wildcards.
func (t *table) values(r *http.Request) *http.Request {
	c := *r
	c.Host = lowerHost(r.Host)
	c.RequestURI = ""
	t.mux.ServeHTTP(nil, &c) // route.ServeHTTP does nothing
	return &c
}
