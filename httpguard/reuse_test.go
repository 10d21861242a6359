package httpguard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil/httpguard"
)

// TestReuseShowsNothingOfOthers: what is used again for another request (room
// for bodies, exchanges, buffers of answers) shows nothing of the one before,
// also where a handler keeps what it had in hand.
func TestReuseShowsNothingOfOthers(t *testing.T) {
	type held struct {
		attempt *httpguard.Attempt
		id      string
		w       http.ResponseWriter
	}
	var mu sync.Mutex
	var kept []held
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		if _, err := r.Body.Read(body); err != nil {
			t.Error(err)
		}
		a, _ := httpguard.FromContext(r.Context())
		mu.Lock()
		kept = append(kept, held{a, a.Identity(), w})
		mu.Unlock()
		w.Header().Set("X-Key", r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusCreated)
		// In pieces, so that the buffer grows.
		for range 8 {
			_, _ = w.Write(body)
		}
	})})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 80 {
				key := fmt.Sprintf("k-%d-%d", g, i)
				body := fmt.Sprintf(`{"who":"%s","pad":"%s"}`, key, strings.Repeat("x", i*17%900))
				for _, want := range []string{"created", "replayed", "mismatch"} {
					sent := body
					if want == "mismatch" {
						sent = `{"who":"somebody else"}`
					}
					w := httptest.NewRecorder()
					f.handler.ServeHTTP(w, request("POST", "/pay", key, sent))
					if got := w.Header().Get("Idempotency-Status"); got != want {
						t.Errorf("%s: %s, want %s", key, got, want)
						return
					}
					if want != "mismatch" && (w.Body.String() != strings.Repeat(body, 8) || w.Header().Get("X-Key") != key) {
						t.Errorf("%s, %s: answered %q, key %q", key, want, w.Body, w.Header().Get("X-Key"))
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for _, h := range kept {
		h.attempt.Unknown("said long after")
		if n, err := h.w.Write([]byte("late")); n != 0 || err == nil {
			t.Fatalf("a writer works after its request: %d, %v", n, err)
		}
		if h.attempt.Identity() != h.id {
			t.Fatal("an attempt became another's")
		}
	}
}
