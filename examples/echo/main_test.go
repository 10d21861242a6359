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
		path, body, mark, answer string
		status                   int
	}{
		{"/payments", "amount=100", "created", "charge 1", 201},
		{"/payments", "amount=100", "replayed", "charge 1", 201},
		{"/payments", "amount=999", "mismatch", "", 422},
		// An error that the handler returns reaches the record.
		{"/declined", "amount=100", "created", "", 402},
		{"/declined", "amount=100", "replayed", "", 402},
	} {
		r, err := http.NewRequest("POST", srv.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Account-Id", "acct-1")
		r.Header.Set("Idempotency-Key", "k"+c.path)
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
