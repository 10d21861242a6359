package storetest

import (
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

// Run proves that a store keeps the contract of [counterfoil.Store]. Every
// promise (design.md §8) and case (cases.md) it touches is a subtest of that
// name.
func Run(t *testing.T, o Options) {}

// Compare runs a number of random operations against the store and against
// memstore, and fails at the first difference. The same seed gives the same
// operations; a failure prints it.
func Compare(t *testing.T, o Options, seed uint64, ops int) {}

// Bench measures pairs, a claim of a new key and its completion with a
// response of 1 KiB, at 1, 16 and 256 callers, on the wall clock.
func Bench(b *testing.B, o Options) {}
