package proxy_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/cmd/internal/proxy"
	"github.com/counterfoil/counterfoil/httpguard"
)

func contextWithTimeout(r *http.Request, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), d)
}

func TestAuthRequest(t *testing.T) {
	var seen *http.Request
	status, names := 200, []string{"acct-1"}
	auth := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		for _, n := range names {
			w.Header().Add("X-Account", n)
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="shop"`)
		w.Header().Set("Set-Cookie", "a=1")
		w.WriteHeader(status)
		_, _ = w.Write([]byte("why"))
	}))
	defer auth.Close()
	u, _ := url.Parse(auth.URL + "/auth?v=1")
	a := proxy.NewAuthRequest(u, "X-Account", time.Second)
	defer a.Close()
	r := httptest.NewRequest("POST", "/pay?x=1", nil)
	for name, value := range map[string]string{
		"Authorization": "Bearer t", "Cookie": "s=1", "X-Account": "forged", "Idempotency-Key": "secret", "Content-Length": "5",
		"Content-Type": "application/json", "If-Match": "x", "Connection": "X-Odd", "X-Odd": "1",
	} {
		r.Header.Set(name, value)
	}
	got, err := a.Ask(r)
	if err != nil || got != "acct-1" {
		t.Fatalf("%q, %v", got, err)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer t", "Cookie": "s=1", "X-Account": "", "Idempotency-Key": "", "Content-Type": "", "If-Match": "",
		"X-Odd": "", "X-Original-Method": "POST", "X-Original-Uri": "/pay?x=1", "X-Forwarded-For": "192.0.2.1",
	} {
		if have := seen.Header.Get(name); have != want {
			t.Errorf("%s: %q, want %q", name, have, want)
		}
	}
	if seen.Method != "GET" || seen.URL.String() != "/auth?v=1" {
		t.Errorf("asked %s %s", seen.Method, seen.URL)
	}

	names = nil
	if got, err = a.Ask(r); err != nil || got != "" {
		t.Errorf("no name: %q, %v", got, err)
	}
	names = []string{"a", "b"}
	if _, err = a.Ask(r); !errors.Is(err, proxy.ErrNoWord) {
		t.Errorf("two names: %v", err)
	}
	for _, status = range []int{401, 403} {
		var refusal *httpguard.Answer
		if _, err = a.Ask(r); !errors.As(err, &refusal) || refusal.Status != status || string(refusal.Body) != "why" {
			t.Fatalf("status %d: %v", status, err)
		}
		if refusal.Header.Get("WWW-Authenticate") == "" || refusal.Header.Get("Set-Cookie") != "" {
			t.Errorf("refusal's fields: %v", refusal.Header)
		}
	}
	for _, status = range []int{302, 404, 500} {
		if _, err = a.Ask(r); !errors.Is(err, proxy.ErrNoWord) {
			t.Errorf("status %d: %v, want no word", status, err)
		}
	}
}

func TestAuthRequestThatHangs(t *testing.T) {
	release := make(chan struct{})
	auth := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer auth.Close()
	defer close(release)
	u, _ := url.Parse(auth.URL)
	a := proxy.NewAuthRequest(u, "X-Account", 50*time.Millisecond)
	defer a.Close()
	start := time.Now()
	_, err := a.Ask(httptest.NewRequest("POST", "/pay", nil))
	if !errors.Is(err, proxy.ErrNoWord) || time.Since(start) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

func TestAuthProbe(t *testing.T) {
	status := 204
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "GET" || r.URL.String() != "/v1/me?full=1" || r.Header.Get("Authorization") != "Bearer t" {
			t.Errorf("probed %s %s", r.Method, r.URL)
		}
		w.WriteHeader(status)
	}))
	defer up.Close()
	u, _ := url.Parse(up.URL)
	a, err := proxy.NewAuthProbe(u, "GET", "/v1/me?full=1")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	r := httptest.NewRequest("POST", "/pay", nil)
	r.Header.Set("Authorization", "Bearer t")
	if _, err := a.Ask(r); err != nil {
		t.Error(err)
	}
	status = 403
	var refusal *httpguard.Answer
	if _, err := a.Ask(r); !errors.As(err, &refusal) {
		t.Errorf("%v", err)
	}
}
