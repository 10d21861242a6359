package httpguard

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/dunglas/httpsfv"
)

// ParseKey reads the value of a key field: an RFC 8941 string without
// parameters, or the bare characters of the same key (contract.md §4). Errors
// wrap counterfoil.ErrKeyInvalid, say which rule is broken, and never hold the
// value.
func ParseKey(value string) (counterfoil.Key, error) {
	v := textproto.TrimString(value)
	invalid := func(why string) (counterfoil.Key, error) {
		return "", fmt.Errorf("%w: %s", counterfoil.ErrKeyInvalid, why)
	}
	if strings.HasPrefix(v, `"`) {
		s, ok := plainString(v)
		if !ok {
			item, err := httpsfv.UnmarshalItem([]string{v})
			if err != nil {
				return invalid("it begins with a quote and is not one whole RFC 8941 string")
			}
			if s, ok = item.Value.(string); !ok || len(item.Params.Names()) > 0 {
				return invalid("it has parameters; only the string itself is allowed")
			}
		}
		v = s
	} else if i := strings.IndexAny(v, "\",;\\"); i >= 0 {
		return invalid(`a key without quotes must not hold quotes, commas, semicolons or backslashes`)
	}
	k := counterfoil.Key(v)
	return k, k.Validate()
}

// plainString is a quoted string without escapes, which is nearly all of them.
func plainString(v string) (string, bool) {
	if len(v) < 2 || v[len(v)-1] != '"' {
		return "", false
	}
	s := v[1 : len(v)-1]
	return s, !strings.ContainsAny(s, "\"\\")
}

// key reads the request's key. It returns "" and nil where the field is absent;
// a field that is there but empty is an error, since its sender meant to be
// protected (cases.md C14).
func (rt *route) key(r *http.Request) (counterfoil.Key, *Problem) {
	name := rt.keyHeader
	lines := r.Header[name]
	switch len(lines) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", invalidKey(fmt.Sprintf("the field %s comes in %d lines; send one", name, len(lines)))
	}
	k, err := ParseKey(lines[0])
	if err == nil {
		err = k.ValidateFormat(rt.op.Key.Format)
	}
	if err != nil {
		return "", invalidKey(reason(err))
	}
	return k, nil
}

// invalidKey: nothing ever ran under a key that no policy accepts.
func invalidKey(detail string) *Problem {
	return &Problem{Code: ProblemKeyInvalid, Detail: detail, SafeNewKey: true}
}

// reason is the text of a key error without the sentinel's own.
func reason(err error) string {
	return strings.TrimPrefix(err.Error(), counterfoil.ErrKeyInvalid.Error()+": ")
}

// firstSent reads Idempotency-First-Sent; zero where the caller does not say.
func firstSent(r *http.Request) (time.Time, *Problem) {
	lines := r.Header[HeaderFirstSent]
	if len(lines) == 0 {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, textproto.TrimString(lines[0]))
	if len(lines) > 1 {
		err = errors.New("several lines")
	}
	if err != nil || t.Year() < 1970 {
		return time.Time{}, invalidRequest(HeaderFirstSent + " is not one RFC 3339 instant, as in 2026-01-02T15:04:05Z")
	}
	return t, nil
}
