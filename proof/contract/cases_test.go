package contract

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/proof/witness"
)

func contains(s, sub string) bool { return strings.Contains(s, sub) }

// TestC02ResponseTooLargeToKeep: the limit may cost the body, not the promise.
func TestC02ResponseTooLargeToKeep(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		c := call{key: newKey(), script: witness.Script{Size: 64<<10 + 1}}
		a := g.do(t, c)
		if a.Status != 201 || len(a.Body) != 64<<10+1 {
			t.Errorf("got %d with %d bytes", a.Status, len(a.Body))
		}
		b := g.do(t, c)
		b.want(t, 201, "already-processed", "")
		g.effects(t, c.key, 1)
		c = call{key: newKey(), script: witness.Script{Size: 64 << 10}}
		g.do(t, c)
		if b := g.do(t, c); b.idem() != "replayed" || len(b.Body) != 64<<10 {
			t.Errorf("at the limit: %q with %d bytes", b.idem(), len(b.Body))
		}
	})
}

// TestC06StreamIsNotHeldBack: events come as they are sent.
func TestC06StreamIsNotHeldBack(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		c := call{key: newKey(), script: witness.Script{Events: 1, Status: 200, Header: [][2]string{{"Content-Type", "text/event-stream"}}}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/pay", strings.NewReader(c.script.JSON()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", c.key)
		req.Header.Set("X-Account-Id", "acct-1")
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		first := make([]byte, 8)
		if _, err := io.ReadFull(resp.Body, first); err != nil {
			t.Fatalf("the first bytes did not come before the rest was written: %v", err)
		}
		g.Witness.Open("event")
		rest, err := io.ReadAll(resp.Body)
		if err != nil || !strings.HasSuffix(string(rest), "event\n") {
			t.Errorf("%v: %q", err, rest)
		}
		until(t, "the record to be settled", func() bool { return g.do(t, c).idem() == "already-processed" })
		g.effects(t, c.key, 1)
	})
}

// TestC08CorrectedRetry: a refusal before any effect does not answer another
// request, and the same one may be told the same.
func TestC08CorrectedRetry(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		c := call{key: newKey(), script: witness.Script{Status: 400, NoEffect: true}}
		g.do(t, c).want(t, 400, "created", "")
		good := call{key: c.key}
		g.do(t, good).want(t, 422, "mismatch", "key-reused")
		g.do(t, c).want(t, 400, "replayed", "")
		g.effects(t, c.key, 0)
	})
}

// TestC21MultipartBoundary: a new boundary per attempt is the same request.
func TestC21MultipartBoundary(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		key := newKey()
		form := func(amount, file string) call {
			var b bytes.Buffer
			w := multipart.NewWriter(&b)
			_ = w.WriteField("amount", amount)
			f, _ := w.CreateFormFile("f", file)
			_, _ = io.WriteString(f, "content")
			w.Close()
			return call{key: key, body: ptr(b.String()), header: [][2]string{{"Content-Type", w.FormDataContentType()}}}
		}
		g.do(t, form("10", "a.txt")).want(t, 201, "created", "")
		g.do(t, form("10", "a.txt")).want(t, 201, "replayed", "")
		g.do(t, form("11", "a.txt")).want(t, 422, "mismatch", "key-reused")
		g.do(t, form("10", "b.txt")).want(t, 422, "mismatch", "key-reused")
		g.effects(t, key, 1)
	})
}

// TestC23CompressedBody: compression is not part of the request; a bomb is cut.
func TestC23CompressedBody(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		key := newKey()
		zip := func(level int, s string) string {
			var b bytes.Buffer
			w, _ := gzip.NewWriterLevel(&b, level)
			_, _ = io.WriteString(w, s)
			w.Close()
			return b.String()
		}
		encoded := [][2]string{{"Content-Encoding", "gzip"}}
		plain := `{"n":1,"pad":"` + strings.Repeat("pad ", 100) + `"}`
		g.do(t, call{key: key, body: ptr(zip(1, plain)), header: encoded}).want(t, 201, "created", "")
		g.do(t, call{key: key, body: ptr(zip(9, plain)), header: encoded}).want(t, 201, "replayed", "")
		g.do(t, call{key: key, body: ptr(plain)}).want(t, 201, "replayed", "")
		g.effects(t, key, 1)
		bomb := call{key: newKey(), body: ptr(zip(9, strings.Repeat("0", 10<<20))), header: encoded}
		g.do(t, bomb).want(t, 413, "", "body-too-large")
		g.effects(t, bomb.key, 0)
	})
}

// TestC27LeaseIsRenewed: a healthy handler outlives its lease.
func TestC27LeaseIsRenewed(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		c := call{path: "/brief", key: newKey(), script: witness.Script{Gate: "g"}} // lease 50 ms
		first := make(chan answer, 1)
		start := time.Now()
		go func() { first <- g.try(t, c) }()
		until(t, "the first request at the upstream", func() bool { return g.Witness.Arrivals(c.key) == 1 })
		until(t, "ten leases", func() bool {
			g.do(t, c).want(t, 409, "in-progress", "in-progress")
			g.Sweep(t) // C42: neither sweep nor reconciler touches it
			return time.Since(start) > 500*time.Millisecond
		})
		g.Witness.Open("g")
		a := <-first
		a.want(t, 201, "created", "")
		g.effects(t, c.key, 1)
	})
}

// TestC29OneOfAHundred: a hundred at once, round after round, run once.
func TestC29OneOfAHundred(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		for range 10 {
			c := call{path: "/patient", key: newKey()}
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if a := g.try(t, c); a.Err != nil || a.Status != 201 {
						t.Errorf("%v: %d %s", a.Err, a.Status, a.Body)
					}
				})
			}
			wg.Wait()
			g.effects(t, c.key, 1)
		}
	})
}

// TestC31CallerGoesAway: the effect is recorded all the same.
func TestC31CallerGoesAway(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		c := call{key: newKey(), script: witness.Script{Gate: "g"}}
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		body := c.script.JSON()
		fmt.Fprintf(conn, "POST /pay HTTP/1.1\r\nHost: x\r\nX-Account-Id: acct-1\r\nIdempotency-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.key, len(body), body)
		until(t, "the request at the upstream", func() bool { return g.Witness.Arrivals(c.key) == 1 })
		conn.Close()
		g.Witness.Open("g")
		until(t, "the outcome", func() bool { return g.do(t, c).idem() == "replayed" })
		g.effects(t, c.key, 1)
	})
}

// TestH21PipelinedDuplicate: two on one connection run once.
func TestH21PipelinedDuplicate(t *testing.T) {
	everyDoor(t, func(t *testing.T, g *target) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c := call{key: newKey()}
		one := fmt.Sprintf("POST /pay HTTP/1.1\r\nHost: x\r\nX-Account-Id: acct-1\r\nIdempotency-Key: %s\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", c.key)
		fmt.Fprint(conn, one+one)
		r := bufio.NewReader(conn)
		for i, want := range []string{"created", "replayed"} {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if got := resp.Header.Get("Idempotency-Status"); got != want {
				t.Errorf("answer %d is %q, want %q", i+1, got, want)
			}
		}
		g.effects(t, c.key, 1)
	})
}

// TestKRawHeaders: forbidden forms of the key header over a raw socket.
func TestKRawHeaders(t *testing.T) {
	rows := map[string]string{
		"K02 empty":             "Idempotency-Key: \r\n",
		"K05 two lines":         "Idempotency-Key: a\r\nIdempotency-Key: b\r\n",
		"K10 NUL":               "Idempotency-Key: a\x00b\r\n",
		"K11 bare CR":           "Idempotency-Key: a\rb\r\n",
		"K12 TAB":               "Idempotency-Key: a\tb\r\n",
		"K13 0xFF":              "Idempotency-Key: a\xffb\r\n",
		"K14 folded":            "Idempotency-Key: k\r\n 1\r\n",
		"K15 space and colon":   "Idempotency-Key : k\r\n",
		"K16 underscore beside": "Idempotency-Key: k\r\nIdempotency_Key: j\r\n",
		"K22 in a trailer":      "Transfer-Encoding: chunked\r\nTrailer: Idempotency-Key\r\n",
		"H01 connection option": "Idempotency-Key: k\r\nConnection: Idempotency-Key\r\n",
		"H02 connection option": "Idempotency-Key: k\r\nConnection: X-Account-Id\r\n",
		"H15 upgrade":           "Idempotency-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
	}
	everyDoor(t, func(t *testing.T, g *target) {
		for name, lines := range rows {
			status := rawPost(t, g, lines)
			if status != 400 && !(name == "K16 underscore beside" && status == 201) {
				t.Errorf("%s: %d, want 400", name, status)
			}
		}
		if status := rawPost(t, g, "Idempotency-Key: k7\r\nEarly-Data: 1\r\n"); status != 425 {
			t.Errorf("H17 early data: %d, want 425", status)
		}
	})
}

// rawPost posts {} to /pay with the given lines and returns the status.
func rawPost(t *testing.T, g *target, lines string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	body := "Content-Length: 2\r\n\r\n{}"
	if strings.Contains(lines, "chunked") {
		body = "\r\n2\r\n{}\r\n0\r\nIdempotency-Key: k\r\n\r\n"
	}
	fmt.Fprintf(conn, "POST /pay HTTP/1.1\r\nHost: x\r\nX-Account-Id: acct-1\r\nContent-Type: application/json\r\n%s%s", lines, body)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", lines, err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
