package pebblestore

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
)

const (
	// chunkSize bounds the records that one batch of the writer expires.
	chunkSize = 2048
	// yieldEvery lets others run: a sweep that does not starves the writer.
	yieldEvery = 256
	// chunksAhead is how many chunks may wait for the writer.
	chunksAhead = 2
)

// chunk is a sweep's share of one batch.
type chunk struct {
	now, at time.Time
	grace   time.Duration
	items   []expiry
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

// Sweep implements [counterfoil.Store]. It takes each record as far as it may
// go in one visit, and works on what it saw when the batch began: the writer
// looks again at whatever changed meanwhile. One sweep runs at a time.
func (s *Store) Sweep(ctx context.Context, o counterfoil.SweepOrder) (counterfoil.SweepReport, error) {
	report, err := s.sweepBatch(ctx, o)
	if err != nil {
		return report, fmt.Errorf("pebblestore: sweep: %w", err)
	}
	return report, nil
}

func (s *Store) sweepBatch(ctx context.Context, o counterfoil.SweepOrder) (report counterfoil.SweepReport, err error) {
	select {
	case s.sweeping <- struct{}{}:
	case <-ctx.Done():
		return report, ctx.Err()
	}
	line := chunkLine{s: s, report: &report}
	defer func() { err = line.end(err) }()
	if err := s.enter(ctx); err != nil {
		return report, err
	}
	defer s.leave()
	now := s.now()
	report.AsOf = now
	at := now
	if !o.Now.IsZero() {
		if o.Now.Sub(now).Abs() > counterfoil.MaxClockSkew {
			return report, fmt.Errorf("%w: the store has %s, the sweeper %s",
				counterfoil.ErrClockSkew, now.Format(time.RFC3339), o.Now.UTC().Format(time.RFC3339))
		}
		if o.Now.Before(at) {
			at = o.Now
		}
	}
	// The cursor is the time the pass began at, then the last key.
	then, after := at, []byte(nil)
	if o.Cursor != nil {
		if len(o.Cursor) < 8 || !validKey(o.Cursor[8:]) {
			return report, fmt.Errorf("cursor of %d bytes is not this store's", len(o.Cursor))
		}
		then, after = time.UnixMilli(int64(binary.BigEndian.Uint64(o.Cursor))).UTC(), o.Cursor[8:]
	}

	touched := s.touch()
	it, err := s.newRecordIter(after)
	if err != nil {
		return report, fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
	}
	defer it.Close()
	limit, dueBy := limitOf(o.Limit, sweepLimit), at.UnixMilli()
	c := &chunk{now: now, at: at, grace: o.Grace, touched: touched}
	last := make([]byte, 0, 21)
	var reader counterfoil.DueReader
	for ok := it.First(); ok; ok = it.Next() {
		if report.Examined == limit {
			report.Next = binary.BigEndian.AppendUint64(nil, uint64(then.UnixMilli()))
			report.Next = append(report.Next, last...)
			break
		}
		if report.Examined++; report.Examined%yieldEvery == 0 {
			runtime.Gosched()
			if err := ctx.Err(); err != nil {
				return report, err
			}
		}
		last = append(last[:0], it.Key()...)
		value, err := it.ValueAndErr()
		if err != nil {
			return report, fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
		}
		body, err := recordBytes(it.Key(), value)
		if err == nil {
			if due, ok := reader.Due(body); !ok || due > dueBy {
				continue
			}
		}
		r := readRow(it.Key(), value)
		if r.bad != nil {
			s.log.warn("sweep: unreadable record", r.bad)
			continue
		}
		f := expire(r.rec, now, at, o.Grace)
		if f.next == nil && !f.delete {
			f.add(&report, r.rec.State)
			continue
		}
		if c.items = append(c.items, expiry{r, f}); len(c.items) == chunkSize {
			if err := line.send(c); err != nil {
				return report, err
			}
			c = &chunk{now: now, at: at, grace: o.Grace, touched: touched}
		}
	}
	if err := it.Error(); err != nil {
		return report, fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
	}
	if c.gone = report.Next == nil; c.gone {
		// Everything that was wanted until before the pass began has been
		// stripped by now: whole segments may go.
		c.then = then
	}
	if len(c.items) > 0 || c.gone {
		return report, line.send(c)
	}
	return report, nil
}

// touch begins to collect the records that are written from now on, and starts
// with those that are decided and not yet to be seen in Pebble.
func (s *Store) touch() map[counterfoil.ID]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched = make(map[counterfoil.ID]struct{}, len(s.unapplied))
	for _, id := range s.unapplied {
		s.touched[id] = struct{}{}
	}
	return s.touched
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
	raised := false
	counted := make(map[counterfoil.OperationNumber]*stateCounts, 1)
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
