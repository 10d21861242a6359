package pebblestore

import (
	"time"

	"github.com/counterfoil/counterfoil"
)

// fate is what a sweep makes of one record.
type fate struct {
	// next is the last content it takes on; nil when it stays as it is.
	next   *counterfoil.Record
	delete bool
	// kept is the gate that keeps it, though its horizon passed.
	kept                                          string
	stripped, dropped, closed, announced, forgets bool
}

// expire applies the rules of [counterfoil.SweepOrder] to one record, as far as
// they go. now is what is stamped; at, the earlier of two clocks, is what is
// judged by.
func expire(r *counterfoil.Record, now, at time.Time, grace time.Duration) (f fate) {
	passed := func() bool {
		if r.Horizon.IsZero() || at.Before(r.Horizon) {
			return false
		}
		f.kept = r.GateOpen(at)
		return f.kept == ""
	}
	step := func() {
		if f.next == nil {
			c := r.Clone()
			f.next, r = &c, &c
		}
		r.Rev++
	}
	tombstone := func() {
		step()
		f.dropped = r.HasResponse
		r.State, r.Token, r.Reference, r.HasResponse = counterfoil.Tombstone, counterfoil.Token{}, "", false
	}
	switch {
	case r.State == counterfoil.Failed:
		// Proved to have had no effect: F is not raised.
		f.delete = passed()
		return f
	case r.State == counterfoil.Completed && !at.Before(r.ReplayUntil):
		tombstone()
		f.stripped = true
	case r.Closed(at) && len(r.Holds) > 0:
		// Closing drops the reference that whoever holds it may need.
		f.kept = "hold"
		return f
	case r.Closed(at):
		tombstone()
		f.closed = true
		r.Outcome.Class = counterfoil.OutcomeUnknown
		r.SettledAt = counterfoil.Instant(now)
		// Full evidence is no reason to keep the record open: state and time of
		// settling say the same.
		_ = r.AddEvidence(counterfoil.Evidence{Kind: counterfoil.EvidenceClosed, At: r.SettledAt, Attempt: r.Attempt})
	}
	// A response that is still replayed keeps its record.
	if r.State != counterfoil.Tombstone && r.State != counterfoil.Announced || !passed() {
		return f
	}
	if r.State == counterfoil.Tombstone || r.AnnouncedAt.IsZero() {
		step()
		r.State, r.AnnouncedAt = counterfoil.Announced, counterfoil.Instant(now)
		f.announced, f.forgets = true, true
	}
	// Grace is told by the clock that stamped the announcement.
	if now.Sub(r.AnnouncedAt) >= grace {
		f.delete, f.forgets = true, true
	}
	return f
}

// add counts a fate.
func (f *fate) add(r *counterfoil.SweepReport, state counterfoil.State) {
	count := func(n *int, on bool) {
		if on {
			*n++
		}
	}
	count(&r.ResponsesDropped, f.dropped)
	count(&r.Tombstoned, f.stripped)
	count(&r.Closed, f.closed)
	count(&r.Announced, f.announced)
	count(&r.FailedDeleted, f.delete && state == counterfoil.Failed)
	count(&r.TombstonesDeleted, f.delete && state != counterfoil.Failed)
	if f.kept != "" {
		if r.Kept == nil {
			r.Kept = make(map[string]int)
		}
		r.Kept[f.kept]++
	}
}
