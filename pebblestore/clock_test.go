package pebblestore_test

import (
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/pebblestore"
)

// TestE11ClockDoesNotRunAhead: a store that took long to open gives the wall
// clock's time, not that plus what opening took.
func TestE11ClockDoesNotRunAhead(t *testing.T) {
	for range 3 {
		s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		before := time.Now()
		stats, err := s.Stats(t.Context())
		after := time.Now()
		if err != nil {
			t.Fatal(err)
		}
		// A machine may slew its clock by a little between two readings.
		const slew = 2 * time.Millisecond
		if stats.AsOf.Before(before.Add(-slew)) || stats.AsOf.After(after.Add(slew)) {
			t.Errorf("the store has %s, the wall clock between %s and %s", stats.AsOf, before.UTC(), after.UTC())
		}
	}
}
