package server_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/admin"
	"github.com/counterfoil/counterfoil/cmd/internal/server"
	"github.com/counterfoil/counterfoil/cmd/internal/wire"
)

var filterAll = admin.Filter{}

// TestGuardedEndToEnd: the same request twice, over a store on disk, and again
// after a restart.
func TestGuardedEndToEnd(t *testing.T) {
	w := start(t, payPolicy, "store: pebble:./data\n")
	first := w.pay("k-1", `{"amount":1}`)
	if first.StatusCode != 201 || first.Header.Get("Idempotency-Status") != "created" {
		t.Fatalf("first: %d %v", first.StatusCode, first.Header)
	}
	check := func(when string) {
		t.Helper()
		again := w.pay("k-1", `{"amount":1}`)
		if again.StatusCode != 201 || again.body != first.body || again.Header.Get("Idempotency-Status") != "replayed" {
			t.Errorf("%s: %d %q %v", when, again.StatusCode, again.body, again.Header)
		}
	}
	check("second")
	if other := w.pay("k-1", `{"amount":2}`); other.StatusCode != 422 || other.problem() != "key-reused" {
		t.Errorf("other body: %d %s", other.StatusCode, other.body)
	}
	w.stop()
	w.Server = server.New(w.conf, server.Options{})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("after a restart")
	if w.up.count() != 1 {
		t.Errorf("%d effects, want 1", w.up.count())
	}
}

func TestHealthAndReadiness(t *testing.T) {
	w := start(t, payPolicy, "")
	if a := w.ask("/healthz"); a.StatusCode != 200 || !strings.Contains(a.body, `"service":"counterfoil"`) {
		t.Errorf("healthz: %d %s", a.StatusCode, a.body)
	}
	if a := w.ask("/readyz"); a.StatusCode != 200 || !strings.Contains(a.body, `"ready":true`) {
		t.Errorf("readyz: %d %s", a.StatusCode, a.body)
	}
	if err := w.Core().Engine.Distrust(t.Context(), "restored from a backup"); err != nil {
		t.Fatal(err)
	}
	if a := w.ask("/readyz"); a.StatusCode != 503 || !strings.Contains(a.body, "store-untrusted") || !strings.Contains(a.body, "restored from a backup") {
		t.Errorf("untrusted: %d %s", a.StatusCode, a.body)
	}
	if a := w.pay("k", "x"); a.StatusCode != 503 || w.up.count() != 0 {
		t.Errorf("untrusted, guarded: %d, %d effects", a.StatusCode, w.up.count())
	}
	if err := w.client().Trust(t.Context(), admin.TrustWord{Reason: "compared with the ledger"}); err != nil {
		t.Fatal(err)
	}
	if a := w.ask("/readyz"); a.StatusCode != 200 {
		t.Errorf("trusted again: %d %s", a.StatusCode, a.body)
	}
	trust, _, err := counterfoil.ReadTrust(t.Context(), w.Core().Store)
	if err != nil || trust.Actor != "operator" || trust.Word != "compared with the ledger" {
		t.Errorf("kept %+v, %v", trust, err)
	}
	if err := w.client().Trust(t.Context(), admin.TrustWord{Reason: "again"}); !errors.Is(err, counterfoil.ErrConflict) {
		t.Errorf("A14: trusted twice: %v", err)
	}
	if err := w.Core().Store.Close(); err != nil {
		t.Fatal(err)
	}
	if a := w.ask("/readyz"); a.StatusCode != 503 {
		t.Errorf("closed store: %d %s", a.StatusCode, a.body)
	}
	if a := w.ask("/healthz"); a.StatusCode != 200 {
		t.Errorf("healthz with a closed store: %d", a.StatusCode)
	}
}

// TestC40StoreDown: a request does not run unprotected.
func TestC40StoreDown(t *testing.T) {
	w := start(t, strings.Replace(payPolicy, "deadline: 10s", "deadline: 1s\n    settle: 0s", 1), "")
	if err := w.Core().Store.Close(); err != nil {
		t.Fatal(err)
	}
	if a := w.pay("k", "x"); a.StatusCode != 503 || a.Header.Get("Retry-After") == "" || a.problem() != "store-unavailable" || w.up.count() != 0 {
		t.Errorf("closed store: %d %v, %d effects", a.StatusCode, a.Header, w.up.count())
	}
}

func TestMetrics(t *testing.T) {
	w := start(t, payPolicy, "")
	w.pay("secret-key-1", "x")
	w.pay("secret-key-1", "x")
	a := w.ask("/metrics")
	for _, line := range []string{
		`idempotency_requests_total{operation="pay",result="created"} 1`,
		`idempotency_requests_total{operation="pay",result="replayed"} 1`,
		`idempotency_key_ttl_seconds{operation="pay"} 86400`,
		`idempotency_policy_reloads_total{result="refused"} 0`,
	} {
		if !strings.Contains(a.body, line) {
			t.Errorf("no %s", line)
		}
	}
	if strings.Contains(a.body, "secret-key") || strings.Contains(a.body, "acct-1") || strings.Contains(w.log.String(), "secret-key") || strings.Contains(w.log.String(), "acct-1") {
		t.Error("a key or a principal is in metrics or log")
	}
	if a := w.ask("/debug/pprof/"); a.StatusCode != 404 {
		t.Errorf("A15: pprof on the admin listener: %d", a.StatusCode)
	}
}

// TestP11BrokenReload: a broken policy leaves the former in force, is counted
// and said, and no request is lost.
func TestP11BrokenReload(t *testing.T) {
	hangup := make(chan os.Signal, 1)
	w := start(t, payPolicy, "", func(o *server.Options) { o.Hangup = hangup })
	if a := w.pay("k-1", "x"); a.StatusCode != 201 {
		t.Fatal(a.StatusCode)
	}
	reloads := func(result string) func() bool {
		return func() bool {
			return strings.Contains(w.ask("/metrics").body, `idempotency_policy_reloads_total{result="`+result+`"} 1`)
		}
	}
	w.write("policy.yaml", strings.Replace(payPolicy, "lease: 5s", "leese: 5s", 1))
	hangup <- os.Interrupt
	eventually(t, "refused reload", reloads("refused"))
	if !strings.Contains(w.log.String(), "leese") {
		t.Errorf("the log does not say what is wrong:\n%s", w.log)
	}
	if a := w.pay("k-1", "x"); a.Header.Get("Idempotency-Status") != "replayed" {
		t.Errorf("after a broken reload: %d %v", a.StatusCode, a.Header)
	}
	// The same content under another number is fine; another operation is served.
	w.write("policy.yaml", strings.Replace(strings.Replace(payPolicy, "version: 1", "version: 2", 1), `"POST /pay"`, `"POST /pay", "POST /refund"`, 1))
	hangup <- os.Interrupt
	eventually(t, "reload", reloads("ok"))
	if a := w.pay("k-1", "x"); a.Header.Get("Idempotency-Status") != "replayed" {
		t.Errorf("after a reload: %d %v", a.StatusCode, a.Header)
	}
	if a := send(t, "POST", "http://"+w.Addr()+"/refund", "x", "X-Account-Id", "a"); a.problem() != "key-missing" {
		t.Errorf("the new route is not guarded: %d %s", a.StatusCode, a.body)
	}
	// The charter is held against a reload too: the scope must not change.
	w.write("policy.yaml", strings.Replace(strings.Replace(payPolicy, "version: 1", "version: 3", 1), "X-Account-Id", "X-Other", 1))
	if err := w.Reload(t.Context()); !errors.Is(err, counterfoil.ErrCharter) {
		t.Errorf("a reload that forgets keys: %v", err)
	}
}

// TestShutdownLetsRequestsEnd: what is under way is answered; what comes later
// is not taken.
func TestShutdownLetsRequestsEnd(t *testing.T) {
	w := start(t, payPolicy, "store: pebble:./data\n")
	arrived, release := make(chan struct{}), make(chan struct{})
	w.up.does(func(rw http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		rw.WriteHeader(201)
	})
	got := make(chan answer, 1)
	go func() { got <- w.pay("k-1", "x") }()
	<-arrived
	stopped := make(chan error, 1)
	adminAddr := w.AdminAddr()
	s := w.Server
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		stopped <- s.Stop(ctx)
	}()
	eventually(t, "not ready while stopping", func() bool {
		return send(t, "GET", "http://"+adminAddr+"/readyz", "").StatusCode == 503
	})
	close(release)
	if a := <-got; a.StatusCode != 201 || a.Header.Get("Idempotency-Status") != "created" {
		t.Errorf("the request under way: %d %v", a.StatusCode, a.Header)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	w.Server = server.New(w.conf, server.Options{})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.up.does(nil)
	if a := w.pay("k-1", "x"); a.Header.Get("Idempotency-Status") != "replayed" {
		t.Errorf("after the restart: %d %v", a.StatusCode, a.Header)
	}
}

// TestRun ends with its context.
func TestRun(t *testing.T) {
	w := prepare(t, payPolicy, "")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.New(w.conf, server.Options{Logger: server.NewLogger(w.log, false)}).Run(ctx) }()
	eventually(t, "serving", func() bool { return strings.Contains(w.log.String(), `"msg":"serving"`) })
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
}

// TestStartRefuses: what would lose protection does not start, and leaves
// nothing open.
func TestStartRefuses(t *testing.T) {
	try := func(w *world) error {
		s := server.New(w.conf, server.Options{})
		err := s.Start(t.Context())
		if err == nil {
			w.Server = s
			w.stop()
		}
		return err
	}
	has := func(t *testing.T, err error, words ...string) {
		t.Helper()
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%q is not in: %v", word, err)
			}
		}
	}
	t.Run("memory store without accept", func(t *testing.T) {
		w := prepare(t, payPolicy, "store: 'memory:'\n")
		has(t, try(w), "pay demands class B", "class C", "accept: [may-lose-acknowledged-claims]")
	})
	t.Run("broken policy", func(t *testing.T) {
		w := prepare(t, "version: 1\noperations: {}\nx: 1\n", "")
		has(t, try(w), "policy.yaml:3:1", "x")
	})
	t.Run("auth_request not configured", func(t *testing.T) {
		w := prepare(t, strings.Replace(payPolicy, `"header:X-Account-Id"`, "auth_request", 1), "")
		has(t, try(w), "operations.pay.scope.principal", "auth_request: {url")
	})
	t.Run("short index key", func(t *testing.T) {
		w := prepare(t, payPolicy, "index_key_file: index.key\n")
		w.write("index.key", "short")
		has(t, try(w), "index_key_file", "at least 32")
	})
	t.Run("index key of others", func(t *testing.T) {
		w := prepare(t, payPolicy, "index_key_file: index.key\n")
		w.write("index.key", strings.Repeat("k", 32))
		if err := os.Chmod(w.dir+"/index.key", 0o644); err != nil {
			t.Fatal(err)
		}
		has(t, try(w), "chmod 600")
	})
	t.Run("tokens of others", func(t *testing.T) {
		w := prepare(t, payPolicy, "")
		w.write("tokens", "me "+admin.NewToken())
		if err := os.Chmod(w.dir+"/tokens", 0o644); err != nil {
			t.Fatal(err)
		}
		has(t, try(w), "chmod 600")
	})
	t.Run("short token", func(t *testing.T) {
		w := prepare(t, payPolicy, "")
		w.write("tokens", "me short")
		has(t, try(w), "tokens:1", "at least")
	})
	t.Run("port taken", func(t *testing.T) {
		w := start(t, payPolicy, "")
		other := prepare(t, payPolicy, "")
		other.conf.Listen = w.Addr()
		has(t, try(other), "is another counterfoil running?")
	})
	t.Run("store in use", func(t *testing.T) {
		w := start(t, payPolicy, "store: pebble:./data\n")
		other := prepare(t, payPolicy, "store: pebble:"+w.dir+"/data\n")
		has(t, try(other), "in use")
	})
	t.Run("charter", func(t *testing.T) {
		w := start(t, payPolicy, "store: pebble:./data\n")
		w.pay("k-1", "x")
		w.stop()
		w.write("policy.yaml", strings.Replace(strings.Replace(payPolicy, "version: 1", "version: 2", 1), "X-Account-Id", "X-Other", 1))
		err := try(w)
		has(t, err, "scope.principal", "--forget pay", "1 records would be forgotten")
		if !errors.Is(err, counterfoil.ErrCharter) {
			t.Errorf("%v is no charter error", err)
		}
		w.Server = server.New(w.conf, server.Options{Wire: wire.Options{Forget: []string{"pay"}}})
		if err := w.Start(t.Context()); err != nil {
			t.Errorf("--forget pay: %v", err)
		}
	})
}

// TestUnmatchedReject: what no operation matches is refused where that is said.
func TestUnmatchedReject(t *testing.T) {
	w := start(t, payPolicy, "unmatched: reject\n")
	if a := send(t, "POST", "http://"+w.Addr()+"/free", "x"); a.StatusCode/100 != 4 || w.up.count() != 0 {
		t.Errorf("unmatched: %d", a.StatusCode)
	}
	if a := send(t, "GET", "http://"+w.Addr()+"/free", ""); a.StatusCode != 201 {
		t.Errorf("GET: %d", a.StatusCode)
	}
}

// TestObserve: everything passes, and what would have been said is counted.
func TestObserve(t *testing.T) {
	w := start(t, payPolicy, "mode: observe\n")
	w.pay("k-1", "x")
	if a := w.pay("k-1", "x"); a.StatusCode != 201 || w.up.count() != 2 {
		t.Errorf("observed: %d, %d effects", a.StatusCode, w.up.count())
	}
}
