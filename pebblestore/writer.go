package pebblestore

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/counterfoil/counterfoil"
)

// batchLimit bounds the calls in one batch, and batchBytes their responses.
const (
	batchLimit = 4096
	batchBytes = 16 << 20
)

// queue is where callers leave their ops.
type queue struct {
	mu     sync.Mutex // guards what follows
	ops    []*op
	sweeps []*op // handled one per batch, so that claims are not held up
	closed bool
	wake   chan struct{} // has room for one
}

// put leaves an op and reports whether the queue still takes any.
func (q *queue) put(o *op) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	if o.kind == opSweep {
		q.sweeps = append(q.sweeps, o)
	} else {
		q.ops = append(q.ops, o)
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// take waits for ops and moves them to into. It returns none when the queue is
// closed and empty.
func (q *queue) take(into []*op) []*op {
	for {
		q.mu.Lock()
		n, bytes := 0, 0
		for n < len(q.ops) && n < batchLimit && bytes < batchBytes {
			bytes += len(q.ops[n].response)
			n++
		}
		into = append(into, q.ops[:n]...)
		rest := copy(q.ops, q.ops[n:])
		clear(q.ops[rest:])
		q.ops = q.ops[:rest]
		if len(q.sweeps) > 0 {
			into = append(into, q.sweeps[0])
			q.sweeps = slices.Delete(q.sweeps, 0, 1)
		}
		closed := q.closed
		q.mu.Unlock()
		if len(into) > 0 || closed {
			return into
		}
		<-q.wake
	}
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

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

// reserve finds room for the responses of the batch and begins to write them,
// before anything depends on where they are.
func (w *writer) reserve() {
	for _, o := range w.batch.ops {
		if !o.attach {
			continue
		}
		if o.err = w.space.refuses(false); o.err != nil {
			continue
		}
		until := o.rec.ReplayUntil
		if d, set := o.stamps.ReplayUntil.Get(); set {
			until = w.now.Add(d + time.Millisecond) // records round up
		}
		o.at, o.err = w.shelf.reserve(w.ledger, &o.id, o.response, w.now, until)
		if o.err != nil {
			o.err = fmt.Errorf("%w: response: %w", counterfoil.ErrUnavailable, o.err)
		}
	}
	dirty := w.shelf.flush()
	if len(dirty) == 0 {
		return
	}
	b := w.batch // not the one under way by the time a sync fails
	for _, g := range dirty {
		if g.broken != nil {
			w.failResponses(g)
			continue
		}
		b.responses.Go(func() {
			if err := g.file.SyncData(); err != nil {
				b.syncFailed(fmt.Errorf("sync of segment %d: %w", g.number, err))
			}
		})
	}
	if w.shelf.dirSync {
		w.shelf.dirSync = false
		b.responses.Go(func() {
			if err := w.shelf.root.Sync(); err != nil {
				b.syncFailed(fmt.Errorf("sync of the responses' directory: %w", err))
			}
		})
	}
}

// failResponses fails the ops whose responses could not be written to g.
func (w *writer) failResponses(g *segment) {
	for _, o := range w.batch.ops {
		if o.attach && o.at.segment == g.number && o.err == nil {
			o.err = fmt.Errorf("%w: response: %w", counterfoil.ErrUnavailable, g.broken)
		}
	}
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

func (w *writer) create(o *op) {
	if cur := w.lookup(o.id); cur != nil {
		o.found, o.err = cur, cur.bad
		// A zero token is nobody's: tombstones have it too.
		o.created = !o.rec.Token.IsZero() && cur.rec.Token == o.rec.Token
		return
	}
	if f := w.forgottenThrough(o.rec.Operation); !o.born.IsZero() && !f.IsZero() && !o.born.After(f) {
		o.forgot = f
		return
	}
	if o.maxOpen > 0 && o.rec.State.Open() && w.quota[o.rec.Principal] >= o.maxOpen {
		o.over = true
		return
	}
	o.stamps.Apply(o.rec, w.now)
	o.rec.Rev, o.rec.HasResponse = 1, false
	if o.err = storable(o.rec); o.err != nil {
		return
	}
	if o.err = w.refuses(true); o.err != nil {
		return
	}
	o.found, o.created = &row{rec: o.rec}, true
	w.put(nil, o.found)
}

func (w *writer) update(o *op) {
	cur := w.lookup(o.id)
	switch {
	case cur == nil:
		o.err = counterfoil.ErrNotFound
	case cur.bad != nil:
		o.err = cur.bad
	case cur.rec.Token != o.ifToken:
		o.err = counterfoil.ErrFenced
	case cur.rec.Rev != o.ifRev:
		o.err = counterfoil.ErrConflict
	}
	if o.err != nil {
		return
	}
	opens := o.rec.State.Open() && !cur.rec.State.Open()
	if opens && o.maxOpen > 0 && w.quota[o.rec.Principal] >= o.maxOpen {
		o.err = counterfoil.ErrOverQuota
		return
	}
	o.stamps.Apply(o.rec, w.now)
	if o.err = storable(o.rec); o.err != nil {
		return
	}
	if o.err = w.refuses(opens); o.err != nil {
		return
	}
	next := &row{rec: o.rec}
	switch {
	case o.attach:
		next.ref = o.at
	case o.rec.HasResponse && cur.ref.segment != 0:
		next.ref = cur.ref
		w.shelf.raise(cur.ref, o.rec.ReplayUntil)
	}
	o.rec.Rev, o.rec.HasResponse = cur.rec.Rev+1, next.ref.segment != 0
	o.found = next
	w.put(cur, next)
}

// storable refuses what no caller may ask for.
func storable(r *counterfoil.Record) error {
	switch {
	case r.State == counterfoil.Absent || r.State > counterfoil.Announced:
		return fmt.Errorf("a record cannot be kept as %s", r.State)
	case r.State == counterfoil.InProgress && r.LeaseUntil.IsZero():
		return fmt.Errorf("a claim needs a lease (cases.md C72)")
	}
	return nil
}

// lookup is the current content of a record, nil when there is none.
func (w *writer) lookup(id counterfoil.ID) *row {
	// No lock: only this goroutine writes the maps.
	if r := w.open[id]; r != nil {
		return r
	}
	if r := w.settled[id]; r != nil {
		return r
	}
	recent := w.recent.has(id)
	it := &w.iter
	if recent {
		it = &w.full
	}
	if *it == nil {
		var err error
		if *it, err = w.newSettledIter(!recent); err != nil {
			return &row{rec: &counterfoil.Record{ID: id}, bad: fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)}
		}
	}
	return seek(*it, id)
}

// seek is the settled row of id, nil when there is none.
func seek(it *pebble.Iterator, id counterfoil.ID) *row {
	key := settledKey(id)
	if !it.SeekPrefixGE(key[:]) {
		if err := it.Error(); err != nil {
			return &row{rec: &counterfoil.Record{ID: id}, bad: fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)}
		}
		return nil
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return &row{rec: &counterfoil.Record{ID: id}, bad: fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)}
	}
	return decodeRow(id, value)
}

func (w *writer) closeIter() {
	for _, it := range []**pebble.Iterator{&w.iter, &w.full} {
		if *it != nil {
			(*it).Close()
			*it = nil
		}
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
