package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestService(t *testing.T) {
	h, err := service(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	for _, c := range []struct {
		body, mark, answer string
		status             int
	}{
		{"amount=100", "created", "charge 1", 201},
		{"amount=100", "replayed", "charge 1", 201},
		{"amount=999", "mismatch", "", 422},
	} {
		r, err := http.NewRequest("POST", srv.URL+"/payments", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Account-Id", "acct-1")
		r.Header.Set("Idempotency-Key", "k-1")
		res, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.status || res.Header.Get("Idempotency-Status") != c.mark || c.answer != "" && string(b) != c.answer {
			t.Errorf("%s: %d %q %q", c.body, res.StatusCode, res.Header.Get("Idempotency-Status"), b)
		}
	}
}
