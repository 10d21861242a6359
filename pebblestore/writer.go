package pebblestore

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/counterfoil/counterfoil"
)

// writer decides every write. It runs in one goroutine, which alone changes
// the store's maps; it does so under the store's mutex, because readers look.
type writer struct {
	*Store
	batch *batch
	now   time.Time
	// rows gathers this batch's writes, and opens those to open rows: Pebble
	// inserts what is sorted faster, and both are by ID.
	rows, opens *pebble.Batch
	// iter looks up settled rows in tables, full in memory as well; each is
	// opened by the first that needs it.
	iter, full *pebble.Iterator
	// flights are the batches whose settled rows are still in the map.
	flights []*batch
	early   []*op
	scratch []byte
}

// run is the writer's goroutine. It ends when the queue is closed and empty.
func (w *writer) run() {
	defer close(w.batches)
	var taken []*op
	var b *batch
	defer func() {
		// Pebble ends a goroutine in which it cannot go on (see logger.Fatalf).
		// Those who wait must still be told.
		for len(taken) > 0 {
			b.ops = taken
			b.syncFailed(w.broken())
			w.batches <- b
			taken = w.queue.take(nil)
			b = &batch{commit: newCommit(), started: time.Now()}
		}
	}()
	for {
		if taken = w.queue.take(nil); len(taken) == 0 {
			return
		}
		b = &batch{commit: newCommit(), ops: taken, started: time.Now()}
		w.oldest.track(b)
		if err := w.safely(b); err != nil {
			w.poison(err)
			b.ops = taken
			b.syncFailed(err)
		}
		taken = nil
		w.batches <- b
	}
}

// safely resolves a batch. Pebble panics when its log has failed; by then
// nothing on this disk may be relied upon.
func (w *writer) safely(b *batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("writer: %v\n%s", p, debug.Stack())
		}
	}()
	if err := w.broken(); err != nil {
		return err
	}
	return w.resolve(b)
}

// resolve works out every op of a batch and applies what it writes, without
// waiting for it to be durable.
func (w *writer) resolve(b *batch) error {
	w.batch = b
	w.reap()
	w.recent.clean()
	w.now = w.clock.now()
	w.reserve()
	// What a sweep deletes must be gone before the claims of this batch are
	// looked up, and F raised before they are compared with it.
	for _, o := range b.ops {
		if o.kind == opSweep {
			w.begin()
			w.sweep(o)
			if err := w.apply(); err != nil {
				return err
			}
		}
	}
	w.begin()
	defer w.closeIter()
	order := slices.Clone(b.ops)
	slices.SortStableFunc(order, func(a, b *op) int { return a.id.Compare(b.id) })
	held, early := make([]*op, 0, len(order)), w.early[:0]
	for _, o := range order {
		o.asOf = w.now
		if o.err == nil {
			w.one(o)
		}
		if (o.kind == opCreate || o.kind == opUpdate) && (o.found == nil || !o.found.commit.pending()) {
			// Nothing in the answer can vanish any more.
			early = append(early, o)
			continue
		}
		held = append(held, o)
	}
	if err := w.apply(); err != nil {
		return err
	}
	b.ops = held
	for _, o := range early {
		o.done <- struct{}{}
	}
	clear(early)
	w.early = early
	return nil
}

// one works out one op.
func (w *writer) one(o *op) {
	switch o.kind {
	case opCreate:
		w.create(o)
	case opUpdate:
		w.update(o)
	case opMeta:
		w.setMeta(o)
	case opTask:
		o.err = o.task(w)
	}
}

// put writes next in the place of prev, which is nil for a new record: into the
// batch, the maps and the counters.
func (w *writer) put(prev, next *row) {
	id, isOpen := next.rec.ID, next.rec.State.Open()
	wasOpen := prev != nil && prev.rec.State.Open()
	next.commit = w.batch.commit
	settled := settledKey(id)
	w.scratch = w.scratch[:0]
	if isOpen {
		if next.once = !wasOpen; next.once {
			next.place = w.ledger.nextOpen
			w.ledger.nextOpen++
		} else {
			next.place = prev.place
		}
		if prev != nil && !wasOpen {
			w.rows.Delete(settled[:], nil)
			w.recent.note(id)
		}
		open := openKey(next.place)
		w.scratch = appendRow(append(w.scratch, id[:]...), next)
		w.opens.Set(open[:], w.scratch, nil)
	} else {
		if wasOpen {
			w.deleteOpen(prev)
		}
		w.scratch = appendRow(w.scratch, next)
		w.rows.Set(settled[:], w.scratch, nil)
		w.recent.note(id)
		w.batch.settled = append(w.batch.settled, id)
	}

	w.mu.Lock()
	switch {
	case isOpen && prev != nil && !wasOpen:
		delete(w.settled, id)
		w.reopened.Add(1)
	case !isOpen && wasOpen:
		delete(w.open, id)
	}
	if isOpen {
		w.open[id] = next
	} else {
		w.settled[id] = next
	}
	if prev != nil {
		w.tally(prev.rec, -1)
	}
	w.tally(next.rec, +1)
	w.unapplied = append(w.unapplied, id)
	if w.touched != nil {
		w.touched[id] = struct{}{}
	}
	w.mu.Unlock()
}

// deleteOpen deletes the row of a claim. Most are set once and deleted once,
// which Pebble can cancel out without keeping a tombstone of its own.
func (w *writer) deleteOpen(prev *row) {
	key := openKey(prev.place)
	if prev.once {
		w.opens.SingleDelete(key[:], nil)
	} else {
		w.opens.Delete(key[:], nil)
	}
}

// tally adds n times the record to the counters; the store's mutex is held.
func (s *Store) tally(r *counterfoil.Record, n int) {
	s.ledger.count(r, int64(n))
	if !r.State.Open() {
		return
	}
	if held := s.quota[r.Principal] + n; held > 0 {
		s.quota[r.Principal] = held
	} else {
		delete(s.quota, r.Principal)
	}
}

// begin makes room for the writes of a batch.
func (w *writer) begin() {
	w.rows, w.opens = w.db.NewBatchWithSize(1<<16), w.db.NewBatchWithSize(1<<14)
}

// apply hands the batch's writes to Pebble, which makes them visible and begins
// to sync them; the committer waits for that.
func (w *writer) apply() error {
	defer func() {
		w.opens.Close()
		w.rows, w.opens = nil, nil
	}()
	if !w.opens.Empty() {
		if err := w.rows.Apply(w.opens, nil); err != nil {
			return err
		}
	}
	if w.rows.Empty() && len(w.shelf.changed) == 0 {
		return w.rows.Close()
	}
	for _, g := range w.shelf.changed {
		w.scratch = g.encode(w.scratch[:0])
		w.rows.Set(segmentKey(g.number), w.scratch, nil)
	}
	w.shelf.changed = w.shelf.changed[:0]
	w.mu.Lock()
	w.ledger.seen = w.clock.given()
	w.scratch = w.ledger.encode(w.scratch[:0])
	w.mu.Unlock()
	w.rows.Set([]byte{kindLedger}, w.scratch, nil)
	if err := w.db.ApplyNoSyncWait(w.rows, pebble.Sync); err != nil {
		return fmt.Errorf("write to the log: %w", err)
	}
	w.recent.stamp(w.rows)
	w.batch.rows = append(w.batch.rows, w.rows)
	w.mu.Lock()
	w.unapplied = w.unapplied[:0]
	w.mu.Unlock()
	return nil
}

// reap forgets the settled rows that are durable by now: Pebble has them.
func (w *writer) reap() {
	n := 0
	for _, b := range w.flights {
		if b.commit.pending() {
			break
		}
		n++
	}
	if n == 0 {
		w.flights = append(w.flights, w.batch)
		return
	}
	w.mu.Lock()
	for _, b := range w.flights[:n] {
		for _, id := range b.settled {
			if r := w.settled[id]; r != nil && r.commit == b.commit {
				delete(w.settled, id)
			}
		}
	}
	w.mu.Unlock()
	w.flights = append(slices.Delete(w.flights, 0, n), w.batch)
}
