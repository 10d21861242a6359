package httpguard

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// phase is how far an answer has got.
type phase uint8

const (
	// buffering: nothing has left; everything can still be withheld.
	buffering phase = iota
	// passing: the answer leaves as it comes, and is not kept.
	passing
	// hijacked: the handler has the connection.
	hijacked
	// late: the caller was answered at the deadline. What the handler writes
	// reaches nobody, and is kept for the retry in case it succeeds.
	late
	// closed: what the handler still writes goes nowhere.
	closed
)

// recorder is the handler's http.ResponseWriter. It holds the answer back until
// its record is durable; an answer that grows too large, or that is flushed
// early, passes as it comes.
//
// It does not offer Unwrap: whoever unwrapped it could send an answer past the
// record. Deadlines and full duplex work through http.ResponseController.
type recorder struct {
	mu    *sync.Mutex // guards everything; held by the deadline's goroutine too
	w     http.ResponseWriter
	owner *exchange // told once, before an answer begins to leave unrecorded
	limit int64     // bytes of body that are held

	phase  phase
	header http.Header // the handler's
	wrote  bool
	status int
	fields []field // the header as it stood at WriteHeader
	body   []byte
	buffer *[]byte // from buffers, where body stands in it
	lost   bool    // the body grew too large while late
	// declared is the handler's Content-Length, or -1; written is what it wrote.
	declared, written int64
	held              []byte // the last byte of a declared body, while passing
	conn              net.Conn
	inline            [8]field
}

// field is one header field with its lines in order.
type field struct {
	name   string
	values []string
}

func (rec *recorder) init(x *exchange, limit int64) {
	rec.mu, rec.w, rec.owner, rec.limit = &x.mu, x.w, x, limit
	// What middleware outside of us has set, the handler may see and change.
	rec.header = cloneHeader(x.w.Header(), 0)
	rec.declared = -1
}

// Header is the handler's own map: nothing in it leaves before its time.
func (rec *recorder) Header() http.Header { return rec.header }

// WriteHeader records the status. Informational ones pass at once.
func (rec *recorder) WriteHeader(status int) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.writeHeader(status)
}

func (rec *recorder) writeHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http does
	}
	switch {
	case rec.wrote || rec.phase == hijacked || rec.phase == closed:
		return
	case status < 200 && status != http.StatusSwitchingProtocols:
		if rec.phase != late {
			rec.inform(status)
		}
		return
	}
	rec.wrote, rec.status = true, status
	rec.snapshot()
	if status == http.StatusSwitchingProtocols && rec.phase == buffering {
		rec.startPassing()
	}
}

// inform passes a 1xx answer with the fields that stand now.
func (rec *recorder) inform(status int) {
	h := rec.w.Header()
	before := cloneHeader(h, 0)
	for k, v := range rec.header {
		if !ours[k] {
			h[k] = v
		}
	}
	rec.w.WriteHeader(status)
	clear(h)
	for k, v := range before {
		h[k] = v
	}
}

// snapshot keeps the header as it stands: later changes are not part of the
// answer, as with net/http.
func (rec *recorder) snapshot() {
	rec.fields = rec.inline[:0]
	for k, v := range rec.header {
		if strings.HasPrefix(k, http.TrailerPrefix) {
			continue
		}
		name := http.CanonicalHeaderKey(k)
		if ours[name] {
			continue
		}
		if name == "Content-Length" && len(v) == 1 {
			rec.declared = parseLength(v[0])
		}
		rec.fields = append(rec.fields, field{k, validValues(v)})
	}
	slices.SortFunc(rec.fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
}

func validValues(values []string) []string {
	for i, v := range values {
		if validValue(v) {
			continue
		}
		kept := append([]string(nil), values[:i]...)
		for _, v := range values[i+1:] {
			if validValue(v) {
				kept = append(kept, v)
			}
		}
		return kept
	}
	return values
}

func parseLength(s string) int64 {
	var n int64
	if s == "" || len(s) > 18 {
		return -1
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// Write holds p, or passes it.
func (rec *recorder) Write(p []byte) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	switch rec.phase {
	case closed:
		return 0, http.ErrHandlerTimeout
	case hijacked:
		return 0, http.ErrHijacked
	}
	if !rec.wrote {
		rec.writeHeader(http.StatusOK)
	}
	if !bodyAllowed(rec.status) {
		return 0, http.ErrBodyNotAllowed
	}
	over := rec.declared >= 0 && rec.written+int64(len(p)) > rec.declared
	if over {
		p = p[:rec.declared-rec.written]
	}
	if int64(len(rec.body)+len(p)) > rec.limit {
		switch rec.phase {
		case buffering:
			rec.startPassing()
		case late:
			rec.lost = true
			rec.release()
		}
	}
	n, err := len(p), error(nil)
	switch {
	case rec.phase == passing:
		n, err = rec.passOn(p)
	case !rec.lost:
		if rec.buffer == nil {
			rec.buffer = buffers.Get().(*[]byte)
			rec.body = slices.Grow((*rec.buffer)[:0], max(len(p), int(min(rec.declared, firstRead))))
		}
		rec.body = append(rec.body, p...)
	}
	rec.written += int64(n)
	if err == nil && over {
		err = http.ErrContentLength
	}
	return n, err
}

// buffers holds what bodies were held in.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// largestBuffer is the most that is kept for the next body.
const largestBuffer = 64 << 10

// release gives the body's room back. It must not be called after a write of
// the body failed: HTTP/2 may still be reading it then, and would send the next
// caller's answer to this one.
func (rec *recorder) release() {
	if rec.buffer != nil && cap(rec.body) <= largestBuffer {
		*rec.buffer = rec.body[:0]
		buffers.Put(rec.buffer)
	}
	rec.buffer, rec.body = nil, nil
}

// startPassing sends what was held so far, and all else as it comes.
func (rec *recorder) startPassing() {
	rec.phase = passing
	h := rec.w.Header()
	rec.apply(h)
	rec.owner.passing(h)
	rec.w.WriteHeader(rec.status)
	body := rec.body
	rec.buffer, rec.body = nil, nil
	rec.written -= int64(len(body))
	n, _ := rec.passOn(body)
	rec.written += int64(n)
}

// apply puts the handler's fields in place of what is in h.
func (rec *recorder) apply(h http.Header) {
	clear(h)
	for _, f := range rec.fields {
		h[f.name] = f.values
	}
}

// passOn sends p, but for the last byte of a body whose length is declared:
// that one waits for the record, since nothing else would tell the caller that
// the answer did not end cleanly.
func (rec *recorder) passOn(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if rec.declared >= 0 && rec.written+int64(len(p)) == rec.declared {
		n, err := rec.w.Write(p[:len(p)-1])
		if err != nil {
			return n, err
		}
		rec.held = []byte{p[len(p)-1]}
		return len(p), nil
	}
	return rec.w.Write(p)
}

// FlushError lets the answer leave as it comes from now on. An answer without
// a body has nothing to stream, and stays held.
func (rec *recorder) FlushError() error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	switch rec.phase {
	case closed:
		return http.ErrHandlerTimeout
	case hijacked:
		return http.ErrHijacked
	}
	if !rec.wrote {
		rec.writeHeader(http.StatusOK)
	}
	if rec.phase == late {
		return nil
	}
	if rec.phase == buffering {
		if !bodyAllowed(rec.status) || rec.declared == 0 {
			return nil
		}
		rec.startPassing()
	}
	return http.NewResponseController(rec.w).Flush()
}

// Flush is FlushError for those who ask for an http.Flusher.
func (rec *recorder) Flush() { _ = rec.FlushError() }

// Hijack hands the connection over. The answer cannot be kept then.
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.phase == closed || rec.phase == late {
		return nil, nil, http.ErrHandlerTimeout
	}
	conn, rw, err := http.NewResponseController(rec.w).Hijack()
	if err == nil {
		rec.phase, rec.conn = hijacked, conn
	}
	return conn, rw, err
}

// SetReadDeadline, SetWriteDeadline and EnableFullDuplex serve
// http.ResponseController.
func (rec *recorder) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(rec.w).SetReadDeadline(t)
}

// SetWriteDeadline is as of http.ResponseController.
func (rec *recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(rec.w).SetWriteDeadline(t)
}

// EnableFullDuplex is as of http.ResponseController.
func (rec *recorder) EnableFullDuplex() error {
	return http.NewResponseController(rec.w).EnableFullDuplex()
}

// bodyAllowed follows RFC 9110 §6.4.1.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
