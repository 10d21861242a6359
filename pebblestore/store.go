package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/counterfoil/counterfoil"
)

// Store is a [counterfoil.Store] in a directory, for one process. It is safe
// for concurrent use.
type Store struct {
	o     Options
	fs    vfs.FS
	dir   string
	info  counterfoil.Info
	db    *pebble.DB
	clock clock
	log   *logger
	space space
	shelf shelf
	lock  interface{ Close() error }
	cache *pebble.Cache

	queue   queue
	batches chan *batch // writer to committer
	oldest  watch
	recent  recent
	health  health

	mu sync.RWMutex // guards what follows; the writer alone changes it
	// open has every record that waits for its outcome.
	open map[counterfoil.ID]*row
	// settled has the other rows written by batches that may not be durable yet.
	settled   map[counterfoil.ID]*row
	quota     map[counterfoil.PrincipalDigest]int
	meta      map[string]metaValue
	forgotten counterfoil.Forgotten // what meta[MetaForgotten] says
	// forgottenBad is why F cannot be read; nothing undated is inserted then.
	forgottenBad error
	ledger       *ledger
	// touched collects the records written while a sweep looks at an older view
	// of them; nil when there is no sweep.
	touched map[counterfoil.ID]struct{}
	// unapplied are the records of the batch that Pebble does not show yet.
	unapplied []counterfoil.ID
	// reopened counts the moves of a row from settled to open.
	reopened atomic.Uint64

	sweeping chan struct{} // held by the one sweep under way
	closing  sync.Mutex
	closed   atomic.Bool
	stop     chan struct{}
	running  sync.WaitGroup // the goroutines of the store
	calls    callers
}

var _ counterfoil.Store = (*Store)(nil)

// callers lets Close wait for the readers under way.
type callers struct {
	mu     sync.RWMutex
	closed bool
}

// enter begins a call that reads; leave must follow. Callers are refused once
// the store is closed, broken or stuck.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.calls.mu.RLock()
	if s.calls.closed {
		s.calls.mu.RUnlock()
		return counterfoil.ErrClosed
	}
	if err := s.broken(); err != nil {
		s.calls.mu.RUnlock()
		return err
	}
	return nil
}

func (s *Store) leave() { s.calls.mu.RUnlock() }

// do sends an op through the writer and waits for its answer. When it fails
// the op may still be under way, and is not the caller's any longer.
func (s *Store) do(ctx context.Context, o *op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.broken(); err != nil {
		return err
	}
	stuck := s.oldest.signal()
	select {
	case <-stuck:
		return s.errStuck()
	default:
	}
	if !s.queue.put(o) {
		return counterfoil.ErrClosed
	}
	select {
	case <-o.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: the write may yet happen: %w", counterfoil.ErrUnavailable, context.Cause(ctx))
	case <-stuck:
		return s.errStuck()
	}
}

// Create implements [counterfoil.Store].
func (s *Store) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	o := ops.Get().(*op)
	rec, stamps := d.Record.Clone(), d.Stamps
	o.kind, o.id, o.rec, o.stamps = opCreate, rec.ID, &rec, &stamps
	o.maxOpen, o.born, o.kin = d.MaxOpen, d.Born, d.Kin
	err := s.do(ctx, o)
	if err == nil {
		err = o.err
	}
	if err != nil {
		return counterfoil.Standing{}, fmt.Errorf("pebblestore: create %s: %w", rec.ID, err)
	}
	st := counterfoil.Standing{Created: o.created, Forgotten: o.forgot, OverQuota: o.over}
	st.AsOf = o.asOf
	if o.found != nil {
		st.Record = o.found.rec.Clone()
	}
	o.recycle()
	return st, nil
}

// Update implements [counterfoil.Store].
func (s *Store) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	o := ops.Get().(*op)
	rec, stamps := w.Record.Clone(), w.Stamps
	o.kind, o.id, o.rec, o.stamps = opUpdate, rec.ID, &rec, &stamps
	o.maxOpen, o.ifRev, o.ifToken = w.MaxOpen, w.IfRev, w.IfToken
	o.attach, o.response = w.Response != nil, append(o.response[:0], w.Response...)
	err := s.do(ctx, o)
	if err == nil {
		err = o.err
	}
	if err != nil {
		return counterfoil.Snapshot{}, fmt.Errorf("pebblestore: update %s: %w", rec.ID, err)
	}
	snap := counterfoil.Snapshot{Record: o.found.rec.Clone(), AsOf: o.asOf}
	o.recycle()
	return snap, nil
}

// Get implements [counterfoil.Store].
func (s *Store) Get(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	r, err := s.find(ctx, id)
	snap := counterfoil.Snapshot{AsOf: s.clock.now()}
	if err != nil {
		return snap, fmt.Errorf("pebblestore: get %s: %w", id, err)
	}
	snap.Record = r.rec.Clone()
	return snap, nil
}

// Response implements [counterfoil.Store].
func (s *Store) Response(ctx context.Context, id counterfoil.ID, rev uint64) ([]byte, error) {
	r, err := s.find(ctx, id)
	switch {
	case err != nil:
	case r.rec.Rev != rev:
		err = counterfoil.ErrConflict
	case r.ref.segment == 0:
		err = counterfoil.ErrNotFound
	default:
		var b []byte
		if b, err = s.shelf.read(&id, r.ref); err == nil {
			return b, nil
		}
	}
	return nil, fmt.Errorf("pebblestore: response of %s: %w", id, err)
}

// find returns a row that is durable, or ErrNotFound.
func (s *Store) find(ctx context.Context, id counterfoil.ID) (*row, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	for {
		moves := s.reopened.Load()
		r := s.held(id)
		if r == nil {
			var err error
			if r, err = s.stored(id); err != nil {
				return nil, err
			}
			// What Pebble shows may not be durable yet, or may have moved from
			// one kind of row to the other meanwhile.
			if h := s.held(id); h != nil {
				r = h
			} else if r == nil && s.reopened.Load() != moves {
				continue
			}
		}
		if r == nil {
			return nil, counterfoil.ErrNotFound
		}
		if err := s.await(ctx, r.commit); err != nil {
			return nil, err
		}
		return r, r.bad
	}
}

// held is the row of a record that is in memory.
func (s *Store) held(id counterfoil.ID) *row {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.open[id]; r != nil {
		return r
	}
	return s.settled[id]
}

// stored is the settled row of a record in Pebble.
func (s *Store) stored(id counterfoil.ID) (*row, error) {
	it, err := s.newSettledIter(false)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
	}
	defer it.Close()
	return seek(it, id), nil
}

// await waits until what c writes is durable (reliability.md P3).
func (s *Store) await(ctx context.Context, c *commit) error {
	if !c.pending() {
		return s.broken()
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("%w: the record is not durable yet: %w", counterfoil.ErrUnavailable, context.Cause(ctx))
	case <-s.oldest.signal():
		return s.errStuck()
	}
}

// fence waits until everything decided so far is durable.
func (s *Store) fence(ctx context.Context) error {
	o := ops.Get().(*op)
	o.kind = opFence
	err := s.do(ctx, o)
	if err == nil {
		if err = o.err; err == nil {
			o.recycle()
		}
	}
	return err
}

// task runs f in the writer and waits until what it wrote is durable.
func (s *Store) task(ctx context.Context, f func(w *writer) error) error {
	o := ops.Get().(*op)
	o.kind, o.task = opTask, f
	if err := s.do(ctx, o); err != nil {
		return err
	}
	return o.err
}

// Info implements [counterfoil.Store].
func (s *Store) Info() counterfoil.Info { return s.info }

// Close finishes what has been queued, waits for the calls under way and gives
// the directory up. Later calls return ErrClosed; a second Close does nothing.
// A store that is broken gives nothing up: only the end of the process does.
func (s *Store) Close() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed.Swap(true) {
		return nil
	}
	close(s.stop)
	s.queue.close()
	s.running.Wait()
	s.calls.mu.Lock()
	s.calls.closed = true
	s.calls.mu.Unlock()
	if err := s.broken(); err != nil {
		return fmt.Errorf("pebblestore: close: %w", err)
	}
	err := s.db.Close()
	s.cache.Unref()
	s.shelf.close()
	err = errors.Join(err, s.fs.Remove(path.Join(s.dir, ownerFile)), s.lock.Close())
	if err != nil {
		return fmt.Errorf("pebblestore: close: %w", err)
	}
	return nil
}

// now is the store's time, for answers that the writer has no part in.
func (s *Store) now() time.Time { return s.clock.now() }
