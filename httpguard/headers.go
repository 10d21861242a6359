package httpguard

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// Header fields of contract.md §4.
const (
	HeaderFirstSent      = "Idempotency-First-Sent"
	HeaderStatus         = "Idempotency-Status"
	HeaderRecord         = "Idempotency-Record"
	HeaderReplayUntil    = "Idempotency-Replay-Until"
	HeaderProtectedUntil = "Idempotency-Protected-Until"
	HeaderReplayed       = "Idempotent-Replayed"

	// HeaderIdentity goes to the handler with every attempt: the same on all
	// attempts of a record, fit as a downstream idempotency key.
	HeaderIdentity = "Counterfoil-Identity"
	// HeaderOutcome (none, final or unknown) and HeaderResource are what a
	// handler or an upstream may answer; the caller never sees them.
	HeaderOutcome  = "Counterfoil-Outcome"
	HeaderResource = "Counterfoil-Resource"
)

// internal are the fields between the guard and the handler. From a caller
// they are dropped, and they never reach one.
var internal = []string{HeaderIdentity, HeaderOutcome, HeaderResource}

// overrides are the fields by which some frameworks take another method than
// the one in the request line (dangers.md row H14).
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// MethodOverrides are the fields, by their canonical names, that let a request
// act under another method than the one it was matched by. A handler under the
// guard never gets them; a proxy must not send them on either.
func MethodOverrides() []string { return slices.Clone(overrides) }

// unstored are the fields that a replay must not carry and that are never
// stored: hop-by-hop and framing fields, and what belongs to the first exchange
// only (cases.md C03).
var unstored = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Content-Length": true,
	"Date": true, "Set-Cookie": true, "Www-Authenticate": true, "Proxy-Authenticate": true,
	"Authentication-Info": true, "Proxy-Authentication-Info": true,
}

// ours are the fields that the guard sets on answers. What a handler puts in
// them is dropped, so that a caller can rely on them.
var ours = map[string]bool{
	HeaderStatus: true, HeaderRecord: true, HeaderReplayUntil: true, HeaderProtectedUntil: true,
	HeaderReplayed: true, HeaderIdentity: true, HeaderOutcome: true, HeaderResource: true,
}

// tokens calls f with each element of a comma-separated field, without white
// space, until f returns false.
func tokens(lines []string, f func(string) bool) {
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			if part = textproto.TrimString(part); part != "" && !f(part) {
				return
			}
		}
	}
}

// validValue reports whether v may stand in a field (RFC 9110 §5.5). A value
// with a line break could inject another field when it is replayed
// (dangers.md row H22).
func validValue(v string) bool {
	for i := 0; i < len(v); i++ {
		if c := v[i]; c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// without returns r, or a copy of it that lacks the named fields.
func without(r *http.Request, names []string) *http.Request {
	for i, name := range names {
		if _, ok := r.Header[name]; !ok {
			continue
		}
		c := *r
		c.Header = cloneHeader(r.Header, 0)
		for _, name := range names[i:] {
			delete(c.Header, name)
		}
		return &c
	}
	return r
}

// cloneHeader copies the map with room for more fields. Values are shared:
// nobody changes a value in place.
func cloneHeader(h http.Header, more int) http.Header {
	c := make(http.Header, len(h)+more)
	for k, v := range h {
		c[k] = v
	}
	return c
}
