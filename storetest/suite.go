package storetest

import (
	"slices"
	"testing"

	"github.com/counterfoil/counterfoil"
)

// Options say how to open the store under test and what it can do. The suite
// asks for capabilities, never for a store's name.
type Options struct {
	// Open returns an empty store that takes its time from the clock (a nil
	// clock is the wall clock: pass clock.Now on as it is). The suite closes the
	// store; what else Open sets up it takes down with t.Cleanup. Required.
	Open func(t testing.TB, clock *Clock) counterfoil.Store

	// Reopen ends the store, as roughly as it likes (Close, a crash, a kill),
	// and opens what it left behind. Everything that was acknowledged must be
	// there again. Nil when nothing outlives the store.
	Reopen func(t testing.TB, s counterfoil.Store, clock *Clock) counterfoil.Store

	// OwnClock declares that the store's clock is its own and runs by itself,
	// as a database server's does; Clock is ignored. Tests that need to set the
	// time do not apply then.
	OwnClock bool

	// FollowsClock declares that the store's time goes back when its clock is set
	// back, as a database server's does. What that costs is said in the store's
	// own documentation.
	FollowsClock bool

	// Brief runs a tenth of the rounds of each race, as -short does: for a second
	// and third way to the same store.
	Brief bool

	// SharedQuota declares that callers at once may pass a principal's bound by as
	// many as they are.
	SharedQuota bool

	// Spoil changes the stored record of id, behind the store's back, into one
	// of a version that it cannot read. Nil when that cannot be arranged.
	Spoil func(t testing.TB, s counterfoil.Store, id counterfoil.ID)
}

// test is one subtest of the suite.
type test struct {
	name string
	run  func(f *fixture)
}

// need is something that a test asks of a store beyond the contract.
type need string

const (
	needClock  need = "its clock cannot be set"
	needReopen need = "nothing outlives it"
	needSpoil  need = "its records cannot be spoilt"
	needSteady need = "its time follows its clock back"
	needQuota  need = "callers at once may pass the bound"
)

// needs lists the tests that do not apply to every store. A test that asks for
// more than stands here fails: nothing is left out silently.
var needs = map[string][]need{
	"C74 equality is alive": {needClock},
	"C74 an unknown record closes when its time has come and not before": {needClock},
	"C86 the horizon counts from completion":                             {needClock},
	"P10 the store's time does not go back":                              {needClock, needSteady},
	"a record is announced, answers for the grace, and goes":             {needClock},
	"sweep judges to the millisecond":                                    {needClock},

	"P2 P3 what was acknowledged is there after the store was opened again": {needReopen},
	"P2 no claim of many callers is lost":                                   {needReopen},
	"P10 time does not go back over opening again":                          {needClock, needReopen, needSteady},
	"deletions stay done, and quotas stay counted, over opening again":      {needReopen},

	"an unreadable record is never absent": {needSpoil},

	"P13 callers at once do not pass the bound": {needQuota},
}

// lacks is the first need that a store with these options does not meet, or "".
func (o *Options) lacks(name string) need {
	for _, n := range needs[name] {
		if n == needClock && o.OwnClock || n == needReopen && o.Reopen == nil || n == needSpoil && o.Spoil == nil || n == needSteady && o.FollowsClock || n == needQuota && o.SharedQuota {
			return n
		}
	}
	return ""
}

// Run proves that a store keeps the contract of [counterfoil.Store]. Every
// promise (design.md §8) and case (cases.md) it touches is a subtest of that
// name. Each opens a store of its own; after each, what the store says of
// itself is checked against what it holds. With -short, races run fewer rounds.
func Run(t *testing.T, o Options) {
	for _, tt := range slices.Concat(
		createTests, forgottenTests, quotaTests, updateTests, fenceTests, responseTests,
		overdueTests, scanTests, sweepTests, closingTests, deletionTests,
		metaTests, statsTests, roundTripTests, durableTests, lifecycleTests,
	) {
		if lack := o.lacks(tt.name); lack != "" {
			t.Logf("does not apply to this store, since %s: %s", lack, tt.name)
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, o)
			f.needs = needs[tt.name]
			tt.run(f)
			f.invariants()
		})
	}
}
