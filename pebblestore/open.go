package pebblestore

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

const (
	rowsDir      = "rows"
	responsesDir = "responses"
	formatFile   = "FORMAT"
)

// layoutVersion is the version of the directory's layout. History: 1, the
// first.
const layoutVersion = 1

// format is the content of FORMAT.
type format struct {
	Layout int    `json:"layout"`
	Pebble uint64 `json:"pebble_format"`
	Store  string `json:"store_id"`
	// Incarnation rises when a copy is adopted or a backup restored.
	Incarnation int `json:"incarnation"`
}

// Open opens the store in dir, making it if there is none. The caller closes
// it. ErrInUse and ErrCopied are what an operator may come across; whatever
// else it returns wraps counterfoil.ErrUnavailable.
func Open(dir string, o Options) (*Store, error) {
	s, err := open(dir, o)
	if err != nil {
		if !errors.Is(err, ErrInUse) && !errors.Is(err, ErrCopied) && !errors.Is(err, counterfoil.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
		}
		return nil, fmt.Errorf("pebblestore: open %s: %w", dir, err)
	}
	return s, nil
}

func open(dir string, o Options) (_ *Store, err error) {
	real := o.FS == nil || vfs.Root(o.FS) == vfs.Default
	o = o.withDefaults()
	s := &Store{
		o: o, fs: o.FS, dir: dir,
		log:       &logger{out: o.Logger.With("store", "pebble", "dir", dir)},
		batches:   make(chan *batch),
		open:      make(map[counterfoil.ID]*row),
		settled:   make(map[counterfoil.ID]*row),
		quota:     make(map[counterfoil.PrincipalDigest]int),
		meta:      make(map[string]metaValue),
		forgotten: counterfoil.Forgotten{},
		ledger:    newLedger(),
		recent:    recent{ids: make(map[counterfoil.ID]uint64)},
		sweeping:  make(chan struct{}, 1),
		stop:      make(chan struct{}),
		queue:     queue{wake: make(chan struct{}, 1)},
	}
	s.oldest.init(o.CommitTimeout)
	s.clock = clock{wall: o.Clock}
	if o.Clock == nil {
		s.clock = clock{wall: time.Now, steady: sinceNow}
	}
	if real {
		s.fs = private{o.FS}
	}
	if err := s.fs.MkdirAll(path.Join(dir, rowsDir), dirMode); err != nil {
		return nil, err
	}
	if err := s.fs.MkdirAll(path.Join(dir, responsesDir), dirMode); err != nil {
		return nil, err
	}
	if err := errors.Join(syncDir(s.fs, dir), syncDir(s.fs, path.Dir(dir))); err != nil {
		return nil, err
	}
	if real {
		if err := s.checkDir(); err != nil {
			return nil, err
		}
	}
	if s.lock, err = claim(s.fs, dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.fs.Remove(path.Join(dir, ownerFile)), s.lock.Close())
		}
	}()
	f, fresh, err := s.readFormat()
	if err != nil {
		return nil, err
	}
	distrust := ""
	copied, err := checkPlace(s.fs, dir)
	if err != nil {
		return nil, err
	}
	restored, err := exists(s.fs, path.Join(dir, manifestFile))
	if err != nil {
		return nil, err
	}
	switch {
	case restored:
		distrust = "restored from a backup"
	case copied && !o.Adopt:
		return nil, fmt.Errorf("%w: if the original will never run again, open it with --adopt; it is then distrusted until an operator says otherwise", ErrCopied)
	case copied:
		distrust = "copied from elsewhere"
	}
	s.space = space{fs: s.fs, dir: dir, limits: o.Space, log: s.log}
	s.space.found()
	s.space.check()
	if err := s.space.refuses(false); err != nil {
		return nil, err
	}
	if err := s.openRows(); err != nil {
		return nil, err
	}
	if fresh {
		if err := writeJSON(s.fs, dir, formatFile, f); err != nil {
			return nil, errors.Join(err, s.db.Close())
		}
	}
	s.info = counterfoil.Info{Kind: "pebble", ID: f.Store, Durability: policy.DurabilityB, SingleProcess: true}
	s.running.Go((&writer{Store: s}).run)
	s.running.Go(s.commitAll)
	s.running.Go(s.mind)
	if distrust != "" {
		if err := s.distrust(distrust, f); err != nil {
			return nil, errors.Join(err, s.shut())
		}
	}
	return s, nil
}

// shut ends a store whose opening failed late; open gives the directory up.
func (s *Store) shut() error {
	s.closed.Store(true)
	close(s.stop)
	s.queue.close()
	s.running.Wait()
	if err := s.broken(); err != nil {
		return err
	}
	s.shelf.close()
	err := s.db.Close()
	s.cache.Unref()
	return err
}

// checkDir enforces the modes and looks what kind of file system it is.
func (s *Store) checkDir() error {
	for _, d := range []string{s.dir, path.Join(s.dir, rowsDir), path.Join(s.dir, responsesDir)} {
		if err := os.Chmod(d, dirMode); err != nil {
			return err
		}
	}
	kind, err := fileSystem(s.dir)
	if err != nil {
		return err
	}
	if kind.network && !s.o.AllowUnsafeFS {
		return fmt.Errorf("%s is on %s, whose locks and syncs cannot be relied upon; use a local disk, or set AllowUnsafeFS", s.dir, kind.name)
	}
	return nil
}

// readFormat reads FORMAT, or makes up a new one when the directory is empty.
func (s *Store) readFormat() (f format, fresh bool, err error) {
	b, err := readFile(s.fs, path.Join(s.dir, formatFile))
	if errors.Is(err, os.ErrNotExist) {
		// Rows without FORMAT are not ours, or the first Open never finished.
		id := counterfoil.NewToken()
		return format{Layout: layoutVersion, Pebble: uint64(pebbleFormat), Store: hex.EncodeToString(id[:]), Incarnation: 1}, true, nil
	}
	if err != nil {
		return f, false, err
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, false, fmt.Errorf("%s is damaged: %w; restore the directory from a backup", formatFile, err)
	}
	if f.Layout != layoutVersion || f.Pebble > uint64(pebbleFormat) {
		return f, false, fmt.Errorf("layout %d and Pebble format %d are not known to this version, which writes %d and %d; use the version of Counterfoil that made the directory, or a newer one",
			f.Layout, f.Pebble, layoutVersion, pebbleFormat)
	}
	return f, false, nil
}

// openRows opens Pebble and loads what is kept in memory, within OpenTimeout:
// on a full disk it hangs.
func (s *Store) openRows() error {
	done := make(chan error, 1)
	answer := func(err error) {
		select {
		case done <- err:
		default: // the first error says it
		}
	}
	var opened atomic.Bool
	s.log.fatal = func(err error) {
		if opened.Load() {
			s.poison(err)
		} else {
			answer(err)
		}
	}
	s.cache = pebble.NewCache(s.o.CacheSize)
	go func() {
		defer func() {
			if p := recover(); p != nil { // a marker that cannot be moved
				answer(fmt.Errorf("pebble: %v", p))
			}
		}()
		events := &pebble.EventListener{
			BackgroundError: s.backgroundError,
			FlushEnd:        s.recent.onFlush,
			DataCorruption: func(i pebble.DataCorruptionInfo) {
				s.health.corrupt.Add(1)
				s.log.warn("corruption on disk", i.Details)
			},
		}
		db, err := pebble.Open(path.Join(s.dir, rowsDir), pebbleOptions(s.fs, s.log, s.cache, events, s.o.memTable))
		if err == nil {
			s.db = db
			if err = s.load(); err != nil {
				err = errors.Join(err, db.Close())
			}
		}
		if err == nil {
			opened.Store(true)
		}
		answer(err)
	}()
	timeout := time.NewTimer(s.o.OpenTimeout)
	defer timeout.Stop()
	select {
	case err := <-done:
		return err
	case <-timeout.C:
		return fmt.Errorf("%w: opening took more than %s; look at the disk's health and free space",
			counterfoil.ErrUnavailable, s.o.OpenTimeout)
	}
}

// load reads what is kept in memory, and fences: what Pebble recovered from its
// log is made durable again before anybody is told of it.
func (s *Store) load() error {
	if err := s.db.LogData([]byte("open"), pebble.Sync); err != nil {
		return err
	}
	if err := s.loadLedger(); err != nil {
		return err
	}
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	var segments []*segment
	for ok := it.First(); ok; ok = it.Next() {
		if it.Key()[0] == kindSettled {
			// Settled rows stay where they are.
			if ok = it.SeekGE([]byte{kindOpen}); !ok {
				break
			}
		}
		key := it.Key()
		value, err := it.ValueAndErr()
		if err != nil {
			return errors.Join(err, it.Close())
		}
		switch key[0] {
		case kindOpen:
			r := readRow(key, value)
			s.ledger.nextOpen = max(s.ledger.nextOpen, r.place+1)
			if r.bad != nil {
				s.log.warn("unreadable open record", r.bad)
				r.rec.State = counterfoil.InProgress // it never expires
			} else {
				s.quota[r.rec.Principal]++
			}
			s.open[r.rec.ID] = r
		case kindMeta:
			m, err := decodeMeta(value)
			if err != nil {
				return errors.Join(err, it.Close())
			}
			s.meta[string(key[1:])] = metaValue{Meta: m}
		case kindSegment:
			if len(key) != 9 {
				return errors.Join(fmt.Errorf("%w: segment key", counterfoil.ErrUnreadable), it.Close())
			}
			g, err := decodeSegment(binary.BigEndian.Uint64(key[1:]), value)
			if err != nil {
				return errors.Join(err, it.Close())
			}
			segments = append(segments, g)
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return err
	}
	s.clock.start(s.ledger.seen)
	if m, ok := s.meta[counterfoil.MetaForgotten]; ok {
		if s.forgotten, s.forgottenBad = counterfoil.DecodeForgotten(m.Value); s.forgottenBad != nil {
			s.log.warn("F cannot be read", s.forgottenBad)
			s.forgotten = counterfoil.Forgotten{}
		}
	}
	return s.loadShelf(segments)
}

func (s *Store) loadLedger() error {
	value, closer, err := s.db.Get([]byte{kindLedger})
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s.ledger, err = decodeLedger(value)
	return errors.Join(err, closer.Close())
}

func (s *Store) loadShelf(known []*segment) error {
	s.shelf = shelf{
		fs: s.fs, dir: path.Join(s.dir, responsesDir), limit: s.o.SegmentSize, keep: s.o.SpareSegments,
		segments: make(map[uint64]*segment),
	}
	var err error
	if s.shelf.root, err = s.fs.OpenDir(s.shelf.dir); err != nil {
		return err
	}
	missing, err := s.shelf.load(known, s.ledger)
	if err != nil || len(missing) == 0 {
		return err
	}
	b := s.db.NewBatch()
	for _, g := range missing {
		s.log.warn("a segment is missing; its responses are lost", fmt.Errorf("%s", g.name()))
		if err := b.Delete(segmentKey(g.number), nil); err != nil {
			return err
		}
	}
	return b.Commit(pebble.Sync)
}

// distrust marks the store as one that went back in time (reliability.md P14):
// what it does not hold proves nothing.
func (s *Store) distrust(reason string, f format) error {
	err := s.task(context.Background(), func(w *writer) error {
		value, err := json.Marshal(struct {
			At     time.Time `json:"distrusted_at"`
			Reason string    `json:"reason"`
		}{counterfoil.Instant(w.now), reason})
		if err != nil {
			return err
		}
		w.putMeta(counterfoil.MetaTrust, value)
		w.mu.Lock()
		w.ledger.floor = counterfoil.Instant(w.now)
		for op := range w.ledger.counts {
			w.forgotten.Raise(op, w.now)
		}
		for op := range w.forgotten {
			w.forgotten.Raise(op, w.now)
		}
		w.mu.Unlock()
		w.putForgotten()
		return nil
	})
	if err != nil {
		return err
	}
	// Only now may it look like any other store.
	f.Incarnation++
	if err := writeJSON(s.fs, s.dir, formatFile, f); err != nil {
		return err
	}
	if err := writeJSON(s.fs, s.dir, placeFile, locate(s.fs, s.dir)); err != nil {
		return err
	}
	if err := s.fs.Remove(path.Join(s.dir, manifestFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncDir(s.fs, s.dir)
}
