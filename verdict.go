package counterfoil

import (
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// Verdict is what Begin answers.
type Verdict uint8

// The verdicts. Only VerdictProceed lets the effect be attempted.
const (
	// VerdictUnavailable: the store was not sure; nothing may be attempted.
	VerdictUnavailable Verdict = iota
	// VerdictProceed: the caller holds the claim and may attempt the effect.
	VerdictProceed
	// VerdictReplay: settled, and the response is kept.
	VerdictReplay
	// VerdictAlreadyProcessed: settled, and the response is gone.
	VerdictAlreadyProcessed
	// VerdictInProgress: another attempt holds a live claim.
	VerdictInProgress
	// VerdictUnknown: an attempt was made and nobody can tell what came of it.
	VerdictUnknown
	// VerdictMismatch: the key belongs to another request.
	VerdictMismatch
	// VerdictExpired: the key outlived its record; it is refused, not run.
	VerdictExpired
	// VerdictKeyInvalid: the key says that it was made in the future.
	VerdictKeyInvalid

	numVerdicts
)

var verdictNames = [numVerdicts]string{
	"unavailable", "proceed", "replay", "already processed", "in progress",
	"unknown", "mismatch", "expired", "key invalid",
}

// String is the verdict in words.
func (v Verdict) String() string {
	if v < numVerdicts {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Opening says how a proceeding verdict opens its attempt.
type Opening uint8

// The openings.
const (
	// OpensNothing: the verdict does not proceed.
	OpensNothing Opening = iota
	// OpensFirst: attempt 1 of a new record.
	OpensFirst
	// OpensNext: attempt n+1 after proof of no effect.
	OpensNext
	// OpensRedispatch: attempt n+1 under the same identity, inside the
	// downstream's own dedupe window.
	OpensRedispatch
	// OpensAnew: attempt 1 of a record that takes the place of one past its
	// time, which stays as evidence (late: count).
	OpensAnew
)

// Witness says what showed that a retry came too late (contract.md §6).
type Witness string

// The witnesses, strongest first (design.md §7).
const (
	WitnessNone      Witness = ""
	WitnessRecord    Witness = "record"
	WitnessKeyTime   Witness = "key_time"
	WitnessFirstSent Witness = "first_sent"
	WitnessGhost     Witness = "ghost"
)

// Ghosts says what the filters of deleted keys answer for an absent key.
type Ghosts uint8

// The answers of the ghosts. A store that keeps none answers GhostsOff.
const (
	GhostsOff Ghosts = iota
	// GhostsClear: fresh, without gap since the key's birth, and no hit.
	GhostsClear
	// GhostsHit: the key was deleted, but for one false hit in a million.
	GhostsHit
	// GhostsGap: they do not reach back to the key's birth.
	GhostsGap
	// GhostsStale: not reloaded for two refresh intervals.
	GhostsStale
)

// ClockTolerance is ε: how far a caller's clock may be off (design.md §7).
const ClockTolerance = 5 * time.Minute

// Facts is everything the verdict depends on.
type Facts struct {
	// Standing is the record with this ID; nil when absent.
	Standing *Record
	// Unreadable: the record's version, its policy or a key cannot be read.
	Unreadable bool
	// Now is the store's time at which Standing was true.
	Now time.Time
	// Same: the request's fingerprint is the record's.
	Same bool
	// Trusted: the store has not lost writes since somebody last trusted it.
	Trusted bool
	// Born is the key's birth, zero when undated; BornBy is what dates it.
	Born   time.Time
	BornBy Witness
	// Forgotten is F of the operation.
	Forgotten time.Time
	Ghosts    Ghosts
	// ResponseReadable: the response is kept and passes its checks.
	ResponseReadable bool
	// Late is the rule of the policy that made the record; of today's policy
	// when there is none.
	Late policy.Late
	// RedispatchWithin, Deadline and Settle are of the policy that made the
	// record; RedispatchWithin is zero where redispatch is not its rule.
	RedispatchWithin, Deadline, Settle time.Duration
}

// Ruling is the verdict with what follows from it.
type Ruling struct {
	Verdict Verdict
	Opens   Opening
	// Late is set when the retry is counted as having come too late.
	Late Witness
	// Row is the number of the deciding row in [Rows], from 1.
	Row int
}

// bornAfterForgetting: the key is younger than everything forgotten, so that
// absence proves that it was never seen.
func (f *Facts) bornAfterForgetting() bool {
	return !f.Born.IsZero() && f.Born.Add(-ClockTolerance).After(f.Forgotten)
}

func (f *Facts) dated() bool  { return !f.Born.IsZero() }
func (f *Facts) absent() bool { return f.Standing == nil }

func (f *Facts) in(states ...State) bool {
	if f.Standing == nil {
		return false
	}
	for _, s := range states {
		if f.Standing.State == s {
			return true
		}
	}
	return false
}

func (f *Facts) lapsed() bool     { return f.Standing.Lapsed(f.Now) }
func (f *Facts) dispatched() bool { return f.Standing.Dispatched }
func (f *Facts) held() bool       { return len(f.Standing.Holds) > 0 }
func (f *Facts) past() bool       { return f.Standing.PastItsTime(f.Now) }
func (f *Facts) exhausted() bool  { return f.Standing.Attempt >= MaxAttempts }

// unresolved: unknown, or as good as: an abandoned claim that had crossed.
func (f *Facts) unresolved() bool {
	if f.in(Unknown) {
		return !f.Standing.Closed(f.Now)
	}
	return f.in(InProgress) && f.lapsed() && f.dispatched()
}

// settled includes an unknown record whose own time has come, so that the
// answer never depends on when the sweep ran (cases.md C83).
func (f *Facts) settled() bool {
	return f.in(Completed, Tombstone, Announced) || f.in(Unknown) && f.Standing.Closed(f.Now)
}

func (f *Facts) outcomeUnknown() bool {
	return f.in(Unknown) || f.Standing.Outcome.Class == OutcomeUnknown
}

// redispatchOpen is the guard of design.md §3: everything this attempt could
// send falls inside the downstream's window, counted from the first dispatch.
func (f *Facts) redispatchOpen() bool {
	r := f.Standing
	return f.RedispatchWithin > 0 && !r.FirstDispatch.IsZero() &&
		f.Now.Add(f.Deadline+f.Settle).Before(r.FirstDispatch.Add(f.RedispatchWithin))
}

func (f *Facts) late(w Witness) Ruling {
	if f.Late == policy.LateCount {
		return Ruling{Verdict: VerdictProceed, Opens: OpensFirst, Late: w}
	}
	return Ruling{Verdict: VerdictExpired, Late: w}
}

// Row is one line of the decision table: a standing record with its facts, and
// what the same and another request are told.
type Row struct {
	Standing, Facts, Same, Other string

	when func(*Facts) bool
	same func(*Facts) Ruling
	// other is nil where another request is told the same.
	other func(*Facts) Ruling
}

func always(v Verdict) func(*Facts) Ruling {
	return func(*Facts) Ruling { return Ruling{Verdict: v} }
}

func opens(o Opening) func(*Facts) Ruling {
	return func(*Facts) Ruling { return Ruling{Verdict: VerdictProceed, Opens: o} }
}

var mismatch = always(VerdictMismatch)

// rows is the table of design.md §3; the first row that matches decides. It
// was checked by an explicit-state model: change it only beside one.
var rows = []Row{
	{
		"any", "record version, its policy or a key cannot be read", "503", "503",
		func(f *Facts) bool { return f.Unreadable },
		always(VerdictUnavailable), nil,
	},
	{
		"absent", "store untrusted, unless b − ε > F", "503", "",
		func(f *Facts) bool { return f.absent() && !f.Trusted && !f.bornAfterForgetting() },
		always(VerdictUnavailable), nil,
	},
	{
		"absent, dated", "b > now + ε", "400 key-invalid", "",
		func(f *Facts) bool { return f.absent() && f.dated() && f.Born.After(f.Now.Add(ClockTolerance)) },
		always(VerdictKeyInvalid), nil,
	},
	{
		"absent, dated", "b − ε > F", "proceed", "",
		func(f *Facts) bool { return f.absent() && f.bornAfterForgetting() },
		opens(OpensFirst), nil,
	},
	{
		"absent, dated", "b − ε ≤ F, ghosts without gap since b − ε, no hit", "proceed, counted", "",
		func(f *Facts) bool { return f.absent() && f.dated() && f.Ghosts == GhostsClear },
		func(f *Facts) Ruling { return Ruling{Verdict: VerdictProceed, Opens: OpensFirst, Late: f.BornBy} }, nil,
	},
	{
		"absent, dated", "b − ε ≤ F, hit or gap", "late: 410, or counted and proceed", "",
		func(f *Facts) bool { return f.absent() && f.dated() },
		func(f *Facts) Ruling {
			if f.Ghosts == GhostsHit {
				return f.late(WitnessGhost)
			}
			return f.late(f.BornBy)
		}, nil,
	},
	{
		"absent, undated", "no ghost hit, filters fresh", "proceed", "",
		func(f *Facts) bool { return f.absent() && (f.Ghosts == GhostsOff || f.Ghosts == GhostsClear) },
		opens(OpensFirst), nil,
	},
	{
		"absent, undated", "ghost hit", "late: 410, or counted and proceed", "",
		func(f *Facts) bool { return f.absent() && f.Ghosts == GhostsHit },
		func(f *Facts) Ruling { return f.late(WitnessGhost) }, nil,
	},
	{
		"absent, undated", "filters stale", "503", "",
		func(f *Facts) bool { return f.absent() },
		always(VerdictUnavailable), nil,
	},
	{
		"in_progress", "lease live", "wait, then 409 in-progress", "422",
		func(f *Facts) bool { return f.in(InProgress) && !f.lapsed() },
		always(VerdictInProgress), mismatch,
	},
	{
		"in_progress", "lapsed, not dispatched", "proceed n+1 (untrusted: 503)", "422, no write",
		func(f *Facts) bool { return f.in(InProgress) && !f.dispatched() },
		func(f *Facts) Ruling {
			if !f.Trusted || f.held() || f.exhausted() {
				return Ruling{Verdict: VerdictUnavailable}
			}
			return Ruling{Verdict: VerdictProceed, Opens: OpensNext}
		}, mismatch,
	},
	{
		"unknown, or in_progress lapsed and dispatched", "redispatch inside its window, store trusted", "proceed n+1, same identity", "422, no write",
		func(f *Facts) bool {
			return f.unresolved() && f.Trusted && !f.held() && !f.exhausted() && f.redispatchOpen()
		},
		opens(OpensRedispatch), mismatch,
	},
	{
		"unknown, or in_progress lapsed and dispatched", "otherwise", "503 outcome-unknown", "422, no write",
		func(f *Facts) bool { return f.unresolved() },
		always(VerdictUnknown), mismatch,
	},
	{
		"failed", "trusted, not held", "proceed n+1", "422",
		func(f *Facts) bool { return f.in(Failed) && f.Trusted && !f.held() && !f.exhausted() },
		opens(OpensNext), mismatch,
	},
	{
		"failed", "untrusted or held", "503", "422",
		func(f *Facts) bool { return f.in(Failed) },
		always(VerdictUnavailable), mismatch,
	},
	{
		"erased", "not past its time", "already processed, class and status only", "the same",
		func(f *Facts) bool { return f.settled() && f.Standing.Erased && !f.past() },
		always(VerdictAlreadyProcessed), nil,
	},
	{
		"completed", "before replay ends, body kept and readable", "replay", "422",
		func(f *Facts) bool {
			return f.in(Completed) && !f.past() && f.Now.Before(f.Standing.ReplayUntil) && f.ResponseReadable
		},
		always(VerdictReplay), mismatch,
	},
	{
		"tombstone with outcome unknown", "not past its time", "503 outcome-unknown, no Retry-After", "422",
		func(f *Facts) bool { return f.settled() && !f.past() && f.outcomeUnknown() },
		always(VerdictUnknown), mismatch,
	},
	{
		"completed after replay, tombstone, announced", "not past its time", "already processed", "422",
		func(f *Facts) bool { return f.settled() && !f.past() },
		always(VerdictAlreadyProcessed), mismatch,
	},
	{
		"the same", "past its time, `late: refuse`", "410 with outcome and resource", "422",
		func(f *Facts) bool { return f.settled() && f.Late != policy.LateCount },
		func(*Facts) Ruling { return Ruling{Verdict: VerdictExpired, Late: WitnessRecord} }, mismatch,
	},
	{
		"the same", "past its time, `late: count`", "proceed as a new record, the old one kept as evidence (untrusted: 503)", "422",
		func(f *Facts) bool { return f.settled() },
		func(f *Facts) Ruling {
			if !f.Trusted {
				return Ruling{Verdict: VerdictUnavailable}
			}
			return Ruling{Verdict: VerdictProceed, Opens: OpensAnew, Late: WitnessRecord}
		}, mismatch,
	},
}

// Rows is the decision table as docs/states.md shows it.
func Rows() []Row { return append([]Row(nil), rows...) }

// Decide is the decision table: a pure function of the facts.
func Decide(f *Facts) Ruling {
	for i := range rows {
		row := &rows[i]
		if !row.when(f) {
			continue
		}
		rule := row.same
		if f.Standing != nil && !f.Same && row.other != nil {
			rule = row.other
		}
		out := rule(f)
		out.Row = i + 1
		return out
	}
	// A state no row knows, from a newer version: never taken for absent.
	return Ruling{Verdict: VerdictUnavailable}
}
