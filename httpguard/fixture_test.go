package httpguard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// operation is a plain operation for tests.
func operation(name string, match ...string) policy.Operation {
	o := policy.NewOperation(name)
	o.Match = match
	o.Scope.Principal = policy.Principal{Kind: policy.PrincipalHeader, Header: "X-Account"}
	o.Inputs.ClientRetryBudget.Value = 4 * time.Hour
	o.Inputs.SafetyMargin.Value = 20 * time.Hour
	o.Wait = 0
	o.Durability = policy.DurabilityC
	o.Accept = []string{policy.AcceptMayLoseClaims}
	return o
}

// faults is a store whose calls can fail.
type faults struct {
	counterfoil.Store
	mu     sync.Mutex
	create func() error
	// before and after surround an update; an error from after stands for a
	// write that was made and whose answer was lost.
	before, after func(*counterfoil.Write) error
	response      func() error
}

func (f *faults) hooks() (create func() error, before, after func(*counterfoil.Write) error, response func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.create, f.before, f.after, f.response
}

func (f *faults) set(change func(f *faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faults) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	if create, _, _, _ := f.hooks(); create != nil {
		if err := create(); err != nil {
			return counterfoil.Standing{}, err
		}
	}
	return f.Store.Create(ctx, d)
}

func (f *faults) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	_, before, after, _ := f.hooks()
	if before != nil {
		if err := before(w); err != nil {
			return counterfoil.Snapshot{}, err
		}
	}
	snap, err := f.Store.Update(ctx, w)
	if err == nil && after != nil {
		if err := after(w); err != nil {
			return counterfoil.Snapshot{}, err
		}
	}
	return snap, err
}

func (f *faults) Response(ctx context.Context, id counterfoil.ID, rev uint64) ([]byte, error) {
	if _, _, _, response := f.hooks(); response != nil {
		if err := response(); err != nil {
			return nil, err
		}
	}
	return f.Store.Response(ctx, id, rev)
}

var errDown = fmt.Errorf("%w: the store is down", counterfoil.ErrUnavailable)

// clock is a store's clock that tests move.
type clock struct {
	mu  sync.Mutex
	add time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.add)
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add += d
}

// setup says what a fixture is made of; the zero value works.
type setup struct {
	policy  func(p *policy.Policy)
	options func(o *httpguard.Options)
	engine  func(o *counterfoil.Options)
	handler http.Handler
}

// fixture is a guarded service.
type fixture struct {
	t       testing.TB
	store   *faults
	clock   *clock
	engine  *counterfoil.Engine
	guard   *httpguard.Guard
	handler http.Handler // guarded
	pay     *payments

	mu       sync.Mutex
	results  []httpguard.Result
	answered chan struct{} // gets one for each result
	server   *httptest.Server
}

// payments is the handler H of cases.md: it counts its effects, and its answer
// says which one it was.
type payments struct {
	mu      sync.Mutex
	effects map[string]int
	n       int
}

func (h *payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, "body", http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.n++
	n := h.n
	h.effects[r.Header.Get("Idempotency-Key")]++
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", fmt.Sprintf("/pay/%d", n))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"n":%d}`, n)
}

// count is E of cases.md over all keys.
func (h *payments) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

func newFixture(t testing.TB, s setup) *fixture {
	t.Helper()
	f := &fixture{t: t, clock: &clock{}, answered: make(chan struct{}, 1000), pay: &payments{effects: map[string]int{}}}
	p := &policy.Policy{Version: 1, Operations: []policy.Operation{
		operation("pay", "POST /pay", "PUT /pay", "PATCH /pay", "DELETE /pay", "POST /pay/{id}"),
		operation("refund", "POST /refund"),
	}}
	if s.policy != nil {
		s.policy(p)
	}
	p.Normalize()
	f.store = &faults{Store: memstore.New(memstore.Options{Clock: f.clock.now})}
	eo := counterfoil.Options{StoreTimeout: time.Second}
	if s.engine != nil {
		s.engine(&eo)
	}
	var err error
	if f.engine, err = counterfoil.Open(t.Context(), f.store, p, eo); err != nil {
		t.Fatal(err)
	}
	o := httpguard.Options{Done: func(r httpguard.Result) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.results = append(f.results, r)
		f.answered <- struct{}{}
	}}
	if s.options != nil {
		s.options(&o)
	}
	if f.guard, err = httpguard.New(f.engine, o); err != nil {
		t.Fatal(err)
	}
	if s.handler == nil {
		s.handler = f.pay
	}
	f.handler = f.guard.Wrap(s.handler)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what is not settled by now never will be
		_ = f.engine.Close(ctx)
	})
	return f
}

// results returns what Done was told so far, and forgets it.
func (f *fixture) told() []httpguard.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.results
	f.results = nil
	return r
}

func (f *fixture) kinds() string {
	var kinds []string
	for _, r := range f.told() {
		kinds = append(kinds, string(r.Kind))
	}
	return strings.Join(kinds, " ")
}

// serve starts a real server in front of the guarded handler.
func (f *fixture) serve() *httptest.Server {
	f.t.Helper()
	if f.server == nil {
		f.server = httptest.NewServer(f.handler)
		f.t.Cleanup(f.server.Close)
	}
	return f.server
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a *answer) problem(t testing.TB) map[string]any {
	t.Helper()
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("Content-Type is %q, want a problem; status %d, body %q", ct, a.status, a.body)
	}
	if cc := a.header.Get("Cache-Control"); cc != "no-store" {
		t.Errorf("a problem has Cache-Control %q", cc)
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		t.Fatal(err)
	}
	if int(m["status"].(float64)) != a.status {
		t.Errorf("member status is %v, status is %d", m["status"], a.status)
	}
	return m
}

// wants checks status, problem type and Idempotency-Status; empty texts are not
// to be there.
func (a *answer) wants(t testing.TB, status int, problem, mark string) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d; body %q", a.status, status, a.body)
	}
	if got := a.header.Get("Idempotency-Status"); got != mark {
		t.Errorf("Idempotency-Status %q, want %q", got, mark)
	}
	if problem == "" {
		if ct := a.header.Get("Content-Type"); ct == "application/problem+json" {
			t.Fatalf("a problem: %s", a.body)
		}
		return
	}
	if got := a.problem(t)["type"]; got != "https://counterfoil.dev/problems/"+problem {
		t.Errorf("type %v, want …/%s", got, problem)
	}
}

// post sends a request straight to the handler, without a network.
func (f *fixture) post(target, key, body string, fields ...string) *answer {
	f.t.Helper()
	return f.send(http.MethodPost, target, key, body, fields...)
}

func (f *fixture) send(method, target, key, body string, fields ...string) *answer {
	f.t.Helper()
	return do(f.handler, request(method, target, key, body, fields...))
}

// request builds a request as a server hands it over. Fields are name, value
// pairs; an empty key sends none.
func request(method, target, key, body string, fields ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("X-Account", "acct-1")
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] == "" {
			r.Header.Del(fields[i])
		} else {
			r.Header.Add(fields[i], fields[i+1])
		}
	}
	return r
}

func do(h http.Handler, r *http.Request) *answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	res := w.Result()
	b, _ := io.ReadAll(res.Body)
	return &answer{res.StatusCode, res.Header, string(b)}
}

// raw writes bytes to the server and reads its answers until it closes, or
// until as many as are expected have come.
func raw(t testing.TB, srv *httptest.Server, text string, answers int) []*answer {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	var out []*answer
	br := bufio.NewReader(conn)
	for range answers {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			if len(out) > 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
				break
			}
			t.Fatalf("answer %d: %v", len(out)+1, err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		out = append(out, &answer{res.StatusCode, res.Header, string(b)})
	}
	return out
}

// record reads the one record of a key.
func (f *fixture) record(operation, key string) counterfoil.Record {
	f.t.Helper()
	id, err := f.engine.RecordID(operation, "acct-1", counterfoil.Key(key))
	if err != nil {
		f.t.Fatal(err)
	}
	snap, err := f.store.Get(context.Background(), id)
	if errors.Is(err, counterfoil.ErrNotFound) {
		return counterfoil.Record{}
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return snap.Record
}

func newServer(t testing.TB, h http.Handler) *httptest.Server {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

var discard = log.New(io.Discard, "", 0)

// sweep does what the sweeper would, until everything that may go is gone.
func (f *fixture) sweep(t testing.TB) {
	t.Helper()
	for range 3 {
		if _, err := f.store.Sweep(context.Background(), counterfoil.SweepOrder{Now: f.clock.now()}); err != nil {
			t.Fatal(err)
		}
	}
}
