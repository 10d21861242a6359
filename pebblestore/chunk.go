package pebblestore

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
)

// chunk is a sweep's share of one batch.
type chunk struct {
	now, at time.Time
	grace   time.Duration
	items   []expiry
	spent   []spent // in the order of their IDs
	report  counterfoil.SweepReport
	// gone lists the segments to be recycled; the pass is over.
	gone bool
	then time.Time
	// touched are the records written since the sweep began to look.
	touched map[counterfoil.ID]struct{}
	// abandoned is set when the sweep gave up before the writer got here: from
	// then on touched is not complete.
	abandoned atomic.Bool
}

// expiry is a record as the sweep saw it, and what it makes of it.
type expiry struct {
	row  *row
	fate fate
}

// spent is a whole tombstone past its horizon, with neither gate nor hold: most
// of what a sweep deletes. It is not decoded and takes no decision.
type spent struct {
	id counterfoil.ID
	op counterfoil.OperationNumber
	// created is CreatedAt, in Unix milliseconds.
	created int64
}

// spend takes in a record whose horizon has passed, if it is spent.
func (c *chunk) spend(reader *counterfoil.DueReader, key, body []byte) bool {
	if key[0] != kindSettled || len(key) != len(settledKey(counterfoil.ID{})) {
		return false
	}
	id := counterfoil.ID(key[1:])
	op, created, ok := reader.Spent(id, body)
	if !ok {
		return false
	}
	if c.spent == nil {
		c.spent = make([]spent, 0, chunkSize)
	}
	c.spent = append(c.spent, spent{id, op, created.UnixMilli()})
	return true
}

// chunkLine hands chunks to the writer, a few ahead of their answers.
type chunkLine struct {
	s      *Store
	report *counterfoil.SweepReport
	sent   []*op
}

func (l *chunkLine) send(c *chunk) error {
	if len(l.sent) >= chunksAhead {
		if err := l.receive(); err != nil {
			return err
		}
	}
	if err := l.s.broken(); err != nil {
		return err
	}
	o := &op{kind: opSweep, chunk: c, done: make(chan struct{}, 1)}
	if !l.s.queue.put(o) {
		return counterfoil.ErrClosed
	}
	l.sent = append(l.sent, o)
	return nil
}

// receive waits for the chunk sent first.
func (l *chunkLine) receive() error {
	o := l.sent[0]
	select {
	case <-o.done:
		l.sent = l.sent[1:]
	case <-l.s.oldest.signal():
		return l.s.errStuck()
	}
	if o.err != nil {
		return o.err
	}
	sum := &o.chunk.report
	sum.Next, sum.AsOf = l.report.Next, l.report.AsOf
	l.report.Add(*sum)
	return nil
}

// end waits for the chunks that were sent and lets the next sweep begin. When
// the sweep has failed the writer leaves out what it has not begun with, and
// the next sweep waits for the rest.
func (l *chunkLine) end(err error) error {
	for len(l.sent) > 0 && err == nil {
		err = l.receive()
	}
	for _, o := range l.sent {
		o.chunk.abandoned.Store(true)
	}
	finish := func() {
		for _, o := range l.sent {
			<-o.done
		}
		l.s.mu.Lock()
		l.s.touched = nil
		l.s.mu.Unlock()
		<-l.s.sweeping
	}
	if len(l.sent) == 0 {
		finish()
	} else {
		go finish() // ends with the writer, which answers every op
	}
	return err
}

// sweep applies a chunk to the records as they are now.
func (w *writer) sweep(o *op) {
	c := o.chunk
	if o.err = w.refuses(false); o.err != nil || c.abandoned.Load() {
		return
	}
	defer w.closeIter()
	counted := make(map[counterfoil.OperationNumber]*stateCounts, 1)
	raised := w.forget(c, counted)
	for i := range c.items {
		e := &c.items[i]
		id := e.row.rec.ID
		cur, f := e.row, &e.fate
		if w.changedSince(c, cur) {
			if cur = w.lookup(id); cur == nil || cur.bad != nil {
				continue
			}
			*f = expire(cur.rec, c.now, c.at, c.grace)
		}
		state := cur.rec.State
		f.add(&c.report, state)
		if f.forgets && w.forgotten.Raise(cur.rec.Operation, cur.rec.CreatedAt) {
			raised = true
		}
		switch {
		case f.delete && cur.rec.State.Open() && f.next == nil, f.delete && len(cur.rec.Holds) > 0:
			// Evidence that still waits for its outcome must never get here,
			// whatever went wrong before (reliability.md P11).
			panic(fmt.Sprintf("about to delete record %s, which is %s with %d holds", id, state, len(cur.rec.Holds)))
		case f.delete && state.Open():
			w.put(cur, &row{rec: f.next}) // closed and past its time at once
			w.remove(f.next, nil)
		case f.delete:
			w.remove(cur.rec, counted)
		case f.next != nil:
			next := &row{rec: f.next}
			if f.next.HasResponse {
				next.ref = cur.ref
			}
			w.put(cur, next)
		}
	}
	w.mu.Lock()
	for op, n := range counted {
		to := w.ledger.counts[op]
		for state := range n {
			to[state] -= n[state]
		}
	}
	w.mu.Unlock()
	if raised {
		w.putForgotten()
	}
	if c.gone {
		w.batch.dropped = w.shelf.overdue(c.then)
		w.shelf.forget(w.batch.dropped)
		for _, g := range w.batch.dropped {
			w.rows.Delete(segmentKey(g.number), nil)
		}
	}
}

// forget deletes the spent records of a chunk and reports whether F rose. Those
// that were written meanwhile are left to the chunk's items.
func (w *writer) forget(c *chunk, counted map[counterfoil.OperationNumber]*stateCounts) (raised bool) {
	w.recent.noteAll(c.spent)
	if len(w.settled) > 0 {
		w.mu.Lock()
		for i := range c.spent {
			if _, touched := c.touched[c.spent[i].id]; !touched {
				delete(w.settled, c.spent[i].id)
			}
		}
		w.mu.Unlock()
	}
	latest := make(map[counterfoil.OperationNumber]int64, 1)
	var op counterfoil.OperationNumber
	var n *stateCounts
	deleted, key := 0, settledKey(counterfoil.ID{})
	for i := range c.spent {
		e := &c.spent[i]
		if len(c.touched) > 0 {
			if _, touched := c.touched[e.id]; touched {
				rec := &counterfoil.Record{ID: e.id, State: counterfoil.Tombstone}
				c.items = append(c.items, expiry{row: &row{rec: rec}})
				continue
			}
		}
		copy(key[1:], e.id[:])
		w.rows.Delete(key[:], nil)
		if n == nil || e.op != op {
			op = e.op
			if n = counted[op]; n == nil {
				n = new(stateCounts)
				counted[op] = n
			}
		}
		deleted++
		n[counterfoil.Tombstone]++
		if t, ok := latest[op]; !ok || e.created > t {
			latest[op] = e.created
		}
	}
	c.report.Announced += deleted
	c.report.TombstonesDeleted += deleted
	for op, ms := range latest {
		if w.forgotten.Raise(op, time.UnixMilli(ms).UTC()) {
			raised = true
		}
	}
	return raised
}

// changedSince reports that a record is not as the sweep saw it any longer.
func (w *writer) changedSince(c *chunk, seen *row) bool {
	id := seen.rec.ID
	if seen.rec.State.Open() {
		cur := w.open[id]
		return cur == nil || cur.rec.Rev != seen.rec.Rev
	}
	_, touched := c.touched[id]
	return touched
}

// remove deletes a settled row. The counters are taken at once, or gathered in
// counted where it is not nil.
func (w *writer) remove(r *counterfoil.Record, counted map[counterfoil.OperationNumber]*stateCounts) {
	key := settledKey(r.ID)
	w.rows.Delete(key[:], nil)
	w.recent.note(r.ID)
	if len(w.settled) > 0 {
		w.mu.Lock()
		delete(w.settled, r.ID)
		w.mu.Unlock()
	}
	if counted == nil {
		w.mu.Lock()
		w.tally(r, -1)
		w.mu.Unlock()
		return
	}
	n := counted[r.Operation]
	if n == nil {
		n = new(stateCounts)
		counted[r.Operation] = n
	}
	n[r.State]++
}
