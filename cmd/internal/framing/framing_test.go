package framing_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/cmd/internal/framing"
)

// pieces is a connection whose reads return at most size bytes at a time.
type pieces struct {
	net.Conn
	rest string
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.rest == "" {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

// listener accepts one connection.
type listener struct {
	net.Listener
	conn net.Conn
}

func (l listener) Accept() (net.Conn, error) { return l.conn, nil }

// framedAll is everything that comes through the framing.
func framedAll(stream string, size int) (string, error) {
	c, err := framing.Listener{Listener: listener{conn: &pieces{rest: stream, size: size}}}.Accept()
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// FuzzFraming: what comes through does not depend on how the bytes arrive, and
// is the stream itself up to where something is refused; and every request in
// it has one framing only by net/http's reading, too.
func FuzzFraming(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\nab\r\n0\r\n\r\n",
		"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\nHost: x\n\n",
		"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
		"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /" + strings.Repeat("x", 9000) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("x", 20000) + "\r\n\r\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		whole, wholeErr := framedAll(stream, len(stream)+1)
		for _, size := range []int{1, 3} {
			got, err := framedAll(stream, size)
			if got != whole || (err == nil) != (wholeErr == nil) {
				t.Fatalf("in pieces of %d: %q, %v\nat once: %q, %v", size, got, err, whole, wholeErr)
			}
		}
		// Empty lines before a request are dropped, nothing else is changed.
		ends := strings.NewReplacer("\r", "", "\n", "")
		if !strings.Contains(whole, "Counterfoil-Refused") && !strings.HasPrefix(ends.Replace(stream), ends.Replace(whole)) {
			t.Fatalf("%q became %q", stream, whole)
		}
		r := bufio.NewReader(strings.NewReader(whole))
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return // the end, or something that net/http refuses by itself
			}
			if len(req.TransferEncoding) > 0 && req.Header.Get("Content-Length") != "" {
				t.Fatalf("two framings in %q", whole)
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				return
			}
			if len(req.Trailer) > 0 {
				t.Fatalf("a trailer came through in %q", whole)
			}
		}
	})
}
