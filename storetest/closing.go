package storetest

import (
	"time"

	"github.com/counterfoil/counterfoil"
)

// closingAt is an unknown record under on_unknown: close, its time d from now.
func (f *fixture) closingAt(d time.Duration, change ...func(*counterfoil.Write)) counterfoil.Record {
	f.Helper()
	dated := func(w *counterfoil.Write) {
		w.Stamps.Horizon = counterfoil.In(d)
		w.Record.Reference = "ch_1"
		w.Record.Outcome.Status = 502
	}
	return f.standing(counterfoil.Unknown, append([]func(*counterfoil.Write){dated}, change...)...)
}

var closingTests = []test{
	{"an unknown record closes at its horizon, with its outcome unknown", func(f *fixture) {
		r := f.closingAt(-time.Millisecond, func(w *counterfoil.Write) { gate(w, "provider_reference", time.Hour) })
		later := f.closingAt(time.Hour)
		report := f.sweep(counterfoil.SweepOrder{})
		if report.Closed != 1 || report.Tombstoned != 0 || report.TombstonesDeleted != 0 || report.Kept["provider_reference"] != 1 {
			f.Fatalf("report: got %+v", report)
		}
		f.same(later)
		got := f.get(r.ID)
		if got.State != counterfoil.Tombstone || got.Outcome.Class != counterfoil.OutcomeUnknown ||
			!got.Token.IsZero() || got.Reference != "" || got.SettledAt.IsZero() || got.Rev <= r.Rev {
			f.Fatalf("closed record: got %+v", got)
		}
		n := len(got.Evidence)
		if n != len(r.Evidence)+1 || got.Evidence[n-1].Kind != counterfoil.EvidenceClosed || got.Evidence[n-1].At.IsZero() {
			f.Fatalf("evidence of the closed record: got %+v", got.Evidence)
		}
		want := stub(r)
		want.State, want.SettledAt, want.Evidence = got.State, got.SettledAt, got.Evidence
		if g := diff(stub(got), want); g != "" {
			f.Fatalf("closing lost part of the record:\n%s", g)
		}
	}},

	{"a closed record goes on as any tombstone", func(f *fixture) {
		r := f.closingAt(-time.Millisecond)
		report := f.sweep(counterfoil.SweepOrder{})
		if report.Closed != 1 || report.Announced != 1 || report.TombstonesDeleted != 1 {
			f.Fatalf("report: got %+v", report)
		}
		f.gone(r.ID)
		if got := f.limit(opPay); got.Before(r.CreatedAt) {
			f.Fatalf("F is %s; the record was created %s", got, r.CreatedAt)
		}
	}},

	{"a hold keeps an unknown record open", func(f *fixture) {
		r := f.closingAt(-time.Hour, func(w *counterfoil.Write) { w.Record.Holds = []counterfoil.Hold{hold(f.now())} })
		report := f.sweep(counterfoil.SweepOrder{})
		if report.Closed != 0 || report.Kept["hold"] != 1 {
			f.Fatalf("report: got %+v", report)
		}
		f.same(r)
		f.update(r, func(w *counterfoil.Write) { w.Record.Holds = nil })
		if report = f.sweep(counterfoil.SweepOrder{}); report.Closed != 1 {
			f.Fatalf("after the hold was lifted: got %+v", report)
		}
	}},

	{"P13 closing makes room", func(f *fixture) {
		f.closingAt(-time.Hour)
		f.overQuota(alice, 1)
		f.sweep(counterfoil.SweepOrder{})
		f.claim(bounded(1))
	}},

	{"C74 an unknown record closes when its time has come and not before", func(f *fixture) {
		f.needsClock()
		r := f.closingAt(time.Minute)
		f.clock.Set(r.Horizon.Add(-time.Millisecond))
		f.sweep(counterfoil.SweepOrder{})
		f.same(r)
		f.clock.Advance(time.Millisecond)
		f.sweep(counterfoil.SweepOrder{Grace: time.Hour})
		if got := f.get(r.ID); got.State != counterfoil.Announced {
			f.Fatalf("at its time the record is %s, want it closed and announced", got.State)
		}
	}},
}
