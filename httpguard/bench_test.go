package httpguard_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
)

// sink is a ResponseWriter that costs nothing.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

var benchAnswer = []byte(strings.Repeat("x", 1024))

func benchHandler(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header()["Content-Type"] = []string{"text/plain"}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(benchAnswer)
}

func benchGuard(b *testing.B) http.Handler {
	op := operation("pay", "POST /pay")
	p := &policy.Policy{Version: 1, Operations: []policy.Operation{op}}
	p.Normalize()
	e, err := counterfoil.Open(b.Context(), memstore.New(memstore.Options{}), p, counterfoil.Options{})
	if err != nil {
		b.Fatal(err)
	}
	g, err := httpguard.New(e, httpguard.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return g.Wrap(http.HandlerFunc(benchHandler))
}

// benchDirect calls the handler without a network, so that what the guard adds
// is all that differs (F-H1, F-H2).
func benchDirect(b *testing.B, h http.Handler, key func(i int) string) {
	const text = `{"amount":100,"currency":"EUR","to":"acct-9"}`
	body := strings.NewReader(text)
	r := request("POST", "/pay", "k", text)
	r.Body = io.NopCloser(body)
	r.ContentLength = int64(len(text))
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		r.Header["Idempotency-Key"][0] = key(i)
		body.Reset(text)
		clear(w.header)
		w.status = 0
		h.ServeHTTP(w, r)
		if w.status != http.StatusCreated {
			b.Fatalf("status %d", w.status)
		}
	}
}

func BenchmarkNewKey(b *testing.B) {
	fresh := func(i int) string { return "key-" + strconv.Itoa(i) }
	b.Run("bare", func(b *testing.B) { benchDirect(b, http.HandlerFunc(benchHandler), fresh) })
	b.Run("guarded", func(b *testing.B) { benchDirect(b, benchGuard(b), fresh) })
}

func BenchmarkReplay(b *testing.B) {
	same := func(int) string { return "key" }
	b.Run("bare", func(b *testing.B) { benchDirect(b, http.HandlerFunc(benchHandler), same) })
	b.Run("guarded", func(b *testing.B) { benchDirect(b, benchGuard(b), same) })
}

// BenchmarkServer goes over a loopback connection, for the ratio of requests a
// second.
func BenchmarkServer(b *testing.B) {
	for _, c := range []struct {
		name    string
		guarded bool
		key     func(i int) string
	}{
		{"new/bare", false, func(i int) string { return fmt.Sprint("k", i) }},
		{"new/guarded", true, func(i int) string { return fmt.Sprint("k", i) }},
		{"replay/bare", false, func(int) string { return "k" }},
		{"replay/guarded", true, func(int) string { return "k" }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var h http.Handler = http.HandlerFunc(benchHandler)
			if c.guarded {
				h = benchGuard(b)
			}
			srv := newServer(b, h)
			client := srv.Client()
			i := 0
			for b.Loop() {
				i++
				r, _ := http.NewRequest("POST", srv.URL+"/pay", strings.NewReader(`{"amount":100}`))
				r.Header.Set("Idempotency-Key", c.key(i))
				r.Header.Set("X-Account", "acct-1")
				r.Header.Set("Content-Type", "application/json")
				res, err := client.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
}
