package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	OK      Severity = "ok"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Finding is one thing that Doctor looked at. Code is the row of dangers.md.
type Finding struct {
	Severity Severity
	Code     string
	Message  string
	// Remedy says what to do; empty when all is well.
	Remedy string
}

// slowSync is what one synced write may take (dangers.md E12).
const slowSync = 20 * time.Millisecond

// Doctor looks at the store and what it stands on. It writes a small file.
func (s *Store) Doctor(ctx context.Context) []Finding {
	var d diagnosis
	d.ok("E01", "every write is synced before it is answered; Pebble format %d", pebbleFormat)
	if err := s.broken(); err != nil {
		d.bad(Error, "E03", "replace or repair the disk, then restart", "%v", err)
	} else {
		d.ok("E03", "no sync has failed")
	}
	s.space.check()
	switch low, full, sick := s.space.low.Load(), s.space.full.Load(), s.unhealthy(); {
	case full != nil:
		d.bad(Error, "E04", "free some space", "%v", *full)
	case low != nil:
		d.bad(Error, "E04", "free some space, or move the store to a larger disk", "%v", *low)
	case sick != nil:
		d.bad(Error, "E04", "look at the disk", "%v", sick)
	default:
		d.ok("E04", "%d MiB are free", s.space.free.Load()>>20)
	}
	if n := s.health.corrupt.Load(); n > 0 {
		d.bad(Error, "E05", "stop, and restore from a backup", "%d blocks on disk failed their checksums", n)
	} else {
		d.ok("E05", "no corruption has been met")
	}
	d.ok("E06", "process %d has the directory", os.Getpid())
	d.clock(s.clock.drift())
	d.probe(ctx, s.fs, s.dir)
	if vfs.Root(s.fs) == vfs.Default {
		d.ground(s.dir)
	}
	return d
}

// DoctorDir looks at a directory that is not open. It changes nothing but a
// small file of its own.
func DoctorDir(dir string) []Finding {
	var d diagnosis
	ctx := context.Background()
	if _, err := os.Stat(dir); err != nil {
		d.bad(Error, "E05", "name the directory of a store", "%v", err)
		return d
	}
	fsys := private{vfs.Default}
	lock, err := fsys.Lock(path.Join(dir, lockFile))
	if err != nil {
		var o owner
		_ = readJSON(fsys, path.Join(dir, ownerFile), &o) // who it is, is an extra
		d.bad(Warning, "E06", "ask the process itself, or stop it", "process %d on %s has the directory open", o.PID, o.Host)
	} else {
		d.ok("E06", "nobody has the directory open")
		if left, _ := exists(fsys, path.Join(dir, ownerFile)); left {
			d.bad(Warning, "E13", "", "the last process did not close the store; it recovers when it is opened")
		}
		defer lock.Close()
	}
	switch copied, err := placeChanged(fsys, dir); {
	case err != nil:
		d.bad(Error, "E07", "restore from a backup", "%v", err)
	case copied:
		d.bad(Error, "E07", "if the original will never run again, open it with --adopt", "the directory was copied from elsewhere")
	default:
		d.ok("E07", "the directory is where it was made")
	}
	if backup, _ := exists(fsys, path.Join(dir, manifestFile)); backup {
		d.bad(Warning, "E09", "", "this is a backup; it will be distrusted when it is opened")
	}
	s := Store{fs: fsys, dir: dir}
	if f, fresh, err := s.readFormat(); err != nil {
		d.bad(Error, "E10", "use the version that made it, or a newer one", "%v", err)
	} else if fresh {
		d.bad(Warning, "E10", "", "there is no store yet")
	} else {
		d.ok("E10", "layout %d, Pebble format %d of %d", f.Layout, f.Pebble, pebbleFormat)
	}
	p := space{fs: fsys, dir: dir, limits: Options{}.withDefaults().Space, log: &logger{out: Options{}.withDefaults().Logger}}
	if usage, err := fsys.GetDiskUsage(dir); err == nil {
		floor := max(p.limits.Floor, int64(float64(usage.TotalBytes)*p.limits.FloorPercent/100))
		if int64(usage.AvailBytes) < floor {
			d.bad(Error, "E04", "free some space, or move the store to a larger disk", "%d MiB are free, less than the %d MiB below which claims are refused", usage.AvailBytes>>20, floor>>20)
		} else {
			d.ok("E04", "%d MiB are free", usage.AvailBytes>>20)
		}
	}
	d.probe(ctx, fsys, dir)
	d.ground(dir)
	return d
}

// placeChanged is checkPlace for a directory that is only looked at.
func placeChanged(fsys vfs.FS, dir string) (bool, error) {
	if there, err := exists(fsys, path.Join(dir, placeFile)); err != nil || !there {
		return false, err
	}
	return checkPlace(fsys, dir)
}

// diagnosis gathers findings.
type diagnosis []Finding

func (d *diagnosis) ok(code, format string, args ...any) {
	*d = append(*d, Finding{OK, code, fmt.Sprintf(format, args...), ""})
}

func (d *diagnosis) bad(s Severity, code, remedy, format string, args ...any) {
	*d = append(*d, Finding{s, code, fmt.Sprintf(format, args...), remedy})
}

func (d *diagnosis) clock(drift time.Duration) {
	switch {
	case drift > forwardSlack:
		d.bad(Warning, "E11", "set the clock, or restart to accept it", "the wall clock jumped %s ahead while the store was open; nothing expires early for it", drift.Round(time.Second))
	case drift < -time.Second:
		d.bad(Warning, "E11", "set the clock", "the wall clock is %s behind what the store has seen", (-drift).Round(time.Second))
	default:
		d.ok("E11", "the clock is where it should be")
	}
}

// probe measures a synced write.
func (d *diagnosis) probe(ctx context.Context, fsys vfs.FS, dir string) {
	took, err := probeSync(ctx, fsys, path.Join(dir, "probe"))
	switch {
	case err != nil:
		d.bad(Error, "E12", "look at the disk and the directory's mode", "no write could be synced: %v", err)
	case took > slowSync:
		d.bad(Warning, "E12", "use a faster disk: every claim waits for a sync", "a synced write takes %s", took.Round(time.Millisecond))
	default:
		d.ok("E12", "a synced write takes %s", took.Round(10*time.Microsecond))
	}
}

// probeSync is the median time of a few synced writes of 4 KiB.
func probeSync(ctx context.Context, fsys vfs.FS, name string) (_ time.Duration, err error) {
	f, err := fsys.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), fsys.Remove(name)) }()
	var took []time.Duration
	for range 9 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		start := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0, err
		}
		if err := f.SyncData(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// ground looks at the kind of file system and the modes.
func (d *diagnosis) ground(dir string) {
	kind, err := fileSystem(dir)
	switch {
	case err != nil:
		d.bad(Warning, "E06", "", "the kind of file system is not known: %v", err)
	case kind.network:
		d.bad(Error, "E06", "use a local disk", "the directory is on %s, whose locks and syncs cannot be relied upon", kind.name)
	case kind.volatile:
		d.bad(Warning, "E06", "use a disk where it matters", "the directory is on %s: everything is lost with the power", kind.name)
	case kind.name == "overlay":
		d.bad(Warning, "E06", "mount a volume there", "the directory is on the writable layer of a container and goes with it")
	default:
		d.ok("E06", "the directory is on %s", kind.name)
	}
	open := ""
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return ignoreGone(err)
		}
		info, err := e.Info()
		if err != nil {
			return ignoreGone(err)
		}
		if info.Mode().Perm()&0o077 != 0 && open == "" {
			open = name
		}
		return nil
	})
	switch {
	case err != nil:
		d.bad(Warning, "E14", "", "the modes could not be read: %v", err)
	case open != "":
		d.bad(Warning, "E14", fmt.Sprintf("chmod -R go= %s", dir), "others may read %s", open)
	default:
		d.ok("E14", "only the owner can read the files")
	}
}

// ignoreGone leaves out files that are deleted meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
