package pebblestore

import (
	"log/slog"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options are the settings of a store; the zero value works.
type Options struct {
	// FS is the file system; nil stands for the real one. Checks that only make
	// sense there (owner, modes, kind of file system) are left out with another.
	FS vfs.FS
	// Clock is the wall clock; nil stands for time.Now, judged against the
	// machine's monotonic clock (dangers.md E11). Another clock is believed when
	// it goes forward; the store's own time never goes back.
	Clock func() time.Time
	// Logger gets warnings and errors, at a bounded rate; nil discards them.
	Logger *slog.Logger
	// Space says when writes are refused for want of disk space.
	Space Space
	// Adopt opens a directory that was copied from elsewhere (dangers.md E07).
	// The copy is distrusted, like a restored backup.
	Adopt bool
	// AllowUnsafeFS opens a directory on a network file system, whose locks and
	// syncs cannot be relied upon (dangers.md E06).
	AllowUnsafeFS bool
	// CommitTimeout is how long a commit may take before everybody waiting for
	// one is answered ErrUnavailable; 0 stands for 10 s.
	CommitTimeout time.Duration
	// OpenTimeout bounds Open, which hangs on a full disk; 0 stands for 2 min.
	OpenTimeout time.Duration
	// SegmentSize is the size of a file of responses; 0 stands for 64 MiB.
	SegmentSize int64
	// SpareSegments is how many emptied files are kept for reuse; 0 stands for 4.
	SpareSegments int
	// CacheSize bounds the block cache in bytes; 0 stands for 64 MiB.
	CacheSize int64
	// Fatal is called once when what is on disk can no longer be relied upon: a
	// failed fsync must not be tried again, since the kernel may have dropped
	// the pages (dangers.md E03). Every call to the store fails by then. Nil
	// stands for exiting with status 75.
	Fatal func(error)

	// memTable is the size of Pebble's memtables, for tests that want flushes.
	memTable uint64
}

// Space bounds how full the disk may get. Members that are zero stand for the
// default in brackets.
type Space struct {
	// Claims are refused while less than Floor bytes [512 MiB], or less than
	// FloorPercent of the disk [5], are free.
	Floor        int64
	FloorPercent float64
	// Every write is refused below Reserve bytes [64 MiB]. As much again is held
	// in a ballast file that is given up when it comes to that, so that claims
	// already open can still be completed.
	Reserve int64
	// Off leaves all of it out.
	Off bool
}

func (o Options) withDefaults() Options {
	setDefault(&o.FS, vfs.Default)
	setDefault(&o.CommitTimeout, 10*time.Second)
	setDefault(&o.OpenTimeout, 2*time.Minute)
	setDefault(&o.SegmentSize, 64<<20)
	setDefault(&o.SpareSegments, 4)
	setDefault(&o.CacheSize, 64<<20)
	setDefault(&o.Space.Floor, 512<<20)
	setDefault(&o.Space.FloorPercent, 5)
	setDefault(&o.Space.Reserve, 64<<20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Fatal == nil {
		o.Fatal = func(error) { os.Exit(exitStatus) }
	}
	return o
}

// exitStatus is EX_TEMPFAIL: whoever supervises the process should start it
// again, on a disk that works.
const exitStatus = 75

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
