package httpguard_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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

// BenchmarkServer goes over one loopback connection each, in turns. of-bare is
// the guarded handler's share of the bare one's requests a second: F-H1 asks
// for 0.75, F-H2 for 0.8.
func BenchmarkServer(b *testing.B) {
	for _, c := range []struct {
		name string
		key  func(i int) string
	}{
		{"new", func(i int) string { return "k" + strconv.Itoa(i) }},
		{"replay", func(int) string { return "k" }},
	} {
		b.Run(c.name, func(b *testing.B) {
			bare := dial(b, newServer(b, http.HandlerFunc(benchHandler)))
			guarded := dial(b, newServer(b, benchGuard(b)))
			n := 0
			inTurns(b, "of-bare",
				func() { bare.post(b, c.key(n)) },
				func() { n++; guarded.post(b, c.key(n)) })
		})
	}
}

// inTurns runs both in turns, one round of each an iteration, and reports the
// median of how much faster than base the other was.
func inTurns(b *testing.B, metric string, base, other func()) {
	const round = 200
	spend := func(f func()) time.Duration {
		start := time.Now()
		for range round {
			f()
		}
		return time.Since(start)
	}
	spend(base) // to warm up
	spend(other)
	var ratios []float64
	for b.Loop() {
		var x, y time.Duration
		if len(ratios)%2 == 0 {
			x, y = spend(base), spend(other)
		} else {
			y, x = spend(other), spend(base)
		}
		ratios = append(ratios, float64(x)/float64(y))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], metric)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*2*round), "ns/request")
	b.ReportMetric(0, "ns/op") // of a round, which says nothing
}

// client is a lean one, so that the server is most of what is measured.
type client struct {
	conn net.Conn
	r    *bufio.Reader
}

func dial(b *testing.B, srv *httptest.Server) *client {
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return &client{conn, bufio.NewReader(conn)}
}

func (c *client) post(b *testing.B, key string) {
	const body = `{"amount":100,"currency":"EUR","to":"acct-9"}`
	_, err := io.WriteString(c.conn, "POST /pay HTTP/1.1\r\nHost: pay.example\r\nX-Account: acct-1\r\n"+
		"Content-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\nIdempotency-Key: "+key+"\r\n\r\n"+body)
	if err != nil {
		b.Fatal(err)
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.Copy(io.Discard, res.Body)
	if err != nil || res.StatusCode != http.StatusCreated {
		b.Fatalf("status %d, %v", res.StatusCode, err)
	}
}
