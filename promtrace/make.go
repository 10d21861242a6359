package promtrace

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/counterfoil/counterfoil/policy"
)

// results are the values of Idempotency-Status (contract.md §4), and what else
// can become of a request.
var results = []string{
	"created", "no-effect", "unknown", "replayed", "already-processed", "in-progress", "mismatch", "expired", "unguarded",
	"redirected", "invalid", "too_large", "over_quota", "store_error",
}

// make makes the metrics and lists them in all.
func (m *Metrics) make(o Options) {
	m.ttl = m.gauge("idempotency_key_ttl_seconds", "What the TTL formula gives for the operation.")
	m.horizon = m.gauge("idempotency_key_horizon_seconds", "How long after its completion a record protects: the longer of ttl and protect.")
	m.replay = m.gauge("idempotency_key_replay_seconds", "How long after completion the whole response is kept.")
	m.expected = m.gauge("idempotency_expected_rows", "Records to be expected: declared volume times horizon.")

	m.expired = m.counter("idempotency_key_expired_before_retry_total", "Retries that came after the time of their record, by what showed it.", "operation", "evidence")
	m.requests = m.counter("idempotency_requests_total", "Requests, by what they were answered.", "operation", "result")
	m.contradicted = m.counter("idempotency_contradicted_total", "Second outcomes reported for a settled record: page someone.", "operation")
	m.reconciled = m.counter("idempotency_reconcile_total", "Records that a worker or a person moved on, by what was found.", "operation", "verdict")
	m.sweepDeleted = m.counter("idempotency_sweep_deleted_total", "What sweeps let go, by kind.", "kind")
	m.sweepKept = m.counter("idempotency_sweep_kept_total", "Records met by sweeps past their horizon that a gate or hold keeps.", "gate")
	for _, kind := range []string{kindTombstone, kindFailed, kindResponse} {
		m.sweepDeleted.WithLabelValues(kind)
	}
	m.sweepKept.WithLabelValues(gateHold)

	m.retryAge = m.histogram("idempotency_retry_age_seconds", "Age of the record at a repeat of its request.", ages(o.Policy), "operation")
	m.retryRatio = m.histogram("idempotency_retry_age_ratio", "Age of the record at a repeat, as a share of the horizon.", ratios, "operation")
	m.effect = m.histogram("idempotency_effect_duration_seconds", "Time between the claim and the report of its outcome.", durations, "operation")
	m.claim = m.histogram("idempotency_claim_duration_seconds", "Duration of the store call that claims.", durations, "store").WithLabelValues(o.Store)
	m.complete = m.histogram("idempotency_complete_duration_seconds", "Duration of the store call that completes.", durations, "store").WithLabelValues(o.Store)
}

func (m *Metrics) gauge(name, help string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"operation"})
	m.all = append(m.all, v)
	return v
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.all = append(m.all, v)
	return v
}

// histogram has classic buckets for servers that know no others, and native
// ones beside them.
func (m *Metrics) histogram(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, []string{label})
	m.all = append(m.all, v)
	return v
}

const day = 24 * time.Hour

// Classic buckets. Durations reach from a local store to the longest deadlines.
var (
	durations = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
	// A retry above 1 came too late.
	ratios = []float64{0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.5, 2, 5}
	steps  = []time.Duration{
		100 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute,
		time.Hour, 4 * time.Hour, 12 * time.Hour, day, 3 * day, 7 * day, 14 * day, 30 * day, 60 * day, 90 * day, 180 * day, 365 * day,
	}
)

// ages are the buckets of retry ages: the steps below the longest horizon, that
// horizon itself, and twice as long for what comes too late.
func ages(p *policy.Policy) []float64 {
	longest := steps[len(steps)-1]
	if p != nil && len(p.Operations) > 0 {
		longest = 0
		for i := range p.Operations {
			longest = max(longest, p.Operations[i].Retention())
		}
	}
	var out []float64
	for _, s := range steps {
		if s < longest {
			out = append(out, s.Seconds())
		}
	}
	out = append(out, longest.Seconds(), 2*longest.Seconds())
	return slices.Compact(out)
}
