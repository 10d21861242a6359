package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil"
)

// sweepLimit stands for a sweep's limit that was left out.
const sweepLimit = 10_000

// Sweep implements [counterfoil.Store]. It takes each record as far as it may
// go in one visit. When it returns an error it has done nothing.
func (s *Store) Sweep(ctx context.Context, o counterfoil.SweepOrder) (counterfoil.SweepReport, error) {
	if err := s.enter(ctx); err != nil {
		return counterfoil.SweepReport{}, fmt.Errorf("memstore: sweep: %w", err)
	}
	defer s.mu.Unlock()
	v := visit{s: s, now: s.now(), grace: o.Grace}
	v.report.AsOf = v.now
	v.at = v.now
	if !o.Now.IsZero() {
		if o.Now.Sub(v.now).Abs() > counterfoil.MaxClockSkew {
			return v.report, fmt.Errorf("memstore: sweep: %w: the store has %s, the sweeper %s",
				counterfoil.ErrClockSkew, v.now.Format(time.RFC3339), o.Now.UTC().Format(time.RFC3339))
		}
		if o.Now.Before(v.at) {
			v.at = o.Now
		}
	}
	entries, err := s.after(o.Cursor)
	if err != nil {
		return v.report, fmt.Errorf("memstore: sweep: %w", err)
	}
	limit := limitOf(o.Limit, sweepLimit)
	var last *entry
	for _, e := range entries {
		if e.deleted {
			continue
		}
		if v.report.Examined == limit {
			v.report.Next = last.cursor()
			break
		}
		v.report.Examined++
		v.record(e)
		last = e
	}
	if v.raised {
		// One write for the batch is enough: nobody looks in between.
		s.writeForgotten()
	}
	s.compact()
	return v.report, nil
}

// visit is one batch under way.
type visit struct {
	s      *Store
	now    time.Time // what the store stamps
	at     time.Time // what it judges by: the earlier of the two clocks
	grace  time.Duration
	raised bool
	report counterfoil.SweepReport
}

// record applies the rules of [counterfoil.SweepOrder] to one record.
func (v *visit) record(e *entry) {
	r := &e.record
	switch {
	case r.State == counterfoil.Failed:
		if v.horizonPassed(r) {
			v.s.remove(e)
			v.report.FailedDeleted++
		}
		return
	case r.State == counterfoil.Completed && !v.at.Before(r.ReplayUntil):
		v.strip(e)
	case r.Closed(v.at) && len(r.Holds) == 0:
		v.close(e)
	case r.Closed(v.at):
		v.kept("hold")
		return
	}
	// A response that is still replayed keeps its record.
	if r.State != counterfoil.Tombstone && r.State != counterfoil.Announced || !v.horizonPassed(r) {
		return
	}
	if r.State == counterfoil.Tombstone || r.AnnouncedAt.IsZero() {
		v.announce(e)
	}
	// Grace is told by the clock that stamped the announcement.
	if v.now.Sub(r.AnnouncedAt) >= v.grace {
		v.forget(r)
		v.s.remove(e)
		v.report.TombstonesDeleted++
	}
}

// horizonPassed reports that the horizon is set and passed, and that no gate or
// hold keeps the record; those that do are counted.
func (v *visit) horizonPassed(r *counterfoil.Record) bool {
	if r.Horizon.IsZero() || v.at.Before(r.Horizon) {
		return false
	}
	gate := r.GateOpen(v.at)
	v.kept(gate)
	return gate == ""
}

func (v *visit) kept(gate string) {
	if gate == "" {
		return
	}
	if v.report.Kept == nil {
		v.report.Kept = make(map[string]int)
	}
	v.report.Kept[gate]++
}

// strip makes a tombstone of a completed record.
func (v *visit) strip(e *entry) {
	if e.response != nil {
		v.report.ResponsesDropped++
	}
	v.report.Tombstoned++
	v.s.replace(e, tombstone(&e.record), nil)
}

// close makes a tombstone with outcome unknown of an unknown record.
func (v *visit) close(e *entry) {
	next := tombstone(&e.record)
	next.Outcome.Class = counterfoil.OutcomeUnknown
	next.SettledAt = counterfoil.Instant(v.now)
	// Full evidence is no reason to keep the record open: state and time of
	// settling say the same.
	_ = next.AddEvidence(counterfoil.Evidence{
		Kind:    counterfoil.EvidenceClosed,
		At:      counterfoil.Instant(v.now),
		Attempt: next.Attempt,
	})
	v.report.Closed++
	v.s.replace(e, next, nil)
}

func tombstone(r *counterfoil.Record) counterfoil.Record {
	next := r.Clone()
	next.State = counterfoil.Tombstone
	next.Token = counterfoil.Token{}
	next.Reference = ""
	return next
}

// announce raises F and tells that the record will go.
func (v *visit) announce(e *entry) {
	v.forget(&e.record)
	next := e.record.Clone()
	next.State = counterfoil.Announced
	next.AnnouncedAt = counterfoil.Instant(v.now)
	v.report.Announced++
	v.s.replace(e, next, e.response)
}

// forget raises F to the record's creation.
func (v *visit) forget(r *counterfoil.Record) {
	if v.s.forgotten.Raise(r.Operation, r.CreatedAt) {
		v.raised = true
	}
}
