package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// request is what the walk sends.
type request struct {
	method, path, account, key, body string
	// slow asks the API to take so long once the money has moved.
	slow time.Duration
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send sends one request to the guard, over a connection of its own: what a
// broken one does to the next request is not what is shown here.
func (s *stage) send(ctx context.Context, r request) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, s.url+r.path, strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // net/http must not send it twice by itself
	req.Close = true
	req.Header.Set("X-Account-Id", r.account)
	req.Header.Set("Content-Type", "application/json")
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if r.slow > 0 {
		req.Header.Set("Demo-Slow", r.slow.String())
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return &answer{resp.StatusCode, resp.Header, body}, nil
}

// replayed fails unless a is the same answer as first, less what says that it
// is a replay and what is never stored.
func (a *answer) replayed(first *answer) error {
	if a.status != first.status || !bytes.Equal(a.body, first.body) {
		return fmt.Errorf("the replay differs: %d %q, and first %d %q", a.status, a.body, first.status, first.body)
	}
	own := []string{"Date", "Connection", "Idempotency-Status", "Idempotent-Replayed", "Idempotency-Replay-Until", "Idempotency-Protected-Until", "Link"}
	for name, values := range first.header {
		if !slices.Contains(own, name) && !slices.Equal(values, a.header[name]) {
			return fmt.Errorf("the replay's field %s is %q, and first %q", name, a.header[name], values)
		}
	}
	return nil
}

// want fails unless the answer has that status and Idempotency-Status.
func (a *answer) want(status int, idempotency string) error {
	if got := a.header.Get("Idempotency-Status"); a.status != status || got != idempotency {
		return fmt.Errorf("the answer is %d %q, and %d %q was expected: %s", a.status, got, status, idempotency, a.body)
	}
	return nil
}
