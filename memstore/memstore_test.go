package memstore_test

import (
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/storetest"
)

var options = storetest.Options{
	Open: func(t testing.TB, clock *storetest.Clock) counterfoil.Store {
		return memstore.New(memstore.Options{Clock: clock.Now})
	},
}

func TestStore(t *testing.T) { storetest.Run(t, options) }

// TestWallClock runs the suite as over a database whose clock is its own.
func TestWallClock(t *testing.T) {
	storetest.Run(t, storetest.Options{
		Open:     func(testing.TB, *storetest.Clock) counterfoil.Store { return memstore.New(memstore.Options{}) },
		OwnClock: true,
	})
}

// TestCompare compares memstore with itself: it proves nothing about memstore,
// and all about the model, which must not see a difference where there is none.
func TestCompare(t *testing.T) {
	for seed := range uint64(20) {
		storetest.Compare(t, options, seed, 2000)
	}
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, options) }
