package server_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/cmd/internal/server"
)

// BenchmarkProxy asks the whole server, over a store in memory, and a bare
// httputil.ReverseProxy in turns, over one loopback connection each. of-bare is
// the server's share of the bare proxy's requests a second: F-H3 asks for 0.8
// with new keys and 2 with replays, which never reach the upstream.
func BenchmarkProxy(b *testing.B) {
	answer := []byte(strings.Repeat("x", 1024))
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	}))
	b.Cleanup(up.Close)
	upstream, err := url.Parse(up.URL)
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	b.Cleanup(transport.CloseIdleConnections)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(upstream); r.SetXForwarded() },
		Transport: transport,
	})
	b.Cleanup(proxy.Close)

	for _, c := range []struct {
		name string
		key  func(i int) string
	}{
		{"new", func(i int) string { return "k" + strconv.Itoa(i) }},
		{"replay", func(int) string { return "k" }},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := prepare(b, payPolicy, "")
			w.conf.Upstream = upstream
			w.Server = server.New(w.conf, server.Options{})
			if err := w.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(w.stop)
			bare, guarded := dial(b, proxy.Listener.Addr().String()), dial(b, w.Addr())
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

// lean is a client that costs little, so that the servers are most of what is
// measured.
type lean struct {
	conn net.Conn
	r    *bufio.Reader
}

func dial(b *testing.B, addr string) *lean {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return &lean{conn, bufio.NewReader(conn)}
}

func (c *lean) post(b *testing.B, key string) {
	const body = `{"amount":100,"currency":"EUR","to":"acct-9"}`
	_, err := io.WriteString(c.conn, "POST /pay HTTP/1.1\r\nHost: pay.example\r\nX-Account-Id: acct-1\r\n"+
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
