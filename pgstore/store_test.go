package pgstore_test

import (
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
	"github.com/counterfoil/counterfoil/storetest"
)

// suite opens fresh databases of the shared server with these options.
func suite(o pgstore.Options) storetest.Options {
	return storetest.Options{
		Open: func(t testing.TB, clock *storetest.Clock) counterfoil.Store {
			url := database(t)
			s := open(t, url, o)
			if clock == nil {
				return s
			}
			return newTimed(t, url, s, clock)
		},
		Reopen: func(t testing.TB, s counterfoil.Store, clock *storetest.Clock) counterfoil.Store {
			old := s.(*timed)
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			next := newTimed(t, old.url, open(t, old.url, o), clock)
			next.steady, next.last = old.steady, old.last
			return next
		},
		FollowsClock: true,
		Spoil: func(t testing.TB, s counterfoil.Store, id counterfoil.ID) {
			pgtest.Exec(t, s.(*timed).url, "UPDATE counterfoil_records SET body = set_byte(body, 0, 200) WHERE id = $1", id[:])
		},
	}
}

// TestStore is the conformance suite, as services run the store: batched.
func TestStore(t *testing.T) { storetest.Run(t, suite(lossy)) }

func TestCompare(t *testing.T) {
	o := suite(lossy)
	plain := o.Open
	o.Open = func(t testing.TB, clock *storetest.Clock) counterfoil.Store {
		s := plain(t, clock)
		s.(*timed).steady = true
		return s
	}
	for seed := range uint64(4) {
		storetest.Compare(t, o, seed, 1000)
	}
}
