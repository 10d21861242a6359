package httpguard

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
)

// Bounds of what a guarded request may be.
const (
	maxTarget     = 8 << 10 // bytes of the request target; longer ones get 414
	maxFieldLines = 100     // header field lines; more get 431
)

func invalidRequest(detail string) *Problem {
	return &Problem{Code: ProblemRequestInvalid, Detail: detail}
}

func invalidStatus(status int, detail string) *Problem {
	return &Problem{Code: ProblemRequestInvalid, Status: status, Detail: detail}
}

// checkDisguise refuses what could show the key, the principal or our own
// fields to one reader and hide them from another. It is asked of every request
// to an operation, guarded or not (dangers.md rows H01, H02, K16, K22).
func (rt *route) checkDisguise(r *http.Request) *Problem {
	lines := 0
	for name, values := range r.Header {
		lines += len(values)
		if !strings.Contains(name, "_") {
			continue
		}
		if plain := dashed(name); rt.relies(plain) {
			return &Problem{Code: ProblemKeyInvalid, Detail: "a field is spelled with an underscore that some servers read as " + plain + "; send only " + plain}
		}
	}
	if lines > maxFieldLines {
		return invalidStatus(http.StatusRequestHeaderFieldsTooLarge, "too many header fields")
	}
	if p := rt.checkTrailer(r); p != nil {
		return p
	}
	bad := ""
	tokens(r.Header["Connection"], func(option string) bool {
		switch strings.ToLower(option) {
		case "close", "keep-alive", "te", "upgrade":
			return true
		}
		bad = option
		return false
	})
	if bad != "" {
		// The option itself is not repeated: it is the caller's text.
		return invalidRequest("the Connection field names a field to be taken off on the way; only close and keep-alive are allowed")
	}
	return nil
}

// checkTrailer refuses the fields that count when they come after the body,
// where nobody has read them yet. It is asked again when the body was read.
func (rt *route) checkTrailer(r *http.Request) *Problem {
	for name := range r.Trailer {
		if rt.relies(dashed(name)) {
			return invalidRequest("the key, the account and the fields that define the request must not come in a trailer")
		}
	}
	return nil
}

func dashed(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// relies reports whether the guard reads the field of that canonical name.
func (rt *route) relies(name string) bool { return slices.Contains(rt.guardKeys, name) }

// checkShape refuses requests that are not what a guarded request may be.
func checkShape(r *http.Request) *Problem {
	switch {
	case len(r.RequestURI) > maxTarget || len(r.URL.RawQuery) > maxTarget:
		return invalidStatus(http.StatusRequestURITooLong, "the request target is longer than 8 KiB")
	case r.URL.IsAbs() || r.URL.Host != "":
		return invalidStatus(http.StatusMisdirectedRequest, "the request target must be a path, not a whole URL")
	case strings.Contains(r.RequestURI, "#"):
		return invalidRequest("the request target has a fragment")
	case !ascii(r.Host):
		return invalidRequest("the host is not ASCII")
	case len(r.Header["Upgrade"]) > 0:
		return invalidRequest("a request with an idempotency key cannot be upgraded")
	case earlyData(r):
		return invalidStatus(http.StatusTooEarly, "the request came in TLS early data and could be a repetition")
	case !validQuery(r.URL.RawQuery):
		return invalidRequest("the query has a semicolon or a bad escape, which servers read in different ways")
	}
	return nil
}

func earlyData(r *http.Request) bool {
	for _, v := range r.Header["Early-Data"] {
		if textproto.TrimString(v) == "1" {
			return true
		}
	}
	return false
}

// validQuery reports whether every reader splits and decodes the query alike
// (dangers.md rows U07, U08).
func validQuery(q string) bool {
	if !strings.ContainsAny(q, ";%") {
		return true
	}
	if strings.Contains(q, ";") {
		return false
	}
	_, err := url.QueryUnescape(q)
	return err == nil
}

func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
