package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pebblestore"
	"github.com/counterfoil/counterfoil/storetest"
	"go.uber.org/goleak"
)

// failAt fails the n-th write or sync, and all after it when the disk stays
// broken.
type failAt struct {
	n      int64
	stays  bool
	seen   atomic.Int64
	failed atomic.Bool
}

func (f *failAt) String() string { return fmt.Sprintf("the %d-th write fails", f.n) }

func (f *failAt) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpRename, errorfs.OpReuseForWrite:
	default:
		return nil
	}
	if n := f.seen.Add(1); n == f.n || f.stays && n > f.n {
		f.failed.Store(true)
		return errorfs.ErrInjected
	}
	return nil
}

// TestE03EveryWriteFailsOnce: the n-th write, create, rename or sync fails, for
// every n. Whatever was acknowledged before is there after the power fails too,
// and whoever was not answered got an error.
func TestE03EveryWriteFailsOnce(t *testing.T) {
	step, most := int64(1), int64(2000)
	if testing.Short() {
		step = 17
	}
	opened, poisoned := 0, 0
	for n := int64(1); n < most; n += step {
		fs := vfs.NewCrashableMem()
		fault := &failAt{n: n, stays: n%2 == 0}
		clock, w := storetest.NewClock(), newTold()
		var fatal atomic.Bool
		s, err := pebblestore.Open("/store", pebblestore.Options{
			FS: errorfs.Wrap(fs, fault), Clock: clock.Now, SegmentSize: 64 << 10,
			Fatal: func(error) { fatal.Store(true) },
		})
		if err == nil {
			opened++
			load(s, clock, w, uint64(n), 3, 20)
			if fatal.Load() {
				poisoned++
				if _, err := s.Get(context.Background(), counterfoil.ID{}); !errors.Is(err, counterfoil.ErrUnavailable) {
					t.Fatalf("write %d: a broken store answers %v", n, err)
				}
			}
			// A store that is broken gives nothing up, and its Close says so.
			_ = s.Close()
		}
		if !fault.failed.Load() {
			t.Logf("%d faults, %d with the store open, %d broke it", n, opened, poisoned)
			if poisoned == 0 || opened < 20/int(step) {
				t.Fatal("too few faults did anything")
			}
			return
		}
		clone := fs.CrashClone(vfs.CrashCloneCfg{})
		after, err := pebblestore.Open("/store", pebblestore.Options{FS: clone, Clock: clock.Now, SegmentSize: 64 << 10})
		if err != nil {
			t.Fatalf("write %d: %v", n, err)
		}
		if err := errors.Join(w.check(after, clock.Now()), after.Close()); err != nil {
			t.Fatalf("write %d: %v", n, err)
		}
	}
	t.Fatal("the faults never ended")
}

// TestF7LogSyncErrorPoisons: when the log cannot be synced every call fails
// first, then Fatal is called, once.
func TestF7LogSyncErrorPoisons(t *testing.T) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.HasSuffix(op.Path, ".log") && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			return errorfs.ErrInjected
		}
		return nil
	}))
	var s *pebblestore.Store
	var calls atomic.Int64
	ctx := context.Background()
	fatal := func(error) {
		calls.Add(1)
		if _, err := s.Get(ctx, counterfoil.ID{1}); !errors.Is(err, counterfoil.ErrUnavailable) {
			t.Errorf("in Fatal a call answers %v", err)
		}
	}
	var err error
	if s, err = pebblestore.Open("/store", pebblestore.Options{FS: fs, Fatal: fatal}); err != nil {
		t.Fatal(err)
	}
	w, clock := newTold(), storetest.NewClock()
	load(s, clock, w, 1, 2, 4)
	broken.Store(true)
	for i := range 3 {
		if _, err := s.Create(ctx, benchDraft(counterfoil.ID{9, byte(i)})); !errors.Is(err, counterfoil.ErrUnavailable) {
			t.Fatalf("create on a broken log: %v", err)
		}
	}
	broken.Store(false) // never again, though the disk seems well
	for name, err := range map[string]error{
		"Get":  second(s.Get(ctx, counterfoil.ID{1})),
		"Meta": second(s.Meta(ctx, "seq")), "SetMeta": second(s.SetMeta(ctx, "x", 0, nil)),
		"Scan": second(s.Scan(ctx, counterfoil.Query{})), "Stats": second(s.Stats(ctx)), "Sweep": second(s.Sweep(ctx, counterfoil.SweepOrder{})),
		"Overdue": second(s.Overdue(ctx, counterfoil.Page{})), "Response": second(s.Response(ctx, counterfoil.ID{1}, 1)), "Close": s.Close(),
	} {
		if !errors.Is(err, counterfoil.ErrUnavailable) {
			t.Errorf("%s on a broken store: %v", name, err)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("Fatal was called %d times", calls.Load())
	}
}

func second[T any](_ T, err error) error { return err }

// TestE04SpaceFloor: claims are refused first, completions later, and the
// ballast is given up before them.
func TestE04SpaceFloor(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	free := func(mib uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: mib << 20, TotalBytes: 100 << 30}) }
	free(20 << 10)
	s := open(t, "/store", pebblestore.Options{FS: fs})
	create := func(n byte) (counterfoil.Record, error) {
		st, err := s.Create(ctx, benchDraft(counterfoil.ID{n}))
		return st.Record, err
	}
	a, err := create(1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := create(2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Stat("/store/ballast"); err != nil {
		t.Fatal("no ballast")
	}
	free(5<<10 - 1) // just under 5 %
	pebblestore.Look(s)
	if _, err := create(3); !errors.Is(err, counterfoil.ErrUnavailable) || !strings.Contains(err.Error(), "free some space") {
		t.Fatalf("a claim under the floor: %v", err)
	}
	if st, err := s.Create(ctx, benchDraft(counterfoil.ID{1})); err != nil || st.Record.Rev != a.Rev {
		t.Fatalf("a standing record under the floor: %v", err)
	}
	if _, err := s.Update(ctx, completion(a, []byte("x"))); err != nil {
		t.Fatalf("a completion under the floor: %v", err)
	}
	free(63)
	pebblestore.Look(s)
	if _, err := fs.Stat("/store/ballast"); !os.IsNotExist(err) {
		t.Fatalf("the ballast is kept: %v", err)
	}
	if _, err := s.Update(ctx, completion(b, []byte("x"))); !errors.Is(err, counterfoil.ErrUnavailable) {
		t.Fatalf("a completion on a full disk: %v", err)
	}
	free(20 << 10)
	pebblestore.Look(s)
	if _, err := s.Update(ctx, completion(b, []byte("x"))); err != nil {
		t.Fatalf("with space again: %v", err)
	}
	if _, err := create(3); err != nil {
		t.Fatalf("with space again: %v", err)
	}
	if _, err := fs.Stat("/store/ballast"); err != nil {
		t.Fatal("no ballast again")
	}
}

// TestE06TwoOpeners: the second is told who the first is.
func TestE06TwoOpeners(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, pebblestore.Options{})
	_, err := pebblestore.Open(dir, pebblestore.Options{})
	host, _ := os.Hostname()
	if !errors.Is(err, pebblestore.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) || !strings.Contains(err.Error(), host) {
		t.Fatalf("second opener: %v", err)
	}
	if _, err := s.Create(context.Background(), benchDraft(counterfoil.ID{1})); err != nil {
		t.Fatalf("the first after the second: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, pebblestore.Options{})
}

// TestE07CopiedDirectory: a copy is refused, and distrusted when adopted.
func TestE07CopiedDirectory(t *testing.T) {
	ctx := context.Background()
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(ctx, benchDraft(counterfoil.ID{1})); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := pebblestore.Open(other, pebblestore.Options{}); !errors.Is(err, pebblestore.ErrCopied) || !strings.Contains(err.Error(), "--adopt") {
		t.Fatalf("a copy: %v", err)
	}
	before := time.Now()
	copied := open(t, other, pebblestore.Options{Adopt: true})
	distrusted(t, copied, before)
	if err := copied.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, other, pebblestore.Options{}) // it is at home now
	open(t, dir, pebblestore.Options{})   // and so is the original
}

// distrusted checks that a store says it went back in time.
func distrusted(t *testing.T, s *pebblestore.Store, since time.Time) {
	t.Helper()
	ctx := context.Background()
	m, err := s.Meta(ctx, counterfoil.MetaTrust)
	if err != nil || !strings.Contains(string(m.Value), "distrusted_at") {
		t.Fatalf("trust: %s, %v", m.Value, err)
	}
	m, err = s.Meta(ctx, counterfoil.MetaForgotten)
	if err != nil {
		t.Fatal(err)
	}
	f, err := counterfoil.DecodeForgotten(m.Value)
	if err != nil || f[3].Before(counterfoil.Instant(since)) {
		t.Fatalf("F: %v, %v; want at least %v", f, err, since)
	}
	// Neither known operations nor others insert a key born before.
	for op, n := range map[counterfoil.OperationNumber]byte{3: 50, 77: 51} {
		d := benchDraft(counterfoil.ID{n})
		d.Record.Operation, d.Born = op, since.Add(-time.Hour)
		if st, err := s.Create(ctx, d); err != nil || st.Created || st.Forgotten.IsZero() {
			t.Fatalf("operation %d: a key born before the copy: %+v, %v", op, st, err)
		}
	}
}

// TestE11ClockGoesBackOverRestart: time that was given out does not come again.
func TestE11ClockGoesBackOverRestart(t *testing.T) {
	ctx := context.Background()
	fs, clock := vfs.NewMem(), storetest.NewClock()
	s, err := pebblestore.Open("/store", pebblestore.Options{FS: fs, Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(ctx, benchDraft(counterfoil.ID{1})); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Hour)
	told, _ := s.Get(ctx, counterfoil.ID{1})
	pebblestore.Look(s) // as every second
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	clock.Advance(-3 * time.Hour)
	s = open(t, "/store", pebblestore.Options{FS: fs, Clock: clock.Now})
	if got, err := s.Get(ctx, counterfoil.ID{1}); err != nil || got.AsOf.Before(told.AsOf) {
		t.Fatalf("after the restart it is %v; %v was told (%v)", got.AsOf, told.AsOf, err)
	}
}

// TestE14Modes: nothing in the directory is for other users.
func TestE14Modes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := open(t, dir, pebblestore.Options{})
	w, clock := newTold(), storetest.NewClock()
	load(s, clock, w, 1, 1, 8)
	err := filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRecycledSegment: a file that is used again never yields what it held.
func TestRecycledSegment(t *testing.T) {
	ctx := context.Background()
	fs, clock := vfs.NewCrashableMem(), storetest.NewClock()
	o := pebblestore.Options{FS: fs, Clock: clock.Now, SegmentSize: 16 << 10}
	s := open(t, "/store", o)
	var old []counterfoil.Record
	for round := range 6 {
		for i := range 12 {
			st, err := s.Create(ctx, benchDraft(counterfoil.ID{byte(round), byte(i), 3}))
			if err != nil {
				t.Fatal(err)
			}
			w := completion(st.Record, bodyOf(st.Record.ID, 4000))
			w.Stamps.ReplayUntil = counterfoil.In(time.Minute)
			snap, err := s.Update(ctx, w)
			if err != nil {
				t.Fatal(err)
			}
			old = append(old, snap.Record)
		}
		for _, r := range old {
			b, err := s.Response(ctx, r.ID, r.Rev)
			switch {
			case errors.Is(err, counterfoil.ErrConflict), errors.Is(err, counterfoil.ErrNotFound):
			case err != nil || string(b) != string(bodyOf(r.ID, 4000)):
				t.Fatalf("round %d: response of %s: %d bytes, %v", round, r.ID, len(b), err)
			}
		}
		clock.Advance(10 * time.Minute)
		r, err := s.Sweep(ctx, counterfoil.SweepOrder{})
		if err != nil || r.ResponsesDropped != 12 {
			t.Fatalf("sweep: %+v, %v", r, err)
		}
	}
	names, err := fs.List("/store/responses")
	if err != nil || len(names) > 4 {
		t.Errorf("6 rounds of 4 segments left %v, %v", names, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, "/store", o)
	if stats, err := s.Stats(ctx); err != nil || stats.Bytes["response"] != 0 {
		t.Errorf("after the last sweep responses take %v, %v", stats.Bytes, err)
	}
}

// TestBackup: P14, E08, E09. A backup made under load is whole, opens
// distrusted, and what was told before it began is in it.
func TestBackup(t *testing.T) {
	for name, setup := range map[string]func(t *testing.T) (vfs.FS, string){
		"disk":   func(t *testing.T) (vfs.FS, string) { return nil, t.TempDir() },
		"memory": func(t *testing.T) (vfs.FS, string) { return vfs.NewMem(), "/" },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			fs, root := setup(t)
			clock := storetest.NewClock()
			o := pebblestore.Options{FS: fs, Clock: clock.Now, SegmentSize: 64 << 10}
			s := open(t, filepath.Join(root, "store"), o)
			w := newTold()
			load(s, clock, w, 1, 4, 20)
			if _, err := s.Create(ctx, benchDraft(counterfoil.ID{99})); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() { load(s, clock, newTold(), 2, 4, 20) })
			before, to := w.copy(), filepath.Join(root, "backup")
			if err := s.Backup(ctx, to); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if err := pebblestore.VerifyBackup(ctx, fs, to); err != nil {
				t.Fatal(err)
			}
			if err := s.Backup(ctx, to); err == nil {
				t.Error("a backup over another")
			}
			// The original goes on and recycles; the backup must not change.
			clock.Advance(time.Hour)
			for range 3 {
				if _, err := s.Sweep(ctx, counterfoil.SweepOrder{}); err != nil {
					t.Fatal(err)
				}
				load(s, clock, newTold(), 3, 2, 20)
			}
			if err := pebblestore.VerifyBackup(ctx, fs, to); err != nil {
				t.Fatal(err)
			}
			restored := open(t, to, o)
			if err := before.check(restored, clock.Now()); err != nil {
				t.Fatal(err)
			}
			distrusted(t, restored, clock.Now())
			if err := restored.Close(); err != nil {
				t.Fatal(err)
			}
			rev := second(restored.Meta(ctx, counterfoil.MetaTrust))
			if !errors.Is(rev, counterfoil.ErrClosed) {
				t.Errorf("after Close: %v", rev)
			}
			again := open(t, to, o)
			if m, err := again.Meta(ctx, counterfoil.MetaTrust); err != nil || m.Rev != 1 {
				t.Errorf("it was distrusted twice: rev %d, %v", m.Rev, err)
			}
		})
	}
}

// TestCommitTimeout: F6. A disk that does not answer holds nobody for ever, and
// the store is well again when it does.
func TestCommitTimeout(t *testing.T) {
	ctx := context.Background()
	var gate atomic.Pointer[chan struct{}]
	fs := stepFS{vfs.NewMem(), func() {
		if c := gate.Load(); c != nil {
			<-*c
		}
	}}
	s := open(t, "/store", pebblestore.Options{FS: fs, CommitTimeout: 50 * time.Millisecond})
	c := make(chan struct{})
	gate.Store(&c)
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := s.Create(short, benchDraft(counterfoil.ID{1})); !errors.Is(err, counterfoil.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("past the caller's deadline: %v", err)
	}
	if _, err := s.Create(ctx, benchDraft(counterfoil.ID{2})); !errors.Is(err, counterfoil.ErrUnavailable) {
		t.Errorf("past the store's timeout: %v", err)
	}
	gate.Store(nil)
	close(c)
	for {
		st, err := s.Create(ctx, benchDraft(counterfoil.ID{3}))
		if err == nil && st.Created {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

// TestCloseLeavesNothing: no goroutine outlives Close, and calls after it are
// told so.
func TestCloseLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, clock := newTold(), storetest.NewClock()
	var wg sync.WaitGroup
	wg.Go(func() { load(s, clock, w, 1, 8, 50) })
	time.Sleep(5 * time.Millisecond)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if _, err := s.Create(context.Background(), benchDraft(counterfoil.ID{1})); !errors.Is(err, counterfoil.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestDoctor: a new store is well, and DoctorDir sees the same from outside.
func TestDoctor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := open(t, dir, pebblestore.Options{})
	codes := map[string]bool{}
	for _, f := range s.Doctor(context.Background()) {
		codes[f.Code] = true
		if f.Severity == pebblestore.Error {
			t.Errorf("%s: %s", f.Code, f.Message)
		}
	}
	for _, want := range []string{"E01", "E03", "E04", "E05", "E06", "E11", "E12", "E14"} {
		if !codes[want] {
			t.Errorf("no finding for %s", want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, f := range pebblestore.DoctorDir(dir) {
		if f.Severity == pebblestore.Error {
			t.Errorf("%s: %s", f.Code, f.Message)
		}
	}
	other := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range pebblestore.DoctorDir(other) {
		found = found || f.Code == "E07" && f.Severity == pebblestore.Error
	}
	if !found {
		t.Error("DoctorDir does not see a copy")
	}
}
