package pebblestore_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pebblestore"
	"github.com/counterfoil/counterfoil/storetest"
)

// open opens a store and closes it when the test ends.
func open(t testing.TB, dir string, o pebblestore.Options) *pebblestore.Store {
	t.Helper()
	s, err := pebblestore.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// suite is the store on the real disk, as the conformance suite wants it.
func suite() storetest.Options {
	return storetest.Options{
		Open: func(t testing.TB, clock *storetest.Clock) counterfoil.Store {
			return open(t, t.TempDir(), options(clock))
		},
		Reopen: func(t testing.TB, s counterfoil.Store, clock *storetest.Clock) counterfoil.Store {
			dir := pebblestore.Dir(s.(*pebblestore.Store))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, dir, options(clock))
		},
		Spoil: func(t testing.TB, s counterfoil.Store, id counterfoil.ID) {
			if err := pebblestore.Spoil(s.(*pebblestore.Store), id); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func options(clock *storetest.Clock) pebblestore.Options {
	o := pebblestore.Options{SegmentSize: 1 << 20}.SmallMemTables()
	if clock != nil {
		o.Clock = clock.Now
	}
	return o
}

// crashSuite is the store in memory; to reopen it is to lose what was not
// synced.
func crashSuite() storetest.Options {
	disks := make(map[counterfoil.Store]*vfs.MemFS)
	o := suite()
	start := func(t testing.TB, clock *storetest.Clock, fs *vfs.MemFS) counterfoil.Store {
		opts := options(clock)
		opts.FS = fs
		s := open(t, "/store", opts)
		disks[s] = fs
		return s
	}
	o.Open = func(t testing.TB, clock *storetest.Clock) counterfoil.Store {
		return start(t, clock, vfs.NewCrashableMem())
	}
	o.Reopen = func(t testing.TB, s counterfoil.Store, clock *storetest.Clock) counterfoil.Store {
		return start(t, clock, disks[s].CrashClone(vfs.CrashCloneCfg{}))
	}
	return o
}

func TestContract(t *testing.T)           { storetest.Run(t, suite()) }
func TestContractAfterCrash(t *testing.T) { storetest.Run(t, crashSuite()) }

func TestComparedWithModel(t *testing.T) {
	for seed := range uint64(4) {
		storetest.Compare(t, crashSuite(), seed, 2000)
	}
}

// TestE14DoctorAgrees: doctor finds nothing open to others in a fresh store.
func TestE14DoctorAgrees(t *testing.T) {
	s := open(t, t.TempDir(), pebblestore.Options{})
	for _, f := range s.Doctor(t.Context()) {
		if f.Code == "E14" && f.Severity != pebblestore.OK {
			t.Errorf("doctor: %+v", f)
		}
	}
}
