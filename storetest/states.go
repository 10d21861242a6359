package storetest

import (
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// states are all in which a record can stand.
var states = []counterfoil.State{
	counterfoil.InProgress, counterfoil.Unknown, counterfoil.Failed,
	counterfoil.Completed, counterfoil.Tombstone, counterfoil.Announced,
}

// settle makes the write one that ends an attempt as the engine ends it, with
// everything still to come.
func settle(w *counterfoil.Write, s counterfoil.State) {
	r := &w.Record
	r.State = s
	w.Stamps.SettledAt = counterfoil.In(0)
	w.Stamps.Horizon = counterfoil.In(48 * time.Hour)
	switch s {
	case counterfoil.Unknown:
		w.Stamps.SettledAt, w.Stamps.Horizon = counterfoil.Delay{}, counterfoil.Delay{}
		r.Horizon = time.Time{}
		r.Dispatched = true
	case counterfoil.Failed:
		r.Proof = counterfoil.ProofStated
	default:
		r.Reference = ""
		r.Outcome = counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201, Resource: "/pay/1"}
		w.Stamps.ReplayUntil = counterfoil.In(24 * time.Hour)
	}
	if s == counterfoil.Tombstone || s == counterfoil.Announced {
		r.Token = counterfoil.Token{}
		r.HasResponse = false
		w.Stamps.ReplayUntil = counterfoil.In(-time.Hour)
	}
}

// entomb makes the write one of a tombstone whose horizon lies d from now.
func entomb(w *counterfoil.Write, d time.Duration) {
	settle(w, counterfoil.Tombstone)
	w.Stamps.Horizon = counterfoil.In(d)
}

// gate makes the write set a dated gate.
func gate(w *counterfoil.Write, name string, d time.Duration) {
	w.Stamps.Gates = []policy.Gate{{Name: name, For: d}}
}

// standing is a new record in state s, settled now where it is settled.
func (f *fixture) standing(s counterfoil.State, change ...func(*counterfoil.Write)) counterfoil.Record {
	f.Helper()
	r := f.claim()
	if s == counterfoil.InProgress && len(change) == 0 {
		return r
	}
	now := f.now()
	return f.update(r, func(w *counterfoil.Write) {
		if s != counterfoil.InProgress {
			settle(w, s)
		}
		if s == counterfoil.Announced {
			w.Record.AnnouncedAt = now
			w.Stamps.Horizon = counterfoil.In(-time.Hour)
		}
		for _, c := range change {
			c(w)
		}
	})
}

// past is a new record in state s whose every instant lies an hour back.
func (f *fixture) past(s counterfoil.State, change ...func(*counterfoil.Write)) counterfoil.Record {
	f.Helper()
	now := f.now()
	back := func(w *counterfoil.Write) {
		ago := counterfoil.In(-time.Hour)
		w.Stamps.LeaseUntil, w.Stamps.Horizon = ago, ago
		if s.Settled() {
			w.Stamps.ReplayUntil = ago
		}
		if s == counterfoil.Announced {
			w.Record.AnnouncedAt = now.Add(-time.Hour)
		}
	}
	return f.standing(s, append([]func(*counterfoil.Write){back}, change...)...)
}

func hold(now time.Time) counterfoil.Hold {
	return counterfoil.Hold{At: now, Actor: "ops@example", Reason: "dispute 17"}
}
