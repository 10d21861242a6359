package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The program of the README charges once for a request that is sent twice.
func TestRetryIsReplayed(t *testing.T) {
	policy, err := os.ReadFile("policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile(filepath.Join(".", "policy.yaml"), policy, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = run(ctx, func(_ context.Context, h http.Handler) error {
		defer cancel()
		for i, want := range []string{"created", "replayed"} {
			r := httptest.NewRequest(http.MethodPost, "/v1/payments", strings.NewReader(`{"amount":1999}`))
			r.Header.Set("Authorization", "Bearer secret-of-acct-42")
			r.Header.Set("Idempotency-Key", "order-7")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if got := w.Header().Get("Idempotency-Status"); w.Code != http.StatusCreated || got != want || w.Body.String() != "charge number 1\n" {
				t.Errorf("try %d: %d %q %q, want 201 %q and charge number 1", i+1, w.Code, got, w.Body, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
