package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/counterfoil/counterfoil"
)

// pageLimit and sweepLimit stand for limits that were left out.
const (
	pageLimit  = 1000
	sweepLimit = 10_000
)

func limitOf(n, standard int) int {
	if n <= 0 {
		return standard
	}
	return n
}

// Overdue implements [counterfoil.Store]. The oldest lease of all comes first,
// over all pages. Claims are in memory, so nothing is read from disk.
func (s *Store) Overdue(ctx context.Context, q counterfoil.Page) (counterfoil.Records, error) {
	out, err := s.overdue(ctx, q)
	if err != nil {
		return counterfoil.Records{}, fmt.Errorf("pebblestore: overdue: %w", err)
	}
	return out, nil
}

func (s *Store) overdue(ctx context.Context, q counterfoil.Page) (out counterfoil.Records, err error) {
	if q.Cursor != nil && len(q.Cursor) != 28 {
		return out, fmt.Errorf("cursor of %d bytes is not this store's", len(q.Cursor))
	}
	if err := s.enter(ctx); err != nil {
		return out, err
	}
	defer s.leave()
	out.AsOf = s.now()
	limit := limitOf(q.Limit, pageLimit)
	var due places
	s.mu.RLock()
	for id, r := range s.open {
		if !r.rec.Lapsed(out.AsOf) {
			continue
		}
		p := place{rec: r.rec}
		// The sign is turned over so that instants before 1970 sort first.
		binary.BigEndian.PutUint64(p.key[:], uint64(r.rec.LeaseUntil.UnixMilli())^1<<63)
		copy(p.key[8:], id[:])
		if q.Cursor == nil || bytes.Compare(p.key[:], q.Cursor) > 0 {
			due.add(p, limit+1)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(due, place.compare)
	if len(due) > limit {
		due = due[:limit]
		out.Next = bytes.Clone(due[limit-1].key[:])
	}
	for _, p := range due {
		out.Records = append(out.Records, p.rec.Clone())
	}
	return out, s.fence(ctx)
}

// place is an overdue record and where it sorts: by lease, then ID.
type place struct {
	key [28]byte
	rec *counterfoil.Record
}

func (p place) compare(q place) int { return bytes.Compare(p.key[:], q.key[:]) }

// places is a heap with the latest place on top, which makes room first.
type places []place

func (h *places) add(p place, limit int) {
	if len(*h) < limit {
		*h = append(*h, p)
		for i := len(*h) - 1; i > 0; {
			up := (i - 1) / 2
			if (*h)[up].compare((*h)[i]) >= 0 {
				break
			}
			(*h)[up], (*h)[i] = (*h)[i], (*h)[up]
			i = up
		}
		return
	}
	if p.compare((*h)[0]) >= 0 {
		return
	}
	(*h)[0] = p
	for i := 0; ; {
		down := 2*i + 1
		if down+1 < len(*h) && (*h)[down].compare((*h)[down+1]) < 0 {
			down++
		}
		if down >= len(*h) || (*h)[i].compare((*h)[down]) >= 0 {
			return
		}
		(*h)[i], (*h)[down] = (*h)[down], (*h)[i]
		i = down
	}
}

// Scan implements [counterfoil.Store]. Open records come last, as they
// were opened; the others by ID. A record that cannot be read is left out and
// logged.
func (s *Store) Scan(ctx context.Context, q counterfoil.Query) (counterfoil.Records, error) {
	out, err := s.scan(ctx, q)
	if err != nil {
		return counterfoil.Records{}, fmt.Errorf("pebblestore: scan: %w", err)
	}
	return out, nil
}

func (s *Store) scan(ctx context.Context, q counterfoil.Query) (out counterfoil.Records, err error) {
	if q.Cursor != nil && !validKey(q.Cursor) {
		return out, fmt.Errorf("cursor of %d bytes is not this store's", len(q.Cursor))
	}
	if err := s.enter(ctx); err != nil {
		return out, err
	}
	defer s.leave()
	out.AsOf = s.now()
	it, err := s.newRecordIter(q.Cursor)
	if err != nil {
		return out, err
	}
	defer it.Close()
	limit := limitOf(q.Limit, pageLimit)
	var last []byte
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n%256 == 0 {
			if err := ctx.Err(); err != nil {
				return out, err
			}
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return out, fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
		}
		r := readRow(it.Key(), value)
		if r.bad != nil {
			s.log.warn("scan: unreadable record", r.bad)
			continue
		}
		if !q.Matches(r.rec) {
			continue
		}
		if len(out.Records) == limit {
			out.Next = last
			break
		}
		out.Records = append(out.Records, *r.rec)
		last = append(last[:0], it.Key()...)
	}
	if err := it.Error(); err != nil {
		return out, fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
	}
	// What was read may not be durable yet.
	return out, s.fence(ctx)
}

// newRecordIter goes over all records behind the key after.
func (s *Store) newRecordIter(after []byte) (*pebble.Iterator, error) {
	lower := []byte{kindSettled}
	if after != nil {
		lower = append(bytes.Clone(after), 0)
	}
	return s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: []byte{kindOpen + 1}})
}

// newSettledIter looks settled rows up, in tables only where that will do (see
// recent). Pebble leaves the filters of the lowest
// level out unless it is asked for them, and most lookups are of new keys.
func (s *Store) newSettledIter(tables bool) (*pebble.Iterator, error) {
	return s.db.NewIter(&pebble.IterOptions{
		LowerBound:   []byte{kindSettled},
		UpperBound:   []byte{kindSettled + 1},
		UseL6Filters: true,
		// What is in a table is durable; all else is in memory.
		OnlyReadGuaranteedDurable: tables,
	})
}

// Stats implements [counterfoil.Store]. The counts are exact. Bytes are on
// disk, without what is not flushed yet: "tombstone" for all rows, "response"
// for the segments, "spare" for files kept for reuse. Operations without a
// record are left out.
func (s *Store) Stats(ctx context.Context) (counterfoil.Stats, error) {
	out, err := s.stats(ctx)
	if err != nil {
		return counterfoil.Stats{}, fmt.Errorf("pebblestore: stats: %w", err)
	}
	return out, nil
}

func (s *Store) stats(ctx context.Context) (out counterfoil.Stats, err error) {
	if err := s.enter(ctx); err != nil {
		return out, err
	}
	defer s.leave()
	out.AsOf = s.now()
	out.Operations = make(map[counterfoil.OperationNumber]counterfoil.OperationStats)
	s.mu.RLock()
	for op, c := range s.ledger.counts {
		var o counterfoil.OperationStats
		copy(o.Records[:], c[:])
		if o.Total() > 0 {
			out.Operations[op] = o
		}
	}
	for _, r := range s.open {
		o := out.Operations[r.rec.Operation]
		switch {
		case r.bad != nil:
			continue
		case r.rec.Lapsed(out.AsOf):
			o.Overdue++
		case r.rec.State == counterfoil.Unknown:
			if o.OldestUnknown.IsZero() || r.rec.CreatedAt.Before(o.OldestUnknown) {
				o.OldestUnknown = r.rec.CreatedAt
			}
		}
		out.Operations[r.rec.Operation] = o
	}
	s.mu.RUnlock()
	rows, err := s.db.EstimateDiskUsage([]byte{kindSettled}, []byte{kindOpen + 1})
	if err != nil {
		return out, fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
	}
	responses, spare := s.shelf.bytes()
	out.Bytes = map[string]int64{"tombstone": int64(rows), "response": responses, "spare": spare}
	return out, s.fence(ctx)
}
