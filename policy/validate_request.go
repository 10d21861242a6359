package policy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"
)

// MatchPattern is a pattern with a method that can be guarded, as a regular
// expression that JSON Schema and Go read alike. ServeMux refuses more.
const MatchPattern = `^(POST|PUT|PATCH|DELETE)[ \t]+[^ \t]*/`

// guardedMethods are the methods that can have an effect (contract.md §4).
var guardedMethods = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// credentialMax is the longest horizon over which a credential may stand in for
// a principal: tokens seldom live longer (contract.md §3).
const credentialMax = 24 * time.Hour

// maxConflicts is how many conflicting patterns are traced: each costs a walk
// over all the others, and a page of them is enough to start with.
const maxConflicts = 50

// route is one pattern with its place.
type route struct{ op, field, pattern string }

// routes checks every pattern of the policy against net/http's own rules, since
// those decide which operation a request belongs to.
func (c *checker) routes(p *Policy) {
	var valid []route
	conflicts := 0
	mux := http.NewServeMux()
	for i := range p.Operations {
		o := &p.Operations[i]
		c.op = o.Name
		for j, pattern := range o.Match {
			r := route{o.Name, fmt.Sprintf("match[%d]", j), pattern}
			if !c.route(r) {
				continue
			}
			// Registering in one mux is quick; only a refusal has to be traced
			// to the earlier pattern, because ServeMux names lines of this file.
			if err := register(mux, pattern); err != nil {
				if conflicts++; conflicts <= maxConflicts {
					c.conflict(r, valid)
				}
				continue
			}
			valid = append(valid, r)
		}
	}
	c.op = ""
}

// route checks one pattern by itself.
func (c *checker) route(r route) bool {
	// ServeMux takes spaces and tabs between the method and the rest.
	end := strings.IndexAny(r.pattern, " \t")
	const remedy = "write METHOD /path with POST, PUT, PATCH or DELETE"
	if err := register(http.NewServeMux(), r.pattern); err != nil {
		c.fail(CodeMatchInvalid, r.field, remedy, "%v", err)
		return false
	}
	if end < 0 {
		c.fail(CodeMatchMethod, r.field, remedy, "pattern %q names no method", r.pattern)
		return false
	}
	// ServeMux would take "PUT a /b" for the host "a ", which no request has.
	if host, _, _ := strings.Cut(strings.TrimLeft(r.pattern[end:], " \t"), "/"); strings.ContainsAny(host, " \t") {
		c.fail(CodeMatchInvalid, r.field, remedy, "pattern %q: there is a space in the host %q", r.pattern, host)
		return false
	}
	if method := r.pattern[:end]; !slices.Contains(guardedMethods, method) {
		c.fail(CodeMatchMethod, r.field, remedy, "pattern %q: method %s is never guarded", r.pattern, method)
		return false
	}
	return true
}

func (c *checker) conflict(r route, earlier []route) {
	for _, e := range earlier {
		mux := http.NewServeMux()
		_ = register(mux, e.pattern) // registered before, so it cannot fail
		if register(mux, r.pattern) == nil {
			continue
		}
		how := "both match some requests and neither is the more specific"
		if e.pattern == r.pattern {
			how = "they are the same"
		}
		c.clash(CodeMatchConflict, r.field, Place{e.op, e.field}, "make one of them more specific, or take one out",
			"pattern %q conflicts with %q of operations.%s.%s: %s", r.pattern, e.pattern, e.op, e.field, how)
		return
	}
}

// register turns the panic of ServeMux into an error.
func register(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// scope checks who a key belongs to.
func (c *checker) scope(o *Operation) {
	const field = "scope.principal"
	const remedy = "write header:NAME, auth_request or anonymous"
	pr := o.Scope.Principal
	if o.Scope.Family != "" {
		c.name("family", "scope.family", o.Scope.Family)
	}
	switch pr.Kind {
	case "":
		c.fail(CodeScopeMissing, field, remedy, "no principal: one caller's key would answer another's request")
		return
	case PrincipalHeader:
		if !headerName(pr.Header) {
			c.fail(CodePrincipalInvalid, field, remedy, "%q is no header name", pr.Header)
			return
		}
		if strings.EqualFold(pr.Header, o.Key.Header) {
			c.fail(CodePrincipalInvalid, field, "name the account's header", "header %s carries the key itself", pr.Header)
		}
	case PrincipalAuthRequest, PrincipalAnonymous:
		if pr.Header != "" {
			c.fail(CodePrincipalInvalid, field, remedy, "%s names a header (%s), which it does not use", pr.Kind, pr.Header)
		}
	default:
		c.fail(CodePrincipalInvalid, field, remedy, "%q is no kind of principal", pr.Kind)
	}
	if pr.Kind == PrincipalAnonymous {
		c.warn(CodePrincipalAnonymous, field, "use header:NAME where callers can be told apart",
			"all callers share their keys: who guesses a key sees its answer")
	}
	if pr.Kind == PrincipalHeader && credential(pr.Header) {
		message := fmt.Sprintf("%s is a credential; after a token is refreshed the same caller's retry is a new request", pr.Header)
		const remedy = "name the account that owes or is owed, in a header set by a trusted peer"
		if h := o.Retention(); h > credentialMax {
			c.fail(CodePrincipalCredential, field, remedy, "%s, and the horizon is %s (more than %s)",
				message, FormatDuration(h), FormatDuration(credentialMax))
		} else {
			c.warn(CodePrincipalCredential, field, remedy, "%s", message)
		}
	}
}

// credential reports whether a header usually carries what proves who the
// caller is today, as against who it is.
func credential(header string) bool {
	h := strings.ToLower(header)
	switch h {
	case "authorization", "proxy-authorization", "cookie", "ocp-apim-subscription-key", "x-functions-key":
		return true
	}
	for _, end := range []string{"api-key", "apikey", "token", "secret", "password"} {
		if strings.HasSuffix(h, end) {
			return true
		}
	}
	return false
}

// HeaderPattern is a header's name (RFC 9110 token), as a regular expression
// that JSON Schema and Go read alike.
const HeaderPattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"

var headerForm = regexp.MustCompile(HeaderPattern)

func headerName(s string) bool { return headerForm.MatchString(s) }

// unfitKeyHeaders cannot carry a key: proxies take them off or rewrite them.
var unfitKeyHeaders = []string{"Connection", "Content-Length", "Cookie", "Host", "Authorization", "Transfer-Encoding", "Upgrade", "Te", "Trailer"}

func (c *checker) key(o *Operation) {
	switch h := textproto.CanonicalMIMEHeaderKey(o.Key.Header); {
	case !headerName(o.Key.Header):
		c.fail(CodeKeyInvalid, "key.header", "write "+DefaultKeyHeader, "%q is no header name", o.Key.Header)
	case slices.Contains(unfitKeyHeaders, h):
		c.fail(CodeKeyInvalid, "key.header", "write "+DefaultKeyHeader, "%s has another use and cannot carry a key", h)
	}
	c.word("key.format", string(o.Key.Format), string(KeyAny), string(KeyUUID), string(KeyUUIDv7), string(KeyULID))
}

// fingerprint checks what can be told without a JSONPath reader; package
// fingerprint reads the paths.
func (c *checker) fingerprint(o *Operation) {
	path := func(field, p string) {
		if !strings.HasPrefix(p, "$") {
			c.fail(CodeFingerprintInvalid, field, "begin it with $, as in $.amount", "%q is no JSONPath", p)
		}
	}
	for i, p := range o.Fingerprint.Fields {
		path(fmt.Sprintf("fingerprint.fields[%d]", i), p)
	}
	for i, p := range o.Fingerprint.Ignore {
		path(fmt.Sprintf("fingerprint.ignore[%d]", i), p)
	}
	seen := map[string]bool{}
	for _, d := range o.Fingerprint.Defaults {
		field := "fingerprint.defaults"
		path(field, d.Path)
		if seen[d.Path] {
			c.fail(CodeFingerprintInvalid, field, "give it one value", "%q has two defaults", d.Path)
		}
		seen[d.Path] = true
		if !json.Valid([]byte(d.Value)) {
			c.fail(CodeFingerprintInvalid, field, "write a JSON value", "the default of %q is not JSON", d.Path)
		}
	}
	for i, h := range o.Fingerprint.Headers {
		field := fmt.Sprintf("fingerprint.headers[%d]", i)
		switch {
		case !headerName(h):
			c.fail(CodeFingerprintInvalid, field, "write a header's name", "%q is no header name", h)
		case strings.EqualFold(h, o.Key.Header):
			c.fail(CodeFingerprintInvalid, field, "take it out", "%s carries the key itself", h)
		case credential(h):
			c.warn(CodeFingerprintCredential, field, "take it out",
				"%s is a credential; after a token is refreshed every retry would be taken for another request", h)
		}
	}
}

// wildcard finds the {name} and {name...} of a pattern or template.
var wildcard = regexp.MustCompile(`\{([^{}]*)\}`)

func wildcards(s string) []string {
	var names []string
	for _, m := range wildcard.FindAllStringSubmatch(s, -1) {
		if name := strings.TrimSuffix(m[1], "..."); name != "$" {
			names = append(names, name)
		}
	}
	return names
}

// resource checks that the template can be filled in, whichever pattern the
// request came by.
func (c *checker) resource(o *Operation) {
	if o.Resource == "" {
		return
	}
	if !strings.HasPrefix(o.Resource, "/") || strings.HasPrefix(o.Resource, "//") ||
		strings.ContainsFunc(o.Resource, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		c.fail(CodeResourceInvalid, "resource", "write a path on this server, as in /v1/payments/{payment}",
			"%q is no path", o.Resource)
		return
	}
	for _, name := range wildcards(o.Resource) {
		for _, pattern := range o.Match {
			if !slices.Contains(wildcards(pattern), name) {
				c.fail(CodeResourceInvalid, "resource", "use only wildcards that every pattern has",
					"{%s} is not in pattern %q", name, pattern)
			}
		}
	}
}
