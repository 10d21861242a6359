package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
)

// ErrNoWord is returned when whoever was asked gave no usable answer: nothing
// may be attempted, and nothing replayed.
var ErrNoWord = errors.New("the authorisation service gave no usable answer")

// Asker asks about callers with their own credentials.
type Asker struct {
	method string
	url    *url.URL
	// header of the answer names the principal; empty for a probe.
	header  string
	timeout time.Duration
	once    *once
}

// NewAuthRequest asks a service who the caller is (auth_request).
func NewAuthRequest(u *url.URL, principalHeader string, timeout time.Duration) *Asker {
	return &Asker{http.MethodGet, u, principalHeader, timeout, newOnce(timeout)}
}

// NewAuthProbe asks the upstream whether the caller may still have an answer
// (auth_probe).
func NewAuthProbe(upstream *url.URL, method, path string) (*Asker, error) {
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return nil, fmt.Errorf("auth_probe: %w", err)
	}
	u.Scheme, u.Host = upstream.Scheme, upstream.Host
	return &Asker{method, u, "", probeTimeout, newOnce(probeTimeout)}, nil
}

// probeTimeout bounds a probe; the caller waits for it.
const probeTimeout = 2 * time.Second

// Close closes idle connections.
func (a *Asker) Close() { a.once.transport.CloseIdleConnections() }

// maxRefusal bounds the body of a refusal that is passed on.
const maxRefusal = 16 << 10

// Ask sends the caller's credentials. It returns the principal that the answer
// names (empty for a probe, or when it names none), an
// *httpguard.Answer to pass on for 401 and 403, or an error that wraps ErrNoWord.
func (a *Asker) Ask(r *http.Request) (counterfoil.Principal, error) {
	ctx, cancel := context.WithTimeout(r.Context(), a.timeout)
	defer cancel()
	resp, err := a.once.RoundTrip(a.question(ctx, r))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoWord, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrNoWord, err)
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		return "", &httpguard.Answer{Status: resp.StatusCode, Header: refusalHeader(resp.Header), Body: body}
	case resp.StatusCode/100 != 2:
		return "", fmt.Errorf("%w: status %d", ErrNoWord, resp.StatusCode)
	case a.header == "":
		return "", nil
	}
	names := resp.Header.Values(a.header)
	if len(names) > 1 {
		return "", fmt.Errorf("%w: it names %d principals", ErrNoWord, len(names))
	}
	return counterfoil.Principal(strings.TrimSpace(resp.Header.Get(a.header))), nil
}

// refusalHeader is what of a refusal the caller needs.
func refusalHeader(h http.Header) http.Header {
	out := http.Header{"Cache-Control": {"no-store"}}
	for _, name := range []string{"Content-Type", "Www-Authenticate"} {
		if values := h.Values(name); len(values) > 0 {
			out[name] = values
		}
	}
	return out
}

// question is a request with the caller's fields, less those that are about
// its body, its key, its conditions or its connection.
func (a *Asker) question(ctx context.Context, r *http.Request) *http.Request {
	q := (&http.Request{
		Method: a.method, URL: a.url, Host: a.url.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.Header.Clone(),
	}).WithContext(ctx)
	for _, field := range r.Header.Values("Connection") {
		for name := range strings.SplitSeq(field, ",") {
			q.Header.Del(strings.TrimSpace(name))
		}
	}
	for name := range q.Header {
		lower := strings.ToLower(name)
		switch {
		case strings.HasPrefix(lower, "content-"), strings.HasPrefix(lower, "if-"), strings.HasPrefix(lower, "counterfoil-"),
			strings.HasPrefix(lower, "x-forwarded-"), strings.HasPrefix(lower, "idempotency-"), strings.HasPrefix(lower, "x-original-"),
			a.header != "" && strings.EqualFold(name, a.header):
			delete(q.Header, name)
		}
	}
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Expect", "Range", "Forwarded", "X-Idempotency-Key", "Accept-Encoding",
	} {
		delete(q.Header, name)
	}
	if a.header != "" {
		q.Header.Set("X-Original-Method", r.Method)
		q.Header.Set("X-Original-Uri", r.URL.RequestURI())
	}
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		q.Header.Set("X-Forwarded-For", peer.Addr().Unmap().String())
	}
	return q
}
