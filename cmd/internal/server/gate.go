package server

import (
	"io"
	"net/http"
	"net/textproto"
	"os"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/cmd/internal/framing"
	"github.com/counterfoil/counterfoil/httpguard"
)

// gate refuses what no request may be, guarded or not (dangers.md rows H and
// U), before anything else sees it. What only a guarded request may not be is
// the guard's to refuse.
type gate struct {
	next  http.Handler
	limit Limits
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, detail := judge(r)
	if status != 0 {
		// Otherwise net/http would wait for a body that nobody reads.
		w.Header().Set("Connection", "close")
		refuse(w, status, detail)
		return
	}
	if r.Body != nil && r.Body != http.NoBody {
		control := http.NewResponseController(w)
		// Where nobody reads the body, net/http does, for no longer than this.
		_ = control.SetReadDeadline(time.Now().Add(g.limit.BodyGrace))
		// A copy: net/http looks at its own request's body when it ends.
		c := *r
		r = &c
		r.Body = &pacedBody{ReadCloser: r.Body, control: control, limit: g.limit}
	}
	g.next.ServeHTTP(w, r)
}

// judge returns the status that a request is refused with, or 0.
func judge(r *http.Request) (status int, detail string) {
	if status, detail, ok := framing.Refused(r); ok {
		return status, detail
	}
	if status, detail = checkLine(r); status != 0 {
		return status, detail
	}
	return checkFields(r)
}

func refuse(w http.ResponseWriter, status int, detail string) {
	(&httpguard.Problem{Code: httpguard.ProblemRequestInvalid, Status: status, Detail: detail}).Write(w)
}

// checkLine judges the request line and the host.
func checkLine(r *http.Request) (status int, detail string) {
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return http.StatusMethodNotAllowed, "this method is not served"
	case len(r.RequestURI) > framing.MaxTarget:
		return http.StatusRequestURITooLong, "the request target is longer than 8 KiB"
	case r.RequestURI == "*" && r.Method == http.MethodOptions:
	case !strings.HasPrefix(r.RequestURI, "/"):
		if strings.Contains(r.URL.Host, "@") || r.URL.User != nil {
			return http.StatusBadRequest, "the request target has a user name in it"
		}
		// The upstream is fixed; what is meant for another server is not for us.
		return http.StatusMisdirectedRequest, "the request target must be a path, not a whole URL"
	case strings.Contains(r.RequestURI, "#"):
		return http.StatusBadRequest, "the request target has a fragment"
	}
	for _, c := range []byte(r.Host) {
		if c <= ' ' || c >= 0x7f || c == '@' || c == '/' || c == '?' || c == '#' || c == '\\' || c == ',' {
			return http.StatusBadRequest, "the host is not one"
		}
	}
	return 0, ""
}

// options are what a Connection field may name. Anything else names a field
// to be taken off on the way, ours among them (dangers.md H01, H02).
// HTTP2-Settings belongs to an upgrade that some clients offer with every first
// request; it is taken off with the offer.
var options = map[string]bool{"close": true, "keep-alive": true, "te": true, "upgrade": true, "http2-settings": true}

// maxTrace bounds a traceparent, whose own form has 55 bytes.
const maxTrace = 256

// checkFields judges the header, and takes off what is of no account.
func checkFields(r *http.Request) (status int, detail string) {
	for _, line := range r.Header["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			if o := strings.ToLower(textproto.TrimString(option)); o != "" && !options[o] {
				return http.StatusBadRequest, "the Connection field names a field to be taken off on the way"
			}
		}
	}
	if len(r.Trailer) > 0 {
		return http.StatusBadRequest, "fields after the body are not accepted"
	}
	for _, v := range r.Header["Upgrade"] {
		if strings.EqualFold(textproto.TrimString(v), "h2c") {
			delete(r.Header, "Upgrade")
			delete(r.Header, "Http2-Settings")
			delete(r.Header, "Connection")
			break
		}
	}
	if len(r.Header.Get("Traceparent")) > maxTrace {
		delete(r.Header, "Traceparent")
		delete(r.Header, "Tracestate")
	}
	return 0, ""
}

// unserved refuses, of what the guard lets through, the methods that only look
// like others: some upstreams take post for POST (dangers.md U01).
func unserved(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != strings.ToUpper(r.Method) {
			refuse(w, http.StatusNotImplemented, "methods are spelled in capitals")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// pacedBody gives up on a body that comes too slowly: after a grace it must
// keep up with the least rate (dangers.md B03). The time is only counted while
// somebody waits for it.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	limit   Limits
	read    int64
	waited  time.Duration
	ended   error
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.ended != nil {
		// The connection may be reading on by now: its deadline is not ours.
		return 0, b.ended
	}
	began := time.Now()
	allowed := b.limit.BodyGrace + time.Duration(float64(b.read)/float64(b.limit.BodyRate)*float64(time.Second)) - b.waited
	if allowed <= 0 {
		b.ended = os.ErrDeadlineExceeded
		return 0, b.ended
	}
	_ = b.control.SetReadDeadline(began.Add(allowed)) // where there is no socket there is no need
	n, err := b.ReadCloser.Read(p)
	b.waited += time.Since(began)
	b.read += int64(n)
	b.ended = err
	return n, err
}
