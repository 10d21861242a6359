// Package framing keeps from net/http what not everybody frames alike.
//
// net/http itself takes a Content-Length beside chunked, ignores chunked in
// HTTP/1.0, joins folded lines and accepts what ends in a bare line feed, and
// no handler can tell afterwards (dangers.md H03, H08, K14).
package framing

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

// Bounds of a request's head.
const (
	MaxHead   = 16 << 10 // bytes, with the request line
	MaxTarget = 8 << 10  // bytes of the request line's target
	maxFields = 100      // header field lines
)

// framed is a connection of which net/http sees only requests that everybody
// frames alike.
//
// A head that is refused is put in another's place: a request that [Refused]
// knows, so that it is answered in its turn behind those that came before it.
//
// Read is called by one goroutine at a time, as net/http does.
type framed struct {
	net.Conn
	raw   bytes.Buffer // read and not judged yet
	ready []byte       // judged and not handed on yet
	state frameState
	left  int64 // bytes of body or of a chunk that are still to come
	err   error
	// hijacked: whoever has the connection now frames it by other rules.
	hijacked atomic.Bool
}

type frameState uint8

const (
	atHead frameState = iota
	inBody
	atChunk
	inChunk
	atChunkEnd
	atLastEnd
	refusedHead
)

var errChunk = errors.New("malformed chunked body")

// Listener has framed connections. Its http.Server must have [OnState].
type Listener struct{ net.Listener }

// Accept frames what it accepts.
func (l Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &framed{Conn: c}, nil
}

// OnState is http.Server.ConnState: who hijacks a connection gets it as it is.
func OnState(c net.Conn, s http.ConnState) {
	if f, ok := c.(*framed); ok && s == http.StateHijacked {
		f.hijacked.Store(true)
	}
}

// CloseWrite is what net/http ends a refused connection with.
func (f *framed) CloseWrite() error {
	if c, ok := f.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

func (f *framed) Read(p []byte) (int, error) {
	for {
		switch {
		case len(f.ready) > 0:
			n := copy(p, f.ready)
			f.ready = f.ready[n:]
			return n, nil
		case f.hijacked.Load():
			if f.raw.Len() > 0 {
				return f.raw.Read(p)
			}
			return f.Conn.Read(p)
		case f.err != nil:
			return 0, f.err
		case f.state == refusedHead:
			return f.drain(p)
		case f.state == inBody && f.raw.Len() == 0:
			// The common case of a body: no copy.
			n, err := f.Conn.Read(p[:min(int64(len(p)), f.left)])
			f.pass(n, atHead)
			return n, err
		}
		if f.judge() {
			continue
		}
		if err := f.more(); err != nil {
			return 0, err
		}
	}
}

// more reads what is needed to go on judging.
func (f *framed) more() error {
	f.raw.Grow(2 << 10) // ten thousand slow callers hold one each
	b := f.raw.AvailableBuffer()
	n, err := f.Conn.Read(b[:cap(b)])
	f.raw.Write(b[:n])
	if n > 0 {
		return nil
	}
	return err
}

// drain reads on, to no end, so that closing the connection does not take the
// answer away from a caller who is still sending.
func (f *framed) drain(p []byte) (int, error) {
	f.raw.Reset()
	for left := 256 << 10; left > 0; {
		n, err := f.Conn.Read(p)
		if err != nil {
			return 0, err
		}
		left -= n
	}
	f.err = errors.New("refused")
	return 0, f.err
}

// pass counts n bytes of body or chunk; then comes the state next.
func (f *framed) pass(n int, next frameState) {
	if f.left -= int64(n); f.left == 0 {
		f.state = next
	}
}

// judge hands on what can be, and reports whether anything changed.
func (f *framed) judge() bool {
	switch f.state {
	case atHead:
		return f.head()
	case inBody:
		f.ready = f.raw.Next(int(min(int64(f.raw.Len()), f.left)))
		f.pass(len(f.ready), atHead)
		return len(f.ready) > 0
	case inChunk:
		f.ready = f.raw.Next(int(min(int64(f.raw.Len()), f.left)))
		f.pass(len(f.ready), atChunkEnd)
		return len(f.ready) > 0
	}
	line, ok := f.line()
	if !ok {
		return f.err != nil
	}
	switch f.state {
	case atChunk:
		size, err := chunkSize(line)
		switch {
		case err != nil:
			f.err = err
			return true
		case size == 0:
			f.state = atLastEnd
		default:
			f.state, f.left = inChunk, size
		}
	case atChunkEnd, atLastEnd:
		if len(line) != 2 { // a trailer, or a chunk longer than it said
			f.err = errChunk
			return true
		}
		if f.state == atLastEnd {
			f.state = atHead
		} else {
			f.state = atChunk
		}
	}
	f.ready = line
	return true
}

// maxChunkLine bounds a chunk's size with its extensions.
const maxChunkLine = 256

// line is the next whole line with its CR LF.
func (f *framed) line() ([]byte, bool) {
	b := f.raw.Bytes()
	i := bytes.IndexByte(b, '\n')
	switch {
	case i < 0 && len(b) <= maxChunkLine:
		return nil, false
	case i < 1 || i > maxChunkLine || bytes.IndexByte(b[:i], '\r') != i-1:
		f.err = errChunk
		return nil, false
	}
	return f.raw.Next(i + 1), true
}

func chunkSize(line []byte) (int64, error) {
	digits, _, _ := strings.Cut(string(line[:len(line)-2]), ";")
	if len(digits) == 0 || len(digits) > 15 || strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
		return 0, errChunk
	}
	return strconv.ParseInt(digits, 16, 64)
}

// head hands on a whole head, or another in its place.
func (f *framed) head() bool {
	// Empty lines may come before a request (RFC 9112 §2.2).
	for bytes.HasPrefix(f.raw.Bytes(), []byte("\r\n")) {
		f.raw.Next(2)
	}
	b := f.raw.Bytes()
	end := bytes.Index(b, []byte("\r\n\r\n"))
	whole := b[:max(end, 0)]
	switch {
	case end >= 0:
	case len(b) >= MaxHead, bytes.Contains(b, []byte("\n\n")):
		whole = b // too long, or ended otherwise
	default:
		return false
	}
	n, chunked, no := judgeHead(whole)
	if no == nil && (end < 0 || end+4 > MaxHead) {
		no = &refusal{http.StatusRequestHeaderFieldsTooLarge, "the header is larger than 16 KiB"}
	}
	if no != nil {
		f.ready, f.state = no.head(), refusedHead
		return true
	}
	f.ready = f.raw.Next(end + 4)
	switch {
	case chunked:
		f.state = atChunk
	case n > 0:
		f.state, f.left = inBody, n
	}
	return true
}

// refusal is why a head is not handed on.
type refusal struct {
	status int
	detail string
}

// refusedField marks a head put in another's place. Its value begins with a
// secret of this process, so that nobody can send one.
const refusedField = "Counterfoil-Refused"

var refusedSecret = rand.Text()

func (r *refusal) head() []byte {
	return fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n%s: %s %d %s\r\n\r\n", refusedField, refusedSecret, r.status, r.detail)
}

// Refused reports whether a request stands for one that was refused, with the
// status and the words to answer it with. The connection is of no use then.
func Refused(r *http.Request) (status int, detail string, ok bool) {
	secret, rest, _ := strings.Cut(r.Header.Get(refusedField), " ")
	code, detail, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if secret != refusedSecret || err != nil {
		return 0, "", false
	}
	return status, detail, true
}

// judgeHead reads of a head, without its last two line ends, how its body is
// framed. What net/http refuses by itself it lets through to be refused.
func judgeHead(head []byte) (length int64, chunked bool, _ *refusal) {
	no := func(status int, detail string) (int64, bool, *refusal) {
		return 0, false, &refusal{status, detail}
	}
	bad := func(detail string) (int64, bool, *refusal) { return no(http.StatusBadRequest, detail) }
	lines := strings.Split(string(head), "\r\n")
	if _, target, _ := strings.Cut(lines[0], " "); len(target) > MaxTarget+len(" HTTP/1.1") {
		return no(http.StatusRequestURITooLong, "the request target is longer than 8 KiB")
	}
	if ends := len(lines) - 1; bytes.Count(head, []byte("\r")) != ends || bytes.Count(head, []byte("\n")) != ends || bytes.IndexByte(head, 0) >= 0 {
		return bad("the head has a NUL, or a line that does not end in CR LF")
	}
	if len(lines)-1 > maxFields {
		return no(http.StatusRequestHeaderFieldsTooLarge, "there are more than 100 header fields")
	}
	lengths := 0
	for _, line := range lines[1:] {
		if line != "" && (line[0] == ' ' || line[0] == '\t') {
			return bad("a header field goes on in another line")
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		switch {
		case strings.EqualFold(name, "Content-Length"):
			if lengths++; lengths > 1 {
				return bad("there are two Content-Length fields")
			}
			if n, err := strconv.ParseUint(value, 10, 63); err == nil && value[0] != '+' {
				length = int64(n)
			}
		case strings.EqualFold(name, "Transfer-Encoding"):
			if strings.HasSuffix(lines[0], " HTTP/1.0") {
				return bad("HTTP/1.0 has no Transfer-Encoding")
			}
			if chunked {
				return bad("there are two Transfer-Encoding fields")
			}
			chunked = true
			if !strings.EqualFold(value, "chunked") {
				return no(http.StatusNotImplemented, "the only Transfer-Encoding is chunked")
			}
		}
	}
	if chunked && lengths > 0 {
		return bad("Content-Length and Transfer-Encoding contradict each other")
	}
	return length, chunked, nil
}
