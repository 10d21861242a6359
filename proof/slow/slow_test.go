// Package slow opens ten thousand connections that send next to nothing, and
// holds the real server to bounded memory and to being itself again after.
package slow

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/proof/binary"
	"github.com/counterfoil/counterfoil/proof/witness"
)

func TestMain(m *testing.M) {
	code := m.Run()
	binary.Clean()
	os.Exit(code)
}

const policy = `
version: 1
operations:
  pay:
    match: ["POST /pay"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
`

const callers = 10_000

// TestP13TenThousandSlowCallers: half send a header and never end it, half
// announce a body and never send it. Others are served meanwhile, all are cut,
// memory stays under 300 MiB (reliability.md §5), goroutines and records come
// back to where they were.
func TestP13TenThousandSlowCallers(t *testing.T) {
	raiseFiles(t)
	w := witness.New()
	up := httptest.NewServer(w)
	t.Cleanup(up.Close)
	setup := binary.NewSetup(t, binary.Build(t, false), up.URL, "pebble:./data", policy)
	p := setup.Start(t)
	before := metric(t, p, "go_goroutines")

	conns := make([]net.Conn, 0, callers)
	for i := range callers {
		conn, err := dial(p.Listen)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, conn)
		head := fmt.Sprintf("POST /pay HTTP/1.1\r\nHost: x\r\nX-Account-Id: a\r\nContent-Type: application/json\r\nIdempotency-Key: slow-%d\r\n", i)
		if i%2 == 0 {
			head += "Content-Length: 100\r\n\r\n{"
		}
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	t.Logf("resident with %d slow callers: %d MiB", callers, rss(t, p)>>20)
	for i := range 20 {
		if status := post(t, p, fmt.Sprintf("quick-%d", i)); status != 201 {
			t.Errorf("a quick caller beside the slow ones got %d", status)
		}
	}
	peak := rss(t, p)

	// Every one of them is cut by the server, with or without an answer.
	var wg sync.WaitGroup
	for _, conn := range conns {
		wg.Go(func() {
			defer conn.Close()
			_ = conn.SetReadDeadline(time.Now().Add(60 * time.Second))
			if _, err := io.Copy(io.Discard, conn); err != nil {
				if ne, ok := err.(net.Error); ok && ne.Timeout() {
					t.Error("a slow caller was never cut")
				}
			}
		})
	}
	wg.Wait()
	peak = max(peak, rss(t, p))
	if peak > 300<<20 {
		t.Errorf("resident peak %d MiB, want at most 300", peak>>20)
	}
	t.Logf("resident peak %d MiB", peak>>20)
	deadline := time.Now().Add(30 * time.Second)
	for metric(t, p, "go_goroutines") > before+20 {
		if time.Now().After(deadline) {
			t.Fatalf("%v goroutines, %v before", metric(t, p, "go_goroutines"), before)
		}
		<-time.After(50 * time.Millisecond)
	}
	if n := w.Total(); n != 20 {
		t.Errorf("%d effects, want those of the 20 quick callers", n)
	}
	if code := p.Stop(t); code != 0 {
		t.Errorf("code %d:\n%s", code, p.Logs())
	}
}

// raiseFiles lets this process, and the server that it starts, open enough.
func raiseFiles(t *testing.T) {
	t.Helper()
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	if l.Cur < callers+2000 {
		l.Cur = callers + 2000
		l.Max = max(l.Max, l.Cur)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
			t.Fatalf("this test needs %d open files: %v", l.Cur, err)
		}
	}
}

func dial(addr string) (conn net.Conn, err error) {
	for range 50 { // the accept queue may be full for a moment
		if conn, err = net.DialTimeout("tcp", addr, 5*time.Second); err == nil {
			return conn, nil
		}
		<-time.After(10 * time.Millisecond)
	}
	return nil, err
}

func post(t *testing.T, p *binary.Process, key string) int {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, p.URL()+"/pay", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Account-Id", "a")
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// rss is the server's resident memory in bytes.
func rss(t *testing.T, p *binary.Process) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func metric(t *testing.T, p *binary.Process, name string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + p.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	line := regexp.MustCompile(`^` + name + ` (.+)$`)
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		if m := line.FindStringSubmatch(sc.Text()); m != nil {
			v, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
