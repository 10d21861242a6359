package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
)

// once is a RoundTripper that sends a request at most once, and knows whether
// it did. Safe methods are the exception: net/http may send a GET again.
type once struct{ transport *http.Transport }

// idleTimeout is below the shortest keep-alive time in common use (5 s): a
// request that goes out on a connection just as the upstream closes it can not
// be told from one that ran.
const idleTimeout = 4 * time.Second

// maxAnswerHeader bounds the header of an answer, in bytes.
const maxAnswerHeader = 256 << 10

func newOnce(dialTimeout time.Duration) *once {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // HTTP/2 resends on its own terms
	return &once{&http.Transport{
		Protocols: &protocols,
		Proxy:     nil, // the upstream is fixed: no detour by the environment
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &counted{Conn: c}, nil
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		DisableCompression:     true, // answers go back as they came
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
	}}
}

// sendError is a request that got no answer.
type sendError struct {
	err error
	// sent: the upstream may have seen something of it.
	sent bool
}

func (e *sendError) Error() string { return e.err.Error() }
func (e *sendError) Unwrap() error { return e.err }

// RoundTrip implements http.RoundTripper. Its errors are *sendError.
func (o *once) RoundTrip(r *http.Request) (*http.Response, error) {
	var conn *counted
	var before int64
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if conn = countedOf(info.Conn); conn != nil {
				before = conn.written.Load()
			}
		},
	})
	out := r.WithContext(ctx)
	out.GetBody = nil
	out.Header = unlisted(r.Header)
	resp, err := o.transport.RoundTrip(out)
	if err != nil {
		// When RoundTrip returns an error its connection's writer has ended, so
		// the count does not move any more.
		return nil, &sendError{err, conn != nil && conn.written.Load() != before}
	}
	return resp, nil
}

// unlisted is h with its keys under names that net/http does not look up. They
// go to the wire all the same, where case does not count.
func unlisted(h http.Header) http.Header {
	if h["Idempotency-Key"] == nil && h["X-Idempotency-Key"] == nil {
		return h
	}
	h = h.Clone()
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = values
		}
	}
	return h
}

// counted counts the bytes that were handed to a connection, before they are:
// what failed half-way counts as sent.
type counted struct {
	net.Conn
	written atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	c.written.Add(int64(len(b)))
	return c.Conn.Write(b)
}

// countedOf finds the counter beneath TLS.
func countedOf(c net.Conn) *counted {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	n, _ := c.(*counted)
	return n
}
