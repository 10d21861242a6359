// Package contract holds contract.md §4's table against both doors, the
// middleware in a Go server and the proxy of the real binary, on every store,
// with the same test code.
package contract

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/pebblestore"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
	"github.com/counterfoil/counterfoil/policyfile"
	"github.com/counterfoil/counterfoil/proof/binary"
	"github.com/counterfoil/counterfoil/proof/database"
	"github.com/counterfoil/counterfoil/proof/witness"
	"github.com/counterfoil/counterfoil/reconcile"
	"github.com/counterfoil/counterfoil/sweep"
)

func TestMain(m *testing.M) {
	code := m.Run()
	binary.Clean()
	os.Exit(code)
}

// policy has one operation for each behaviour that the table names. Times are
// short so that tests can wait for conditions, and long where nothing may end.
const policyText = `
version: 1
operations:
  pay:
    match: ["POST /pay", "PATCH /pay", "PUT /pay/{id}", "DELETE /pay/{id}", "POST /pay/{id}/capture"]
    scope: {principal: "header:X-Account-Id"}
    fingerprint: {headers: [Api-Version]}
    ttl: {client_retry_budget: 4h, broker_redelivery_window: 0s, reconciliation_cadence: 1h, safety_margin: 19h}
    protect: 90d
    deadline: 10s
    lease: 5s
    settle: 1s
    wait: 50ms
    max_request: 64KiB
    max_response: 64KiB
  patient:
    match: ["POST /patient"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
    deadline: 20s
    lease: 10s
    wait: 15s
  gone:
    match: ["POST /gone/{id}"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
    replay: 0s
    resource: "/v1/things/{id}"
  seeother:
    match: ["POST /seeother/{id}"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
    replay: 0s
    resource: "/v1/things/{id}"
    late_answer: see-other
  brief:
    match: ["POST /brief"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 100ms, broker_redelivery_window: 0s, reconciliation_cadence: 10ms, safety_margin: 10ms}
    replay: 0s
    lease: 50ms
    settle: 0s
    deadline: 5s
  dated:
    match: ["POST /dated"]
    key: {format: uuidv7}
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 100ms, broker_redelivery_window: 0s, reconciliation_cadence: 10ms, safety_margin: 10ms}
    replay: 0s
    lease: 50ms
    settle: 0s
    deadline: 5s
  counted:
    match: ["POST /counted"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 100ms, broker_redelivery_window: 0s, reconciliation_cadence: 10ms, safety_margin: 10ms}
    replay: 0s
    lease: 50ms
    settle: 0s
    deadline: 5s
    late: count
  optional:
    match: ["POST /optional"]
    scope: {principal: "header:X-Account-Id"}
    key: {required: false}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
  mesh:
    match: ["POST /mesh"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
    unknown_status: 409
  hurried:
    match: ["POST /hurried"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
    deadline: 200ms
    lease: 100ms
    settle: 0s
  single:
    match: ["POST /single"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
    wait: 0s
    max_unresolved: 1
  again:
    match: ["POST /again"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
    deadline: 5s
    settle: 1s
    on_unknown: {redispatch_within: 1h}
  public:
    match: ["POST /public"]
    scope: {principal: anonymous}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
`

// target is one door on one store.
type target struct {
	URL     string
	Witness *witness.Witness
	// Proxy tells the few things that only one of the doors can show.
	Proxy bool
	// Sweep makes one whole pass of expiry.
	Sweep func(t *testing.T)
}

// fault makes the store of a target fail.
type fault string

const (
	noFault         fault = ""
	claimFails      fault = "claim-fails"
	completionFails fault = "completion-fails"
)

// door opens one of the doors on one of the stores.
type door struct {
	name string
	open func(t *testing.T, f fault) *target
}

var doors = []door{
	{"middleware/memory", func(t *testing.T, f fault) *target { return middleware(t, memory(t), f) }},
	{"middleware/pebble", func(t *testing.T, f fault) *target { return middleware(t, pebble(t), f) }},
	{"middleware/postgres", func(t *testing.T, f fault) *target { return middleware(t, postgres(t), f) }},
	{"proxy/memory", func(t *testing.T, f fault) *target { return proxy(t, "memory:", f) }},
	{"proxy/pebble", func(t *testing.T, f fault) *target { return proxy(t, "pebble:./data", f) }},
	{"proxy/postgres", func(t *testing.T, f fault) *target { return proxy(t, database.Lend(t), f) }},
}

// everyDoor runs the test against a fresh target of each door.
func everyDoor(t *testing.T, test func(t *testing.T, g *target)) {
	t.Helper()
	everyDoorWith(t, noFault, test)
}

func everyDoorWith(t *testing.T, f fault, test func(t *testing.T, g *target)) {
	t.Helper()
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			test(t, d.open(t, f))
		})
	}
}

func memory(t *testing.T) counterfoil.Store {
	s := memstore.New(memstore.Options{})
	t.Cleanup(func() { s.Close() })
	return s
}

func pebble(t *testing.T) counterfoil.Store {
	s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func postgres(t *testing.T) counterfoil.Store {
	s, err := pgstore.Open(t.Context(), database.Lend(t), pgstore.Options{AcceptLoss: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func middleware(t *testing.T, s counterfoil.Store, f fault) *target {
	p, err := policyfile.Parse("policy.yaml", []byte(policyText))
	if err != nil {
		t.Fatal(err)
	}
	e, err := counterfoil.Open(t.Context(), &faulty{Store: s, fault: f}, p, counterfoil.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = e.Close(ctx)
	})
	g, err := httpguard.New(e, httpguard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := witness.New()
	srv := httptest.NewUnstartedServer(g.Wrap(w))
	srv.Config.ErrorLog = quiet
	srv.Start()
	t.Cleanup(srv.Close)
	sw := sweep.New(e, sweep.Options{})
	rc := reconcile.New(e, reconcile.Options{})
	return &target{URL: srv.URL, Witness: w, Sweep: func(t *testing.T) {
		if _, err := rc.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := sw.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}}
}

// faulty fails the calls that its fault names, as a store does that is down.
type faulty struct {
	counterfoil.Store
	fault fault
}

func (s *faulty) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	if s.fault == claimFails {
		return counterfoil.Standing{}, fmt.Errorf("%w: as asked", counterfoil.ErrUnavailable)
	}
	return s.Store.Create(ctx, d)
}

func (s *faulty) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	if s.fault == completionFails && w.Record.State == counterfoil.Completed {
		return counterfoil.Snapshot{}, fmt.Errorf("%w: as asked", counterfoil.ErrUnavailable)
	}
	return s.Store.Update(ctx, w)
}

func proxy(t *testing.T, store string, f fault) *target {
	w := witness.New()
	up := httptest.NewUnstartedServer(w)
	up.Config.ErrorLog = quiet
	up.Start()
	t.Cleanup(up.Close)
	more := []string{}
	if !strings.HasPrefix(store, "pebble:") { // the shared server runs without fsync
		more = append(more, "accept: [may-lose-acknowledged-claims]")
	}
	setup := binary.NewSetup(t, binary.Build(t, true), up.URL, store, policyText, more...)
	var env []string
	if f != noFault {
		env = append(env, "COUNTERFOIL_FAULT_AT="+string(f)+":1")
	}
	p := setup.Start(t, env...)
	if f == noFault { // with one, outcomes stay unsettled and the end is not clean
		t.Cleanup(func() {
			if code := p.Stop(t); code != 0 {
				t.Errorf("the server ended with code %d:\n%s", code, p.Logs())
			}
		})
	}
	pass := func(t *testing.T) {
		if code := p.AdminDo(t, http.MethodPost, "/v1/sweep", nil, nil); code >= 300 {
			t.Fatalf("sweep: %d", code)
		}
	}
	sweeps := pass
	if strings.HasPrefix(store, "postgres:") {
		// Where there may be several nodes, an announced record answers for as long
		// as another may not know of it: 45 s, which are made to have passed.
		sweeps = func(t *testing.T) {
			pass(t)
			pgtest.Exec(t, store, "UPDATE counterfoil_records SET announced_at = announced_at - interval '1 hour' WHERE announced_at IS NOT NULL")
			pass(t)
		}
	}
	return &target{URL: p.URL(), Witness: w, Proxy: true, Sweep: sweeps}
}
