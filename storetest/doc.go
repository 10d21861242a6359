// Package storetest is the contract of [counterfoil.Store] as tests. Whoever
// writes a store runs it:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Options{Open: open, Reopen: reopen})
//	}
//
// [Run] goes through the promises one by one, [Compare] looks with random
// operations for what nobody thought of, [Bench] measures.
//
// Instants in the past are made with negative durations where that serves, so
// that most tests also run over a store whose clock nobody can set.
package storetest
