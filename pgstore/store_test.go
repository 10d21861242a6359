package pgstore_test

import (
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/migrate"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
	"github.com/counterfoil/counterfoil/storetest"
)

// suite opens fresh databases of the shared server with these options.
func suite(o pgstore.Options) storetest.Options { return suiteOf(o, 0) }

func suiteOf(o pgstore.Options, partitions int) storetest.Options {
	return storetest.Options{
		Open: func(t testing.TB, clock *storetest.Clock) counterfoil.Store {
			url := databaseWith(t, migrate.Options{Schema: o.Schema, Partitions: partitions})
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

// TestPartitioned runs it with the records in hash partitions, in a schema whose
// name needs quotes.
func TestPartitioned(t *testing.T) {
	o := lossy
	o.Schema = "Pay-Ments"
	s := suiteOf(o, 4)
	s.Brief = true
	storetest.Run(t, s)
}

// TestPgBouncer runs it through PgBouncer in transaction mode (G09), with fewer
// connections to the server than the store has.
func TestPgBouncer(t *testing.T) {
	bouncer := pgtest.PgBouncer(t, pgtest.Shared(t), pgtest.BouncerOptions{PoolSize: 3})
	s := suite(lossy)
	s.Brief = true
	s.Open = func(t testing.TB, clock *storetest.Clock) counterfoil.Store {
		url := database(t)
		return newTimed(t, url, open(t, bouncer.Through(url), lossy), clock)
	}
	s.Reopen = func(t testing.TB, old counterfoil.Store, clock *storetest.Clock) counterfoil.Store {
		o := old.(*timed)
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		return newTimed(t, o.url, open(t, bouncer.Through(o.url), lossy), clock)
	}
	storetest.Run(t, s)
}

// TestOneConnection runs it with a pool of one.
func TestOneConnection(t *testing.T) {
	s := suite(lossy)
	s.Brief = true
	s.Open = func(t testing.TB, clock *storetest.Clock) counterfoil.Store {
		url := database(t)
		return newTimed(t, url, open(t, with(t, url, "pool_max_conns=1"), lossy), clock)
	}
	s.Reopen = nil
	storetest.Run(t, s)
}

func TestCompare(t *testing.T) {
	o := suite(lossy)
	plain := o.Open
	o.Open = func(t testing.TB, clock *storetest.Clock) counterfoil.Store {
		s := plain(t, clock)
		s.(*timed).steady = true
		return s
	}
	for seed := range uint64(2) {
		storetest.Compare(t, o, seed, 1000)
	}
}
