package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/counterfoil/counterfoil/cmd/internal/admin"
	"github.com/counterfoil/counterfoil/cmd/internal/config"
	"github.com/counterfoil/counterfoil/cmd/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const payPolicy = `version: 1
operations:
  pay:
    match: ["POST /pay"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, safety_margin: 23h}
    max_request: 4KiB
    lease: 5s
    deadline: 10s
`

// upstream is the service behind: it adds 1 for every request that changes
// something, and answers with the count.
type upstream struct {
	*httptest.Server
	mu      sync.Mutex
	effects int
	seen    []*http.Request
	// act, when set, answers instead.
	act http.HandlerFunc
}

func newUpstream(t testing.TB) *upstream {
	t.Helper()
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return // half a request has no effect
		}
		u.mu.Lock()
		u.seen = append(u.seen, r)
		if r.Method != http.MethodGet {
			u.effects++
		}
		n, act := u.effects, u.act
		u.mu.Unlock()
		if act != nil {
			act(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"n":%d}`, n)
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.effects
}

// does sets what answers; nil is the count again.
func (u *upstream) does(act http.HandlerFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.act = act
}

// first is the first request that came.
func (u *upstream) first() *http.Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen[0]
}

func (u *upstream) requests() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.seen)
}

// world is a running server with its files.
type world struct {
	*server.Server
	t    testing.TB
	dir  string
	up   *upstream
	conf *config.Config
	log  *logged
}

// logged is what the server logs.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// prepare writes the files and reads the configuration; more is added to it.
func prepare(t testing.TB, policy, more string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), up: newUpstream(t), log: &logged{}}
	if !strings.Contains(more, "store:") {
		more += "store: 'memory:'\naccept: [may-lose-acknowledged-claims]\n"
	}
	w.write("policy.yaml", policy)
	w.write("counterfoil.yaml", "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nupstream: "+w.up.URL+"\n"+more)
	var err error
	if w.conf, err = config.Load(filepath.Join(w.dir, "counterfoil.yaml"), nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// start runs a server until the test ends.
func start(t testing.TB, policy, more string, change ...func(*server.Options)) *world {
	t.Helper()
	w := prepare(t, policy, more)
	o := server.Options{Logger: server.NewLogger(w.log, true), Release: "test"}
	for _, c := range change {
		c(&o)
	}
	w.Server = server.New(w.conf, o)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.stop() })
	return w
}

func (w *world) stop() {
	if w.Server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := w.Stop(ctx); err != nil {
		w.t.Errorf("stop: %v", err)
	}
	w.Server = nil
}

// client is a client of the records API with the token that was made.
func (w *world) client() *admin.Client {
	w.t.Helper()
	tokens, err := admin.ReadTokens(w.conf.AdminTokensFile)
	if err != nil {
		w.t.Fatal(err)
	}
	_, token := tokens.First()
	return admin.NewClient(w.AdminAddr(), token)
}

// answer is a response that was read.
type answer struct {
	*http.Response
	body string
}

func (a answer) problem() string {
	var p struct{ Type string }
	_ = json.Unmarshal([]byte(a.body), &p)
	return strings.TrimPrefix(p.Type, "https://counterfoil.dev/problems/")
}

// send sends a request on a connection of its own.
func send(t testing.TB, method, url, body string, fields ...string) answer {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Host" {
			req.Host = fields[i+1]
			continue
		}
		req.Header.Add(fields[i], fields[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp, string(b)}
}

func (w *world) pay(key, body string) answer {
	w.t.Helper()
	return send(w.t, "POST", "http://"+w.Addr()+"/pay", body, "Idempotency-Key", key, "X-Account-Id", "acct-1")
}

func (w *world) ask(path string) answer {
	w.t.Helper()
	return send(w.t, "GET", "http://"+w.AdminAddr()+path, "")
}

// raw sends bytes as they are and reads what comes back.
func (w *world) raw(text string) (answer, error) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.Addr())
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
	return read(bufio.NewReader(c))
}

func read(r *bufio.Reader) (answer, error) {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp, string(b)}, err
}

// eventually polls until done, and fails the test if that takes too long.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for !done() {
		select {
		case <-limit:
			t.Fatalf("%s: not in time", what)
		case <-tick.C:
		}
	}
}
