package fingerprint

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/counterfoil/counterfoil/policy"
	"github.com/theory/jsonpath"
	"github.com/theory/jsonpath/spec"
)

// DefaultMaxBody is the limit of a decoded body, in bytes, where
// [Options.MaxBody] is zero. It equals the default of max_request.
const DefaultMaxBody = 1 << 20

// minSecret is the shortest HMAC key, in bytes, as for counterfoil.IndexKey.
const minSecret = 32

// Options are the settings of a [Rule] that do not come from a policy.
type Options struct {
	// Secret keys the digests with HMAC-SHA256, so that somebody who reads a
	// store cannot guess bodies of little entropy (dangers.md §4.1). At least 32
	// bytes; nil hashes without a key. It is copied.
	Secret []byte
	// MaxBody is the limit of a body after gzip is undone, in bytes; zero stands
	// for [DefaultMaxBody]. It does not limit bodies that were sent plain.
	MaxBody int64
}

// Rule is the compiled fingerprint rule of one operation. It is safe for
// concurrent use and never changes.
type Rule struct {
	maxBody  int64
	headers  []string // canonical names, sorted, each once
	fields   []*jsonpath.Path
	ignore   []*jsonpath.Path
	defaults []defaultMember
	forms    sync.Pool // of *form
}

// defaultMember is a member of a JSON body that counts as present.
type defaultMember struct {
	names []string // at least one
	value []byte   // JSON in canonical form
}

// Compile checks a policy's rule and makes it ready for use. The error joins
// every fault found, each with the name and the index of its field.
func Compile(rule policy.Fingerprint, o Options) (*Rule, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	r := &Rule{maxBody: o.MaxBody}
	switch {
	case o.MaxBody < 0:
		fault("max body: %d bytes; use 0 for the default or a number above zero", o.MaxBody)
	case o.MaxBody == 0:
		r.maxBody = DefaultMaxBody
	}
	if o.Secret != nil && len(o.Secret) < minSecret {
		fault("secret: %d bytes; at least %d are needed, or nil for none", len(o.Secret), minSecret)
	}

	for i, text := range rule.Fields {
		path, err := jsonpath.Parse(text)
		if err != nil {
			fault("fields[%d] %q: %w; want an RFC 9535 path as in $.amount", i, text, err)
			continue
		}
		r.fields = append(r.fields, path)
	}
	for i, text := range rule.Ignore {
		path, err := jsonpath.Parse(text)
		switch {
		case err != nil:
			fault("ignore[%d] %q: %w; want an RFC 9535 path as in $.metadata.sent_at", i, text, err)
		case len(path.Query().Segments()) == 0:
			fault("ignore[%d] %q: it ignores the whole body, so that every body is the same; name the volatile members", i, text)
		default:
			r.ignore = append(r.ignore, path)
		}
	}
	for i, d := range rule.Defaults {
		m, err := compileDefault(d)
		if err != nil {
			fault("defaults[%d] %q: %w", i, d.Path, err)
			continue
		}
		if slices.ContainsFunc(r.defaults, func(x defaultMember) bool { return slices.Equal(x.names, m.names) }) {
			fault("defaults[%d] %q: the member has a default already", i, d.Path)
			continue
		}
		r.defaults = append(r.defaults, m)
	}
	// Outer members come first, whatever the order in the file.
	slices.SortFunc(r.defaults, func(a, b defaultMember) int {
		if len(a.names) != len(b.names) {
			return len(a.names) - len(b.names)
		}
		return slices.Compare(a.names, b.names)
	})
	for i, name := range rule.Headers {
		switch {
		case !isToken(name):
			fault("headers[%d] %q: not a header field name (RFC 9110 §5.1)", i, name)
		case strings.EqualFold(name, "Host"):
			fault("headers[%d] %q: net/http keeps the host outside the header fields, so it would never count", i, name)
		default:
			r.headers = append(r.headers, http.CanonicalHeaderKey(name))
		}
	}
	slices.Sort(r.headers)
	r.headers = slices.Compact(r.headers)

	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	secret := bytes.Clone(o.Secret)
	r.forms.New = func() any {
		if secret == nil {
			return &form{hash: sha256.New()}
		}
		return &form{hash: hmac.New(sha256.New, secret)}
	}
	return r, nil
}

func compileDefault(d policy.Default) (defaultMember, error) {
	path, err := jsonpath.Parse(d.Path)
	if err != nil {
		return defaultMember{}, fmt.Errorf("%w; want member names only as in $.capture.mode", err)
	}
	var m defaultMember
	for _, s := range path.Query().Segments() {
		selectors := s.Selectors()
		if path.Query().Singular() == nil || len(selectors) != 1 {
			return defaultMember{}, errors.New("it may select more than one member; want member names only as in $.capture.mode")
		}
		name, ok := selectors[0].(spec.Name)
		if !ok {
			return defaultMember{}, errors.New("it selects an array element; want member names only as in $.capture.mode")
		}
		m.names = append(m.names, string(name))
	}
	if len(m.names) == 0 {
		return defaultMember{}, errors.New("it names no member; want member names only as in $.capture.mode")
	}
	var f form
	value, ok := f.canonical([]byte(d.Value))
	if !ok {
		return defaultMember{}, fmt.Errorf("value %q is not JSON that has one meaning; a text needs quotes, as in \"auto\"", d.Value)
	}
	m.value = bytes.Clone(value)
	return m, nil
}

// isToken reports whether s is a token of RFC 9110 §5.6.2.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
