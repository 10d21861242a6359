package pebblestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/counterfoil/counterfoil"
)

// manifestFile lists what a backup holds. Where it lies the directory is a
// backup, and is distrusted when it is opened (reliability.md P14).
const manifestFile = "BACKUP"

// manifest is the content of BACKUP. History: 1, the first.
type manifest struct {
	Version int            `json:"version"`
	Store   string         `json:"store_id"`
	MadeAt  time.Time      `json:"made_at"`
	Files   []manifestItem `json:"files"`
}

type manifestItem struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Backup writes a consistent copy of the store to dir, which must not exist,
// while the store goes on working. On the same file system most of it is shared
// by hard links. To restore, copy dir to where the store shall be and open it:
// it comes up distrusted, since whatever was claimed after the backup is not in
// it. Copying the directory of a running store is no backup (dangers.md E08).
func (s *Store) Backup(ctx context.Context, dir string) error {
	if err := s.backup(ctx, dir); err != nil {
		return fmt.Errorf("pebblestore: backup to %s: %w", dir, err)
	}
	return nil
}

func (s *Store) backup(ctx context.Context, dir string) error {
	if there, err := exists(s.fs, dir); err != nil || there {
		return errors.Join(err, fmt.Errorf("the directory is there already; name one that is not"))
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	// A segment that is shared must not be written into again. Those that are
	// still filled are copied instead.
	err := s.task(ctx, func(w *writer) error {
		for _, g := range w.shelf.segments {
			if !slices.Contains(w.shelf.active[:], g) && !g.linked {
				g.linked = true
				w.shelf.change(g)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.fs.MkdirAll(path.Join(dir, responsesDir), dirMode); err != nil {
		return err
	}
	// Rows first: the responses they refer to are on the shelf by then.
	if err := s.db.Checkpoint(path.Join(dir, rowsDir)); err != nil {
		return err
	}
	if err := s.copySegments(ctx, path.Join(dir, responsesDir)); err != nil {
		return err
	}
	f, err := readFile(s.fs, path.Join(s.dir, formatFile))
	if err != nil {
		return err
	}
	if err := writeFile(s.fs, dir, formatFile, f); err != nil {
		return err
	}
	m := manifest{Version: 1, Store: s.info.ID, MadeAt: counterfoil.Instant(s.now())}
	if m.Files, err = listFiles(ctx, s.fs, dir); err != nil {
		return err
	}
	if err := writeJSON(s.fs, dir, manifestFile, m); err != nil {
		return err
	}
	if err := syncDir(s.fs, path.Dir(dir)); err != nil {
		return err
	}
	return s.tryOpen(dir)
}

// tryOpen proves that the rows of a backup can be opened.
func (s *Store) tryOpen(dir string) error {
	cache := pebble.NewCache(1 << 20)
	defer cache.Unref()
	log := &logger{out: s.log.out}
	fatal := make(chan error, 1)
	log.fatal = func(err error) { fatal <- err }
	done := make(chan error, 1)
	go func() { // Pebble ends the goroutine, or panics, when it cannot go on
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("pebble: %v", p)
			}
		}()
		o := pebbleOptions(s.fs, log, cache, &pebble.EventListener{}, 0)
		o.ReadOnly = true
		db, err := pebble.Open(path.Join(dir, rowsDir), o)
		if err == nil {
			probe := &Store{db: db, ledger: newLedger()}
			err = errors.Join(probe.loadLedger(), db.Close())
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case err := <-fatal:
		return err
	}
}

// copySegments links the segments that are marked, and copies the others as far
// as they are filled.
func (s *Store) copySegments(ctx context.Context, to string) error {
	type share struct {
		g      *segment
		size   int64
		linked bool
	}
	var all []share
	// The writer says how far they are filled.
	err := s.task(ctx, func(w *writer) error {
		for _, g := range w.shelf.segments {
			if g.acquire() {
				all = append(all, share{g, g.size, g.linked})
			}
		}
		return nil
	})
	defer func() {
		for _, c := range all {
			c.g.release()
		}
	}()
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := path.Join(to, c.g.name())
		if c.linked && s.fs.Link(path.Join(s.shelf.dir, c.g.name()), name) == nil {
			continue
		}
		if err := s.copySegment(c.g, c.size, name); err != nil {
			return err
		}
	}
	return syncDir(s.fs, to)
}

func (s *Store) copySegment(g *segment, size int64, name string) error {
	f, err := s.fs.Create(name, responseCategory)
	if err != nil {
		return err
	}
	_, err = io.Copy(struct{ io.Writer }{f}, io.NewSectionReader(g.file, 0, size))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// listFiles takes the checksums of everything below dir.
func listFiles(ctx context.Context, fsys vfs.FS, dir string) (items []manifestItem, err error) {
	for _, sub := range []string{rowsDir, responsesDir} {
		names, err := fsys.List(path.Join(dir, sub))
		if err != nil {
			return nil, err
		}
		slices.Sort(names)
		for _, n := range names {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			item, err := sumFile(fsys, dir, path.Join(sub, n))
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
	}
	item, err := sumFile(fsys, dir, formatFile)
	return append(items, item), err
}

func sumFile(fsys vfs.FS, dir, name string) (manifestItem, error) {
	f, err := fsys.Open(path.Join(dir, name))
	if err != nil {
		return manifestItem{}, err
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	return manifestItem{Name: name, Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, errors.Join(err, f.Close())
}

// VerifyBackup reads a backup whole and compares it with its manifest. A nil
// file system is the real one.
func VerifyBackup(ctx context.Context, fsys vfs.FS, dir string) error {
	setDefault(&fsys, vfs.Default)
	var m manifest
	if err := readJSON(fsys, path.Join(dir, manifestFile), &m); err != nil {
		return fmt.Errorf("pebblestore: verify %s: %w", dir, err)
	}
	var errs []error
	if m.Version != 1 {
		errs = append(errs, fmt.Errorf("manifest version %d: %w", m.Version, counterfoil.ErrUnreadable))
	}
	for _, want := range m.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := sumFile(fsys, dir, want.Name)
		if err == nil && got != want {
			err = fmt.Errorf("%s is not what was backed up", want.Name)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("pebblestore: verify %s: %w", dir, err)
	}
	return nil
}
