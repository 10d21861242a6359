package promtrace_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/promtrace"
	"github.com/counterfoil/counterfoil/sweep"
)

const (
	lease     = 30 * time.Second
	ttl       = 24 * time.Hour
	retention = 90 * 24 * time.Hour
	replayFor = time.Hour
	account   = "account-of-somebody"
	secretKey = "key-of-somebody"
)

func rules(version uint32, names ...string) *policy.Policy {
	p := &policy.Policy{Version: version}
	for _, name := range names {
		o := policy.NewOperation(name)
		o.Scope.Principal = policy.Principal{Kind: policy.PrincipalHeader, Header: "X-Account"}
		o.Inputs.ClientRetryBudget.Value = ttl
		o.Protect = retention
		replay := replayFor
		o.ReplayFor = &replay
		o.Lease, o.Wait = lease, 0
		o.Volume = policy.Volume{Records: 50_000, Per: 24 * time.Hour}
		o.Gates = []policy.Gate{{Name: "settlement", For: time.Hour}}
		p.Operations = append(p.Operations, o)
	}
	p.Normalize()
	return p
}

// world is an engine that is watched.
type world struct {
	t   *testing.T
	s   counterfoil.Store
	e   *counterfoil.Engine
	m   *promtrace.Metrics
	reg *prometheus.Registry
}

func newWorld(t *testing.T, s counterfoil.Store, o promtrace.Options) *world {
	t.Helper()
	if s == nil {
		s = memstore.New(memstore.Options{Clock: time.Now})
	}
	w := &world{t: t, s: s, reg: prometheus.NewPedanticRegistry()}
	o.Registerer, o.Store = w.reg, s.Info().Kind
	if o.Policy == nil {
		o.Policy = rules(1, "capture", "refund")
	}
	w.m = promtrace.New(o)
	var err error
	if w.e, err = counterfoil.Open(t.Context(), s, o.Policy, counterfoil.Options{Trace: w.m.Trace()}); err != nil {
		t.Fatal(err)
	}
	w.m.Watch(w.e)
	return w
}

func (w *world) begin(key string, want counterfoil.Verdict) *counterfoil.Decision {
	w.t.Helper()
	d, err := w.e.Begin(w.t.Context(), &counterfoil.Request{
		Operation: "capture", Principal: account, Key: counterfoil.Key(key),
		Fingerprint: func(*policy.Operation, uint8) (counterfoil.Fingerprint, error) {
			return counterfoil.Fingerprint{Version: 1, Sum: [16]byte{7}}, nil
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if d.Verdict != want {
		w.t.Fatalf("verdict %s, want %s", d.Verdict, want)
	}
	return d
}

func (w *world) completed(key string) *counterfoil.Claim {
	w.t.Helper()
	d := w.begin(key, counterfoil.VerdictProceed)
	if _, err := d.Claim.Complete(w.t.Context(), counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201}, []byte("r")); err != nil {
		w.t.Fatal(err)
	}
	return d.Claim
}

func (w *world) unknown(key string) *counterfoil.Claim {
	w.t.Helper()
	d := w.begin(key, counterfoil.VerdictProceed)
	if _, err := d.Claim.Unknown(w.t.Context(), counterfoil.EvidenceAmbiguous, 502, ""); err != nil {
		w.t.Fatal(err)
	}
	return d.Claim
}

func (w *world) sweep() {
	w.t.Helper()
	if _, err := sweep.New(w.e, sweep.Options{Trace: w.m.Trace()}).Once(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// scrape returns what /metrics shows.
func (w *world) scrape() string {
	w.t.Helper()
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(w.reg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != 200 {
		w.t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

// value is one sample of a scrape; ok is false when it is not shown.
func value(page, series string) (v float64, ok bool) {
	for line := range strings.Lines(page) {
		if rest, found := strings.CutPrefix(line, series+" "); found {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v, err == nil
		}
	}
	return 0, false
}

func (w *world) want(page string, samples map[string]float64) {
	w.t.Helper()
	for _, series := range slices.Sorted(maps.Keys(samples)) {
		if got, ok := value(page, series); !ok || got != samples[series] {
			w.t.Errorf("%s is %v (shown %t), want %v", series, got, ok, samples[series])
		}
	}
}

// contract is the part of the table in contract.md §6 that is built here:
// type and labels by name. Others rely on it: change it only with a line in
// CHANGELOG.md.
var contract = map[string]string{
	"idempotency_key_ttl_seconds":                  "gauge operation",
	"idempotency_key_horizon_seconds":              "gauge operation",
	"idempotency_key_replay_seconds":               "gauge operation",
	"idempotency_key_expired_before_retry_total":   "counter evidence operation",
	"idempotency_requests_total":                   "counter operation result",
	"idempotency_retry_age_seconds":                "histogram operation",
	"idempotency_retry_age_ratio":                  "histogram operation",
	"idempotency_claim_duration_seconds":           "histogram store",
	"idempotency_complete_duration_seconds":        "histogram store",
	"idempotency_effect_duration_seconds":          "histogram operation",
	"idempotency_in_progress_records":              "gauge operation",
	"idempotency_overdue_records":                  "gauge operation",
	"idempotency_unknown_records":                  "gauge operation",
	"idempotency_oldest_unknown_seconds":           "gauge operation",
	"idempotency_keys_row_count":                   "gauge operation",
	"idempotency_expected_rows":                    "gauge operation",
	"idempotency_store_bytes":                      "gauge kind operation",
	"idempotency_sweep_last_run_timestamp_seconds": "gauge",
	"idempotency_sweep_deleted_total":              "counter kind",
	"idempotency_sweep_kept_total":                 "counter gate",
	"idempotency_reconcile_total":                  "counter operation verdict",
	"idempotency_contradicted_total":               "counter operation",
}

var sample = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? \S+$`)

// TestContract: /metrics shows the table's names with its types and labels, all
// of them before the first request, and nothing else.
func TestContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newWorld(t, nil, promtrace.Options{}).scrape()
		got := map[string]string{}
		var name, kind string
		for line := range strings.Lines(page) {
			line = strings.TrimSpace(line)
			if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
				name, kind, _ = strings.Cut(rest, " ")
				continue
			}
			if strings.HasPrefix(line, "#") {
				continue
			}
			m := sample.FindStringSubmatch(line)
			if m == nil {
				t.Fatalf("line %q", line)
			}
			labels := []string{kind}
			for _, l := range regexp.MustCompile(`([a-z]+)="`).FindAllStringSubmatch(m[2], -1) {
				if l[1] != "le" {
					labels = append(labels, l[1])
				}
			}
			slices.Sort(labels[1:])
			form := strings.Join(labels, " ")
			if was, ok := got[name]; ok && was != form {
				t.Errorf("%s has the labels of %q and of %q", name, was, form)
			}
			got[name] = form
		}
		for _, name := range slices.Sorted(maps.Keys(contract)) {
			if got[name] != contract[name] {
				t.Errorf("%s is %q, want %q", name, got[name], contract[name])
			}
			delete(got, name)
		}
		for name := range got {
			t.Errorf("%s is not in the contract", name)
		}
	})
}

// TestPromlint: the names keep Prometheus's own rules, but for one that others
// already rely on.
func TestPromlint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		problems, err := testutil.GatherAndLint(newWorld(t, nil, promtrace.Options{}).reg)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if p.Metric != "idempotency_keys_row_count" {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
	})
}

// TestZeroAtFirst: every series that alerts are made of begins at zero: a rate
// over a counter that appears with its first event misses that event.
func TestZeroAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, promtrace.Options{})
		zero := map[string]float64{"idempotency_sweep_last_run_timestamp_seconds": 0}
		for _, op := range []string{"capture", "refund"} {
			for _, e := range []string{"record", "key_time", "first_sent", "ghost"} {
				zero[fmt.Sprintf(`idempotency_key_expired_before_retry_total{evidence=%q,operation=%q}`, e, op)] = 0
			}
			for _, r := range []string{
				"created", "no-effect", "unknown", "replayed", "already-processed", "in-progress", "mismatch", "expired",
				"unguarded", "redirected", "invalid", "too_large", "over_quota", "store_error",
			} {
				zero[fmt.Sprintf(`idempotency_requests_total{operation=%q,result=%q}`, op, r)] = 0
			}
			for _, name := range []string{
				"contradicted_total", "in_progress_records", "overdue_records", "unknown_records", "oldest_unknown_seconds",
				"keys_row_count", "retry_age_seconds_count", "effect_duration_seconds_count",
			} {
				zero[fmt.Sprintf(`idempotency_%s{operation=%q}`, name, op)] = 0
			}
		}
		for _, s := range []string{
			`idempotency_sweep_deleted_total{kind="tombstone"}`, `idempotency_sweep_deleted_total{kind="failed"}`,
			`idempotency_sweep_kept_total{gate="hold"}`, `idempotency_sweep_kept_total{gate="settlement"}`,
			`idempotency_claim_duration_seconds_count{store="memory"}`, `idempotency_complete_duration_seconds_count{store="memory"}`,
		} {
			zero[s] = 0
		}
		w.want(w.scrape(), zero)
	})
}

// TestLifetimes shows the policy in force, and no operation it no longer has.
func TestLifetimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, promtrace.Options{})
		w.want(w.scrape(), map[string]float64{
			`idempotency_key_ttl_seconds{operation="capture"}`:     ttl.Seconds(),
			`idempotency_key_horizon_seconds{operation="capture"}`: retention.Seconds(),
			`idempotency_key_replay_seconds{operation="capture"}`:  replayFor.Seconds(),
			`idempotency_expected_rows{operation="capture"}`:       50_000 * 90,
		})
		w.m.Policy(rules(2, "refund"))
		page := w.scrape()
		if _, ok := value(page, `idempotency_key_ttl_seconds{operation="capture"}`); ok {
			t.Error("shows the lifetimes of an operation that is gone")
		}
		if _, ok := value(page, `idempotency_requests_total{operation="capture",result="created"}`); !ok {
			t.Error("dropped its counters")
		}
	})
}

// TestEvents goes through what an engine, its workers and a door can tell.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, promtrace.Options{})
		born := time.Now()
		first := w.begin(uuidv7(born, 1), counterfoil.VerdictProceed)
		time.Sleep(10 * time.Second)
		w.begin(uuidv7(born, 1), counterfoil.VerdictInProgress) // a repeat, 10 s old
		if _, err := first.Claim.Complete(t.Context(), counterfoil.Outcome{Class: counterfoil.Succeeded}, []byte("r")); err != nil {
			t.Fatal(err)
		}
		lapsed := w.begin("lapsed", counterfoil.VerdictProceed)
		w.unknown("unknown")
		time.Sleep(lease + time.Millisecond)
		if _, err := w.e.Reconcile(t.Context(), lapsed.Record, time.Now()); err != nil {
			t.Fatal(err)
		}
		res := counterfoil.Resolution{Applied: true, Outcome: counterfoil.Outcome{Class: counterfoil.Declined}, Actor: "ann", Reason: "asked"}
		if _, err := w.e.Resolve(t.Context(), lapsed.ID, res); err != nil {
			t.Fatal(err)
		}
		if _, err := lapsed.Claim.Complete(t.Context(), counterfoil.Outcome{Class: counterfoil.Succeeded}, nil); !errors.Is(err, counterfoil.ErrSettled) {
			t.Fatal(err)
		}
		time.Sleep(retention) // the first record is past its time, and replayed no more
		w.begin(uuidv7(born, 1), counterfoil.VerdictExpired)
		w.sweep()
		w.begin(uuidv7(born, 2), counterfoil.VerdictExpired) // older than what was forgotten
		w.m.Requests("capture", "created")
		w.m.Requests("", "unguarded")

		page := w.scrape()
		w.want(page, map[string]float64{
			`idempotency_key_expired_before_retry_total{evidence="record",operation="capture"}`:   1,
			`idempotency_key_expired_before_retry_total{evidence="key_time",operation="capture"}`: 1,
			`idempotency_key_expired_before_retry_total{evidence="ghost",operation="capture"}`:    0,
			`idempotency_retry_age_seconds_bucket{operation="capture",le="30"}`:                   1,
			`idempotency_retry_age_ratio_bucket{operation="capture",le="1"}`:                      1,
			`idempotency_retry_age_ratio_bucket{operation="capture",le="1.5"}`:                    2,
			`idempotency_effect_duration_seconds_sum{operation="capture"}`:                        10,
			`idempotency_effect_duration_seconds_count{operation="capture"}`:                      2, // the unknown one ended too
			`idempotency_contradicted_total{operation="capture"}`:                                 1,
			`idempotency_reconcile_total{operation="capture",verdict="unknown"}`:                  1,
			`idempotency_reconcile_total{operation="capture",verdict="applied"}`:                  1,
			`idempotency_sweep_deleted_total{kind="tombstone"}`:                                   2,
			`idempotency_sweep_deleted_total{kind="response"}`:                                    1,
			`idempotency_sweep_last_run_timestamp_seconds`:                                        float64(time.Now().Unix()) + float64(time.Now().UnixMilli()%1000)/1000,
			`idempotency_requests_total{operation="capture",result="created"}`:                    1,
			`idempotency_requests_total{operation="",result="unguarded"}`:                         1,
			`idempotency_keys_row_count{operation="capture"}`:                                     1,
			`idempotency_unknown_records{operation="capture"}`:                                    1,
			`idempotency_keys_row_count{operation="refund"}`:                                      0,
			`idempotency_oldest_unknown_seconds{operation="capture"}`:                             (retention + lease + time.Millisecond).Seconds(),
		})
		for _, secret := range []string{account, secretKey, uuidv7(born, 1), first.ID.String()} {
			if strings.Contains(page, secret) {
				t.Errorf("%q is shown", secret)
			}
		}
	})
}

// uuidv7 is a key born at t.
func uuidv7(t time.Time, n byte) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.UnixMilli())<<16)
	b[6], b[8], b[15] = 0x70, 0x80, n
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// TestRecordGauges: what the store holds, by state.
func TestRecordGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, promtrace.Options{})
		w.begin(secretKey, counterfoil.VerdictProceed)
		time.Sleep(lease + time.Second)
		w.begin("alive", counterfoil.VerdictProceed)
		w.completed("done")
		w.unknown("unknown")
		time.Sleep(15 * time.Second)
		page := w.scrape()
		w.want(page, map[string]float64{
			`idempotency_keys_row_count{operation="capture"}`:         4,
			`idempotency_in_progress_records{operation="capture"}`:    2,
			`idempotency_overdue_records{operation="capture"}`:        1,
			`idempotency_unknown_records{operation="capture"}`:        1,
			`idempotency_oldest_unknown_seconds{operation="capture"}`: 15,
			`idempotency_store_bytes{kind="response",operation=""}`:   1,
		})
		if strings.Contains(page, secretKey) || strings.Contains(page, account) {
			t.Error("a key or a principal is shown")
		}
	})
}

// TestBuckets reach the longest horizon and beyond it: no quantile exceeds the
// last bucket.
func TestBuckets(t *testing.T) {
	for _, protect := range []time.Duration{retention, 10 * 365 * 24 * time.Hour, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			p := rules(1, "capture")
			p.Operations[0].Protect, p.Operations[0].Inputs = protect, policy.Inputs{}
			page := newWorld(t, nil, promtrace.Options{Policy: p}).scrape()
			for _, le := range []time.Duration{protect, 2 * protect} {
				series := fmt.Sprintf(`idempotency_retry_age_seconds_bucket{operation="capture",le="%s"}`, strconv.FormatFloat(le.Seconds(), 'g', -1, 64))
				if _, ok := value(page, series); !ok {
					t.Errorf("no %s", series)
				}
			}
		})
	}
}

// counting counts and may refuse what the gauges ask of a store.
type counting struct {
	counterfoil.Store
	mu    sync.Mutex
	stats int
	err   error
}

func (c *counting) Stats(ctx context.Context) (counterfoil.Stats, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats++
	if c.err != nil {
		return counterfoil.Stats{}, c.err
	}
	return c.Store.Stats(ctx)
}

// TestStatsCache: however many servers scrape, the store counts once in a while.
func TestStatsCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Store: memstore.New(memstore.Options{Clock: time.Now})}
		w := newWorld(t, s, promtrace.Options{StatsEvery: time.Minute})
		before := s.stats
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { w.scrape() })
		}
		wg.Wait()
		if n := s.stats - before; n != 1 {
			t.Errorf("counted %d times for 20 scrapes at once", n)
		}
		time.Sleep(time.Minute)
		w.scrape()
		if n := s.stats - before; n != 2 {
			t.Errorf("counted %d times after a minute, want 2", n)
		}
	})
}

// TestStoreDown: gauges that would be wrong are missing, the rest is shown, and
// somebody is told.
func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Store: memstore.New(memstore.Options{Clock: time.Now})}
		var told []error
		w := newWorld(t, s, promtrace.Options{StatsEvery: time.Second, OnError: func(err error) { told = append(told, err) }})
		w.completed("k")
		s.err = errors.New("down")
		page := w.scrape()
		if _, ok := value(page, `idempotency_keys_row_count{operation="capture"}`); ok {
			t.Error("shows counts that nobody counted")
		}
		w.want(page, map[string]float64{`idempotency_effect_duration_seconds_count{operation="capture"}`: 1})
		if len(told) != 1 || !errors.Is(told[0], s.err) {
			t.Errorf("told %v", told)
		}
		s.err = nil
		time.Sleep(time.Second)
		w.want(w.scrape(), map[string]float64{`idempotency_keys_row_count{operation="capture"}`: 1})
	})
}

// TestUnwatched metrics, before the engine is open, show no records.
func TestUnwatched(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := promtrace.New(promtrace.Options{Store: "memory"})
	reg.MustRegister(m)
	m.Policy(rules(1, "capture"))
	if n, err := testutil.GatherAndCount(reg, "idempotency_keys_row_count"); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := testutil.GatherAndCount(reg, "idempotency_key_ttl_seconds"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

// TestConcurrentUse: scrapes, events and a new policy at once.
func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, promtrace.Options{StatsEvery: time.Nanosecond})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 20 {
					w.completed(fmt.Sprint("k", i, "-", j))
					w.m.Requests("capture", "created")
				}
			})
			wg.Go(func() { w.scrape() })
			wg.Go(func() { w.m.Policy(rules(1, "capture", "refund")) })
		}
		wg.Wait()
		time.Sleep(time.Second) // what is cached now is from before the last claims
		w.want(w.scrape(), map[string]float64{
			`idempotency_keys_row_count{operation="capture"}`:                  160,
			`idempotency_requests_total{operation="capture",result="created"}`: 160,
		})
	})
}
