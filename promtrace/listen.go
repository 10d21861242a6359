package promtrace

import (
	"github.com/counterfoil/counterfoil"
)

// Label values that are not spelled by another package.
const (
	kindTombstone = "tombstone"
	kindFailed    = "failed"
	kindResponse  = "response"

	gateHold = "hold"

	verdictApplied = "applied"
	verdictAbsent  = "absent"
	verdictUnknown = "unknown"
)

func (m *Metrics) onDecided(d counterfoil.Decided) {
	if d.Ruling.Late != counterfoil.WitnessNone {
		m.expired.WithLabelValues(d.Operation, string(d.Ruling.Late)).Inc()
	}
	// Another request under the same key is not a retry of the first.
	if d.Age <= 0 || d.Ruling.Verdict == counterfoil.VerdictMismatch {
		return
	}
	m.retryAge.WithLabelValues(d.Operation).Observe(d.Age.Seconds())
	if d.Horizon > 0 {
		m.retryRatio.WithLabelValues(d.Operation).Observe(d.Age.Seconds() / d.Horizon.Seconds())
	}
}

func (m *Metrics) onStoreCall(c counterfoil.StoreCall) {
	switch c.Call {
	case "claim":
		m.claim.Observe(c.Took.Seconds())
	case "complete":
		m.complete.Observe(c.Took.Seconds())
	}
}

func (m *Metrics) onEnded(e counterfoil.Ended) {
	m.effect.WithLabelValues(e.Operation).Observe(e.Effect.Seconds())
}

func (m *Metrics) onContradicted(operation string, _ counterfoil.ID) {
	m.contradicted.WithLabelValues(operation).Inc()
}

func (m *Metrics) onReconciled(operation string, _ counterfoil.ID, to counterfoil.State) {
	verdict := verdictApplied
	switch to {
	case counterfoil.Unknown:
		verdict = verdictUnknown
	case counterfoil.Failed:
		verdict = verdictAbsent
	}
	m.reconciled.WithLabelValues(operation, verdict).Inc()
}

func (m *Metrics) onSwept(r counterfoil.SweepReport, _ error) {
	m.sweepDeleted.WithLabelValues(kindTombstone).Add(float64(r.TombstonesDeleted))
	m.sweepDeleted.WithLabelValues(kindFailed).Add(float64(r.FailedDeleted))
	m.sweepDeleted.WithLabelValues(kindResponse).Add(float64(r.ResponsesDropped))
	for gate, n := range r.Kept {
		m.sweepKept.WithLabelValues(gate).Add(float64(n))
	}
}
