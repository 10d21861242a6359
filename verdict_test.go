package counterfoil_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// facts returns a base of facts at noon, changed by f.
func facts(f func(*counterfoil.Facts)) *counterfoil.Facts {
	out := &counterfoil.Facts{
		Now: noon, Same: true, Trusted: true, Late: policy.LateRefuse,
		Deadline: time.Minute, Settle: 30 * time.Second,
	}
	f(out)
	return out
}

// standing returns facts with a record in state s, changed by f.
func standing(s counterfoil.State, f func(*counterfoil.Facts, *counterfoil.Record)) *counterfoil.Facts {
	return facts(func(out *counterfoil.Facts) {
		r := &counterfoil.Record{
			State: s, Attempt: 1, Dispatched: true, Token: counterfoil.Token{1},
			CreatedAt: noon.Add(-time.Hour), FirstDispatch: noon.Add(-time.Hour), LastDispatch: noon.Add(-time.Hour),
			LeaseUntil: noon.Add(time.Second), QuietAt: noon.Add(time.Minute),
		}
		switch s {
		case counterfoil.Completed, counterfoil.Tombstone, counterfoil.Announced:
			r.Outcome = counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201}
			r.Horizon = noon.Add(time.Hour)
		case counterfoil.Failed:
			r.Horizon = noon.Add(time.Hour)
		}
		out.Standing = r
		f(out, r)
	})
}

func dated(age time.Duration, forgotten time.Duration) func(*counterfoil.Facts) {
	return func(f *counterfoil.Facts) {
		f.Born, f.BornBy = noon.Add(-age), counterfoil.WitnessKeyTime
		f.Forgotten = noon.Add(-forgotten)
	}
}

type verdictCase struct {
	name  string
	facts *counterfoil.Facts
	row   int
	same  counterfoil.Verdict
	other counterfoil.Verdict // what another request is told; absent rows: the same
	opens counterfoil.Opening
	late  counterfoil.Witness
}

const (
	unavailable = counterfoil.VerdictUnavailable
	proceed     = counterfoil.VerdictProceed
	replay      = counterfoil.VerdictReplay
	already     = counterfoil.VerdictAlreadyProcessed
	inProgress  = counterfoil.VerdictInProgress
	unknown     = counterfoil.VerdictUnknown
	mismatch    = counterfoil.VerdictMismatch
	expired     = counterfoil.VerdictExpired
	keyInvalid  = counterfoil.VerdictKeyInvalid
)

func verdictCases() []verdictCase {
	type F = counterfoil.Facts
	type R = counterfoil.Record
	with := func(g func(*F), more func(*F)) *F { return facts(func(f *F) { g(f); more(f) }) }
	return []verdictCase{
		{"unreadable record", standing(counterfoil.Completed, func(f *F, r *R) { f.Unreadable = true }), 1, unavailable, unavailable, 0, ""},
		{"absent, untrusted, undated", facts(func(f *F) { f.Trusted = false }), 2, unavailable, unavailable, 0, ""},
		{"absent, untrusted, born before F", with(dated(time.Hour, time.Minute), func(f *F) { f.Trusted = false }), 2, unavailable, unavailable, 0, ""},
		{"absent, untrusted, born within the tolerance of F", with(dated(0, 5*time.Minute), func(f *F) { f.Trusted = false }), 2, unavailable, unavailable, 0, ""},
		{"absent, untrusted, born after F", with(dated(0, time.Hour), func(f *F) { f.Trusted = false }), 4, proceed, proceed, counterfoil.OpensFirst, ""},
		{"absent, born beyond the tolerance ahead", facts(dated(-6*time.Minute, time.Hour)), 3, keyInvalid, keyInvalid, 0, ""},
		{"absent, born within the tolerance ahead", facts(dated(-5*time.Minute, time.Hour)), 4, proceed, proceed, counterfoil.OpensFirst, ""},
		{"absent, born after F", facts(dated(time.Minute, time.Hour)), 4, proceed, proceed, counterfoil.OpensFirst, ""},
		{"absent, born before F, ghosts clear", with(dated(time.Hour, time.Minute), func(f *F) { f.Ghosts = counterfoil.GhostsClear }), 5, proceed, proceed, counterfoil.OpensFirst, counterfoil.WitnessKeyTime},
		{"absent, born before F, no ghosts kept", facts(dated(time.Hour, time.Minute)), 6, expired, expired, 0, counterfoil.WitnessKeyTime},
		{"absent, born before F, ghost gap", with(dated(time.Hour, time.Minute), func(f *F) { f.Ghosts = counterfoil.GhostsGap }), 6, expired, expired, 0, counterfoil.WitnessKeyTime},
		{"absent, born before F, ghost hit", with(dated(time.Hour, time.Minute), func(f *F) { f.Ghosts = counterfoil.GhostsHit }), 6, expired, expired, 0, counterfoil.WitnessGhost},
		{"absent, born before F, late: count", with(dated(time.Hour, time.Minute), func(f *F) { f.Late = policy.LateCount }), 6, proceed, proceed, counterfoil.OpensFirst, counterfoil.WitnessKeyTime},
		{"absent, undated", facts(func(f *F) {}), 7, proceed, proceed, counterfoil.OpensFirst, ""},
		{"absent, undated, ghosts clear", facts(func(f *F) { f.Ghosts = counterfoil.GhostsClear }), 7, proceed, proceed, counterfoil.OpensFirst, ""},
		{"absent, undated, ghost hit", facts(func(f *F) { f.Ghosts = counterfoil.GhostsHit }), 8, expired, expired, 0, counterfoil.WitnessGhost},
		{"absent, undated, ghost hit, late: count", facts(func(f *F) { f.Ghosts, f.Late = counterfoil.GhostsHit, policy.LateCount }), 8, proceed, proceed, counterfoil.OpensFirst, counterfoil.WitnessGhost},
		{"absent, undated, ghosts stale", facts(func(f *F) { f.Ghosts = counterfoil.GhostsStale }), 9, unavailable, unavailable, 0, ""},
		{"in progress, alive", standing(counterfoil.InProgress, func(f *F, r *R) {}), 10, inProgress, mismatch, 0, ""},
		{"in progress, lease equal to now is alive", standing(counterfoil.InProgress, func(f *F, r *R) { r.LeaseUntil = noon }), 10, inProgress, mismatch, 0, ""},
		{"in progress, lapsed, not dispatched", standing(counterfoil.InProgress, func(f *F, r *R) { r.LeaseUntil, r.Dispatched = noon.Add(-1), false }), 11, proceed, mismatch, counterfoil.OpensNext, ""},
		{"in progress, lapsed, not dispatched, untrusted", standing(counterfoil.InProgress, func(f *F, r *R) { r.LeaseUntil, r.Dispatched, f.Trusted = noon.Add(-1), false, false }), 11, unavailable, mismatch, 0, ""},
		{"in progress, lapsed, dispatched", standing(counterfoil.InProgress, func(f *F, r *R) { r.LeaseUntil = noon.Add(-1) }), 13, unknown, mismatch, 0, ""},
		{"in progress, lapsed, dispatched, redispatch open", standing(counterfoil.InProgress, func(f *F, r *R) { r.LeaseUntil, f.RedispatchWithin = noon.Add(-1), 2*time.Hour }), 12, proceed, mismatch, counterfoil.OpensRedispatch, ""},
		{"unknown, redispatch open", standing(counterfoil.Unknown, func(f *F, r *R) { f.RedispatchWithin = time.Hour + 90*time.Second + 1 }), 12, proceed, mismatch, counterfoil.OpensRedispatch, ""},
		{"unknown, redispatch would end at the window's edge", standing(counterfoil.Unknown, func(f *F, r *R) { f.RedispatchWithin = time.Hour + 90*time.Second }), 13, unknown, mismatch, 0, ""},
		{"unknown, redispatch open, untrusted", standing(counterfoil.Unknown, func(f *F, r *R) { f.RedispatchWithin, f.Trusted = 2*time.Hour, false }), 13, unknown, mismatch, 0, ""},
		{"unknown", standing(counterfoil.Unknown, func(f *F, r *R) {}), 13, unknown, mismatch, 0, ""},
		{"unknown, quiet long since", standing(counterfoil.Unknown, func(f *F, r *R) { r.QuietAt = noon.Add(-24 * time.Hour) }), 13, unknown, mismatch, 0, ""},
		{"unknown, attempts used up", standing(counterfoil.Unknown, func(f *F, r *R) { f.RedispatchWithin, r.Attempt = 2*time.Hour, counterfoil.MaxAttempts }), 13, unknown, mismatch, 0, ""},
		{"failed", standing(counterfoil.Failed, func(f *F, r *R) {}), 14, proceed, mismatch, counterfoil.OpensNext, ""},
		{"failed, untrusted", standing(counterfoil.Failed, func(f *F, r *R) { f.Trusted = false }), 15, unavailable, mismatch, 0, ""},
		{"failed, held", standing(counterfoil.Failed, func(f *F, r *R) { r.Holds = []counterfoil.Hold{{Actor: "ann"}} }), 15, unavailable, mismatch, 0, ""},
		{"failed, attempts used up", standing(counterfoil.Failed, func(f *F, r *R) { r.Attempt = counterfoil.MaxAttempts }), 15, unavailable, mismatch, 0, ""},
		{"erased", standing(counterfoil.Tombstone, func(f *F, r *R) { r.Erased = true }), 16, already, already, 0, ""},
		{"completed, response kept", standing(counterfoil.Completed, func(f *F, r *R) { r.ReplayUntil, f.ResponseReadable = noon.Add(1), true }), 17, replay, mismatch, 0, ""},
		{"completed, untrusted store still replays", standing(counterfoil.Completed, func(f *F, r *R) { r.ReplayUntil, f.ResponseReadable, f.Trusted = noon.Add(1), true, false }), 17, replay, mismatch, 0, ""},
		{"tombstone, outcome unknown", standing(counterfoil.Tombstone, func(f *F, r *R) { r.Outcome = counterfoil.Outcome{} }), 18, unknown, mismatch, 0, ""},
		{"unknown, closed but a gate is open", standing(counterfoil.Unknown, func(f *F, r *R) {
			r.Horizon, r.Gates = noon, []counterfoil.Gate{{Name: "g", Until: noon.Add(1)}}
		}), 18, unknown, mismatch, 0, ""},
		{"completed, replay over", standing(counterfoil.Completed, func(f *F, r *R) { r.ReplayUntil, f.ResponseReadable = noon, true }), 19, already, mismatch, 0, ""},
		{"completed, response lost", standing(counterfoil.Completed, func(f *F, r *R) { r.ReplayUntil = noon.Add(time.Minute) }), 19, already, mismatch, 0, ""},
		{"tombstone", standing(counterfoil.Tombstone, func(f *F, r *R) {}), 19, already, mismatch, 0, ""},
		{"announced, lengthened", standing(counterfoil.Announced, func(f *F, r *R) {}), 19, already, mismatch, 0, ""},
		{"tombstone past its horizon, gate open", standing(counterfoil.Tombstone, func(f *F, r *R) {
			r.Horizon, r.Gates = noon, []counterfoil.Gate{{Name: "g", Until: noon.Add(1)}}
		}), 19, already, mismatch, 0, ""},
		{"tombstone past its horizon, held", standing(counterfoil.Tombstone, func(f *F, r *R) {
			r.Horizon, r.Holds = noon, []counterfoil.Hold{{Actor: "ann"}}
		}), 19, already, mismatch, 0, ""},
		{"completed past its time, unswept", standing(counterfoil.Completed, func(f *F, r *R) { r.Horizon, r.ReplayUntil, f.ResponseReadable = noon, noon.Add(1), true }), 20, expired, mismatch, 0, counterfoil.WitnessRecord},
		{"tombstone past its time", standing(counterfoil.Tombstone, func(f *F, r *R) { r.Horizon = noon }), 20, expired, mismatch, 0, counterfoil.WitnessRecord},
		{"announced", standing(counterfoil.Announced, func(f *F, r *R) { r.Horizon = noon.Add(-time.Hour) }), 20, expired, mismatch, 0, counterfoil.WitnessRecord},
		{"unknown past its time, unswept", standing(counterfoil.Unknown, func(f *F, r *R) { r.Horizon = noon }), 20, expired, mismatch, 0, counterfoil.WitnessRecord},
		{"tombstone past its time, late: count", standing(counterfoil.Tombstone, func(f *F, r *R) { r.Horizon, f.Late = noon, policy.LateCount }), 21, proceed, mismatch, counterfoil.OpensAnew, counterfoil.WitnessRecord},
		{"tombstone past its time, late: count, untrusted", standing(counterfoil.Tombstone, func(f *F, r *R) { r.Horizon, f.Late, f.Trusted = noon, policy.LateCount, false }), 21, unavailable, mismatch, 0, ""},
	}
}

// TestVerdictRowByRow holds every row of design.md §3 against its right value,
// and every row is reached.
func TestVerdictRowByRow(t *testing.T) {
	reached := map[int]bool{}
	for _, c := range verdictCases() {
		t.Run(c.name, func(t *testing.T) {
			got := counterfoil.Decide(c.facts)
			want := counterfoil.Ruling{Verdict: c.same, Opens: c.opens, Late: c.late, Row: c.row}
			if got != want {
				t.Errorf("same request: got %+v, want %+v", got, want)
			}
			other := *c.facts
			other.Same = false
			if got := counterfoil.Decide(&other); got.Verdict != c.other {
				t.Errorf("other request: got %s (row %d), want %s", got.Verdict, got.Row, c.other)
			} else if c.facts.Standing != nil && got.Opens != counterfoil.OpensNothing {
				t.Errorf("other request: opens %d; it must change nothing", got.Opens)
			}
		})
		reached[c.row] = true
	}
	for i, r := range counterfoil.Rows() {
		if !reached[i+1] {
			t.Errorf("row %d (%s; %s) is reached by no case", i+1, r.Standing, r.Facts)
		}
	}
}

// TestVerdictInvariants goes through every combination of facts, some of which
// no store would show, and holds the promises against each.
func TestVerdictInvariants(t *testing.T) {
	bools := []bool{false, true}
	n := 0
	for state := counterfoil.Absent; state <= counterfoil.Announced+1; state++ {
		for mask := range 1 << 11 {
			bit := func(i int) bool { return mask>>i&1 == 1 }
			for _, same := range bools {
				for ghosts := counterfoil.GhostsOff; ghosts <= counterfoil.GhostsStale; ghosts++ {
					f := facts(func(f *counterfoil.Facts) {
						f.Same, f.Trusted, f.Ghosts = same, bit(0), ghosts
						if bit(1) {
							dated(time.Hour, time.Minute)(f)
							if bit(2) {
								dated(time.Minute, time.Hour)(f)
							}
						}
						if bit(3) {
							f.Late = policy.LateCount
						}
						f.ResponseReadable = bit(4)
						if bit(5) {
							f.RedispatchWithin = 3 * time.Hour
						}
						if state == counterfoil.Absent {
							return
						}
						r := standing(state, func(*counterfoil.Facts, *counterfoil.Record) {}).Standing
						f.Standing = r
						r.Dispatched = bit(6)
						if bit(7) {
							r.LeaseUntil = noon.Add(-time.Second)
						}
						if bit(8) {
							r.Horizon = noon.Add(-time.Second)
						}
						if bit(9) {
							r.Holds = []counterfoil.Hold{{Actor: "ann"}}
						}
						if bit(10) {
							r.Outcome.Class = counterfoil.OutcomeUnknown
						}
						r.ReplayUntil = noon.Add(time.Minute)
					})
					n++
					checkInvariants(t, f)
				}
			}
		}
	}
	if n < 100_000 {
		t.Fatalf("only %d combinations", n)
	}
}

func checkInvariants(t *testing.T, f *counterfoil.Facts) {
	t.Helper()
	got := counterfoil.Decide(f)
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s: facts %+v, standing %+v, ruling %+v", fmt.Sprintf(format, args...), *f, f.Standing, got)
	}
	r := f.Standing
	goes := got.Verdict == proceed
	if goes != (got.Opens != counterfoil.OpensNothing) {
		fail("proceed and opening differ")
	}
	bornLater := !f.Born.IsZero() && f.Born.Add(-counterfoil.ClockTolerance).After(f.Forgotten)
	if goes && !f.Trusted && (r != nil || !bornLater) {
		fail("P14: proceeds in an untrusted store")
	}
	if r == nil {
		if got.Verdict == replay || got.Verdict == mismatch || got.Verdict == already || got.Verdict == unknown {
			fail("an absent record cannot be %s", got.Verdict)
		}
		return
	}
	if goes && !f.Same {
		fail("P6: another request proceeds")
	}
	if got.Verdict == replay && (!f.Same || r.State != counterfoil.Completed) {
		fail("P9: replays what it should not")
	}
	if !goes {
		return
	}
	switch r.State {
	case counterfoil.InProgress:
		if !r.Lapsed(f.Now) {
			fail("P1: proceeds beside a live claim")
		}
		if r.Dispatched && got.Opens != counterfoil.OpensRedispatch {
			fail("P4: a lapsed claim runs again because time passed")
		}
	case counterfoil.Unknown:
		if got.Opens != counterfoil.OpensRedispatch && !r.PastItsTime(f.Now) {
			fail("P4: an unknown outcome runs again")
		}
	case counterfoil.Completed, counterfoil.Tombstone, counterfoil.Announced:
		if !r.PastItsTime(f.Now) || f.Late != policy.LateCount {
			fail("P10: runs again inside its protection")
		}
	}
	if len(r.Holds) > 0 {
		fail("a held record runs again")
	}
}

// TestStatesPage keeps docs/states.md and the table equal. Write the page anew
// with COUNTERFOIL_UPDATE=1 go test -run TestStatesPage .
func TestStatesPage(t *testing.T) {
	const file, begin, end = "docs/states.md", "<!-- verdicts: begin -->\n", "<!-- verdicts: end -->\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(page), begin)
	got, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no verdict table between %q and %q", file, begin, end)
	}
	var b strings.Builder
	b.WriteString("| # | standing | facts | same request | other request |\n| --- | --- | --- | --- | --- |\n")
	for i, r := range counterfoil.Rows() {
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s |\n", i+1, r.Standing, r.Facts, r.Same, r.Other)
	}
	if os.Getenv("COUNTERFOIL_UPDATE") != "" {
		if err := os.WriteFile(file, []byte(head+begin+b.String()+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != b.String() {
		t.Errorf("%s does not show the table that verdict.go decides by; run COUNTERFOIL_UPDATE=1 go test -run TestStatesPage .", file)
	}
}
