// Package promtrace shows what an engine decides and what its store holds as
// Prometheus metrics. Names and labels are those of contract.md §6; nothing
// that names a key or a principal is ever a label.
package promtrace

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// Options of [New]. The zero value works.
type Options struct {
	// Registerer takes the metrics in; nil registers them nowhere, and the
	// caller registers the [Metrics] itself.
	Registerer prometheus.Registerer
	// Store is the kind of store (counterfoil.Info.Kind): a label of the
	// durations of its calls.
	Store string
	// Policy sets the buckets of retry ages: they reach beyond the longest
	// horizon, since no quantile ever exceeds the last bucket. It also does what
	// [Metrics.Policy] does. Nil stands for horizons up to a year.
	Policy *policy.Policy
	// StatsEvery is how old the counts of the store's records may be at a
	// scrape; 0 stands for 15 s.
	StatsEvery time.Duration
	// OnError is told when the store could not be counted; the gauges of its
	// records are then missing from the scrape. It may be nil.
	OnError func(error)
}

// Metrics is a listener of the engine and a prometheus.Collector. It is safe
// for concurrent use.
type Metrics struct {
	trace *counterfoil.Trace
	all   []prometheus.Collector

	ttl, horizon, replay, expected *prometheus.GaugeVec

	expired, requests, contradicted, reconciled *prometheus.CounterVec
	sweepDeleted, sweepKept                     *prometheus.CounterVec

	retryAge, retryRatio, effect *prometheus.HistogramVec
	claim, complete              prometheus.Observer

	records recordCounts

	mu sync.Mutex // guards policy
	// policy is the one whose operations are shown.
	policy *policy.Policy
}

// New returns metrics and registers them; like every registration at start it
// panics when the registerer has them already.
func New(o Options) *Metrics {
	if o.StatsEvery <= 0 {
		o.StatsEvery = 15 * time.Second
	}
	m := &Metrics{records: recordCounts{every: o.StatsEvery, onError: o.OnError}}
	m.make(o)
	m.trace = &counterfoil.Trace{
		Decided:      m.onDecided,
		StoreCall:    m.onStoreCall,
		Ended:        m.onEnded,
		Contradicted: m.onContradicted,
		Reconciled:   m.onReconciled,
		Swept:        m.onSwept,
	}
	if o.Policy != nil {
		m.Policy(o.Policy)
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(m)
	}
	return m
}

// Trace is the listener to give to counterfoil.Open and to the workers.
func (m *Metrics) Trace() *counterfoil.Trace { return m.trace }

// Watch shows what the engine's store holds, counted at a scrape. Call it once,
// when the engine is open.
func (m *Metrics) Watch(e *counterfoil.Engine) { m.records.watch(e) }

// Requests counts one answer of a door: result is what Idempotency-Status said,
// or redirected, invalid, too_large, over_quota or store_error. The operation
// is empty where none matched. That a retry came too late is counted from the
// trace already.
func (m *Metrics) Requests(operation, result string) {
	m.requests.WithLabelValues(operation, result).Inc()
}

// Policy shows the lifetimes of p, and every operation's counters from zero on.
// Call it again whenever another policy comes into force.
func (m *Metrics) Policy(p *policy.Policy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range []*prometheus.GaugeVec{m.ttl, m.horizon, m.replay, m.expected} {
		g.Reset()
	}
	for i := range p.Operations {
		m.operation(&p.Operations[i])
	}
	m.policy = p
}

// operation sets the lifetimes of o. Its counters begin at zero: a rate over a
// counter that appears with its first event misses that event.
func (m *Metrics) operation(o *policy.Operation) {
	m.ttl.WithLabelValues(o.Name).Set(o.TTL().Seconds())
	m.horizon.WithLabelValues(o.Name).Set(o.Retention().Seconds())
	m.replay.WithLabelValues(o.Name).Set(o.Replay().Seconds())
	m.expected.WithLabelValues(o.Name).Set(o.ExpectedRows())
	for _, w := range []counterfoil.Witness{
		counterfoil.WitnessRecord, counterfoil.WitnessKeyTime, counterfoil.WitnessFirstSent, counterfoil.WitnessGhost,
	} {
		m.expired.WithLabelValues(o.Name, string(w))
	}
	for _, r := range results {
		m.requests.WithLabelValues(o.Name, r)
	}
	for _, v := range []string{verdictApplied, verdictAbsent, verdictUnknown} {
		m.reconciled.WithLabelValues(o.Name, v)
	}
	m.contradicted.WithLabelValues(o.Name)
	m.retryAge.WithLabelValues(o.Name)
	m.retryRatio.WithLabelValues(o.Name)
	m.effect.WithLabelValues(o.Name)
	for _, g := range o.Gates {
		m.sweepKept.WithLabelValues(g.Name)
	}
}

// shown are the names of the operations shown.
func (m *Metrics) shown() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.policy == nil {
		return nil
	}
	names := make([]string, len(m.policy.Operations))
	for i := range m.policy.Operations {
		names[i] = m.policy.Operations[i].Name
	}
	return names
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(ch)
	}
	describeRecords(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(ch)
	}
	m.records.collect(ch, m.shown())
}
