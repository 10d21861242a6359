package admin

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil"
)

// View is a record as the API shows it; operation is its name, empty when the
// charter does not know its number.
func View(snap counterfoil.Snapshot, operation string) Record {
	r := &snap.Record
	if operation == "" {
		operation = fmt.Sprintf("number %d", r.Operation)
	}
	v := Record{
		ID: r.ID, Operation: operation, State: r.State.String(),
		AgeSeconds: max(snap.AsOf.Sub(r.CreatedAt), 0).Seconds(),
		Attempt:    r.Attempt, Rev: r.Rev, Reference: r.Reference,
		Principal: r.Principal.String(), Fingerprint: hex.EncodeToString(r.Fingerprint.Sum[:]),
		FingerprintVersion: r.Fingerprint.Version, PolicyVersion: r.Policy,
		Dispatched: r.Dispatched, Observed: r.Observed, Erased: r.Erased, HasResponse: r.HasResponse,
		CreatedAt: r.CreatedAt, ClaimedAt: instant(r.ClaimedAt), LeaseUntil: instant(r.LeaseUntil),
		FirstDispatchAt: instant(r.FirstDispatch), LastDispatchAt: instant(r.LastDispatch),
		QuietAt: instant(r.QuietAt), SettledAt: instant(r.SettledAt), ReplayUntil: instant(r.ReplayUntil),
		HorizonAt: instant(r.Horizon), AnnouncedAt: instant(r.AnnouncedAt), AsOf: snap.AsOf,
	}
	v.Why, v.MayGoAt = why(r, snap.AsOf), instant(r.ProtectedUntil())
	if r.State.Settled() || r.Outcome != (counterfoil.Outcome{}) {
		v.Outcome = outcome(r.Outcome)
	}
	if r.Proof != counterfoil.ProofNone {
		v.Proof = r.Proof.String()
	}
	for _, g := range r.Gates {
		v.Gates = append(v.Gates, Gate{g.Name, g.Until})
	}
	for _, h := range r.Holds {
		v.Holds = append(v.Holds, Hold{h.At, h.Actor, h.Reason})
	}
	for _, e := range r.Evidence {
		ev := Evidence{Kind: e.Kind.String(), At: e.At, Count: e.Count, Attempt: e.Attempt, Actor: e.Actor, Reason: e.Reason}
		if e.Outcome != (counterfoil.Outcome{}) {
			ev.Outcome = outcome(e.Outcome)
		}
		v.Evidence = append(v.Evidence, ev)
	}
	return v
}

func outcome(o counterfoil.Outcome) *Outcome {
	return &Outcome{o.Class.String(), o.Status, o.Resource}
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// why says in words why the record is still here and when it may go.
func why(r *counterfoil.Record, now time.Time) string {
	switch r.State {
	case counterfoil.InProgress:
		return whyInProgress(r, now)
	case counterfoil.Unknown:
		return whyUnknown(r, now)
	case counterfoil.Failed:
		s := fmt.Sprintf("It is proved (%s) that attempt %d had no effect: the same request may run again.", r.Proof, r.Attempt)
		return s + keptBy(r, now)
	}
	s := ""
	switch {
	case r.Outcome.Class == counterfoil.OutcomeUnknown:
		s = "Nobody learnt what came of it; it was closed and never runs again."
	case r.Outcome.Class == counterfoil.NoEffect:
		s = "It was closed as unknown, and proved later to have had no effect; it never runs again."
	default:
		s = fmt.Sprintf("It %s with status %d, and repeating it could do harm.", r.Outcome.Class, r.Outcome.Status)
		if r.Outcome.Class == counterfoil.Declined {
			s = fmt.Sprintf("It was declined with status %d.", r.Outcome.Status)
		}
	}
	if r.HasResponse && now.Before(r.ReplayUntil) {
		s += " Its response is replayed until " + at(r.ReplayUntil) + "."
	}
	return s + keptBy(r, now)
}

func whyInProgress(r *counterfoil.Record, now time.Time) string {
	switch {
	case !r.Lapsed(now):
		return fmt.Sprintf("Attempt %d holds the claim until %s. It stays until its outcome is known.", r.Attempt, at(r.LeaseUntil))
	case r.Dispatched:
		return fmt.Sprintf("Attempt %d was abandoned at %s, after it had crossed to something remote: its outcome is unknown, and the next reconciliation says so. It never runs again because time passed.",
			r.Attempt, at(r.LeaseUntil))
	}
	return fmt.Sprintf("Attempt %d was abandoned at %s before it crossed to anything remote: the same request may run again, and the next reconciliation after its cadence marks it failed.",
		r.Attempt, at(r.LeaseUntil))
}

func whyUnknown(r *counterfoil.Record, now time.Time) string {
	s := fmt.Sprintf("Nobody can tell what came of attempt %d", r.Attempt)
	if n := len(r.Evidence); n > 0 {
		s += " (" + r.Evidence[n-1].Kind.String() + ")"
	}
	s += "; it never runs again because time passed."
	if now.Before(r.QuietAt) {
		s += " Something sent may still take effect until " + at(r.QuietAt) + "."
	}
	if r.Horizon.IsZero() {
		return s + " It stays until somebody resolves it: look the effect up downstream, then resolve it as succeeded, declined or absent."
	}
	return s + " Unresolved, it closes as unknown on " + at(r.Horizon) + "."
}

// keptBy is the second half: what keeps the record, and until when.
func keptBy(r *counterfoil.Record, now time.Time) string {
	switch gate := r.GateOpen(now); {
	case len(r.Holds) > 0:
		h := r.Holds[0]
		return fmt.Sprintf(" A hold keeps it until it is lifted (%s: %s).", h.Actor, h.Reason)
	case !r.Horizon.IsZero() && now.Before(r.Horizon) && (gate == "" || !r.ProtectedUntil().After(r.Horizon)):
		return " It may go on " + at(r.Horizon) + "."
	case gate != "":
		return fmt.Sprintf(" The gate %s keeps it until %s.", gate, at(r.ProtectedUntil()))
	case r.State == counterfoil.Announced:
		return " Its time is past and its deletion announced; the next sweep may delete it."
	case r.Horizon.IsZero():
		return ""
	}
	return " Its time is past; the next sweep may delete it."
}
