package pebblestore

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"time"

	"github.com/counterfoil/counterfoil"
)

const (
	// chunkSize bounds the records that one batch of the writer expires.
	chunkSize = 2048
	// yieldEvery lets others run: a sweep that does not starves the writer.
	yieldEvery = 256
	// chunksAhead is how many chunks may wait for the writer.
	chunksAhead = 4
)

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
	fresh := func() *chunk { return &chunk{now: now, at: at, grace: o.Grace, touched: touched} }
	c := fresh()
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
		key := it.Key()
		if report.Examined == limit {
			last = append(last, key...)
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return report, fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
		}
		body, err := recordBytes(key, value)
		if err == nil {
			if due, ok := reader.Due(body); !ok || due > dueBy {
				continue
			}
		}
		if err != nil || o.Grace > 0 || !c.spend(&reader, key, body) {
			r := readRow(key, value)
			if r.bad != nil {
				s.log.warn("sweep: unreadable record", r.bad)
				continue
			}
			f := expire(r.rec, now, at, o.Grace)
			if f.next == nil && !f.delete {
				f.add(&report, r.rec.State)
				continue
			}
			c.items = append(c.items, expiry{r, f})
		}
		if len(c.items)+len(c.spent) == chunkSize {
			if err := line.send(c); err != nil {
				return report, err
			}
			c = fresh()
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
	if len(c.items)+len(c.spent) > 0 || c.gone {
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
