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
	// time are skipped, and say so.
	OwnClock bool

	// Spoil changes the stored record of id, behind the store's back, into one
	// of a version that it cannot read. Nil when that cannot be arranged.
	Spoil func(t testing.TB, s counterfoil.Store, id counterfoil.ID)
}

// test is one subtest of the suite.
type test struct {
	name string
	run  func(f *fixture)
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
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, o)
			tt.run(f)
			f.invariants()
		})
	}
}
