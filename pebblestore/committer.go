package pebblestore

import (
	"fmt"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil"
)

// commitAll is the committer's goroutine: it waits until each batch is durable,
// in order, and only then answers. It ends with the writer.
func (s *Store) commitAll() {
	for b := range s.batches {
		err := s.sync(b)
		if err == nil {
			// What an earlier batch could not sync, this one may stand on.
			err = s.broken()
		}
		s.oldest.forget(b)
		if err != nil {
			s.poison(err)
			err = s.broken()
		} else if len(b.dropped) > 0 {
			if err := s.shelf.discard(b.dropped); err != nil {
				s.log.warn("segments could not be recycled", err)
			}
		}
		b.commit.finish(err)
		for _, o := range b.ops {
			if err != nil {
				o.err = err
			}
			o.done <- struct{}{}
		}
		// The rows point to the commit, the writer to the batch: neither needs
		// the ops any longer.
		b.ops, b.rows, b.dropped = nil, nil, nil
	}
}

// sync waits until responses and rows of a batch are on disk. A row may get
// there before its response: then nobody has been answered yet, and a response
// that is not whole fails its checksum.
func (s *Store) sync(b *batch) error {
	b.responses.Wait()
	b.syncMu.Lock()
	err := b.syncErr
	b.syncMu.Unlock()
	if err != nil {
		return err
	}
	for _, rows := range b.rows {
		if werr := rows.SyncWait(); werr != nil {
			// Never again: the kernel may have dropped the pages, and a second
			// sync would lie (reliability.md F7).
			return fmt.Errorf("sync of the log: %w", werr)
		}
		rows.Close()
	}
	return nil
}

// watch knows the batches under way, so that a commit that hangs is noticed.
type watch struct {
	mu    sync.Mutex // guards what follows
	under []*batch
	limit time.Duration
	stuck chan struct{} // closed while a commit hangs
	open  bool          // stuck is not closed
}

func (w *watch) init(limit time.Duration) {
	w.limit, w.stuck, w.open = limit, make(chan struct{}), true
}

func (w *watch) track(b *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.under = append(w.under, b)
}

func (w *watch) forget(b *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.under {
		if w.under[i] == b {
			w.under = append(w.under[:i], w.under[i+1:]...)
			break
		}
	}
	if !w.open && (len(w.under) == 0 || time.Since(w.under[0].started) < w.limit) {
		w.stuck, w.open = make(chan struct{}), true
	}
}

// signal is closed when a commit hangs.
func (w *watch) signal() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stuck
}

// check lets everybody go who waits for a commit that takes too long.
func (w *watch) check() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.under) == 0 || time.Since(w.under[0].started) < w.limit {
		return false
	}
	if w.open {
		close(w.stuck)
		w.open = false
	}
	return true
}

// errStuck is what those are told whom check let go.
func (s *Store) errStuck() error {
	return fmt.Errorf("%w: the disk has not confirmed a write for %s; look at the disk's health and free space",
		counterfoil.ErrUnavailable, s.o.CommitTimeout)
}
