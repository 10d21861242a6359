package memstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/counterfoil/counterfoil"
)

// pageLimit stands for a limit that was left out.
const pageLimit = 1000

func limitOf(n, standard int) int {
	if n <= 0 {
		return standard
	}
	return n
}

// Overdue implements [counterfoil.Store]. The oldest lease of all comes first,
// over all pages.
func (s *Store) Overdue(ctx context.Context, q counterfoil.Page) (counterfoil.Records, error) {
	if err := s.enter(ctx); err != nil {
		return counterfoil.Records{}, fmt.Errorf("memstore: overdue: %w", err)
	}
	defer s.mu.Unlock()
	if q.Cursor != nil && len(q.Cursor) != 16 {
		return counterfoil.Records{}, fmt.Errorf("memstore: overdue: cursor of %d bytes is not this store's", len(q.Cursor))
	}
	out := counterfoil.Records{AsOf: s.now()}
	type due struct {
		place []byte // sorts by lease, then by age
		e     *entry
	}
	var all []due
	for e := s.open.first; e != nil; e = e.next {
		if !e.record.Lapsed(out.AsOf) {
			continue
		}
		// The sign is turned over so that instants before 1970 sort first.
		place := binary.BigEndian.AppendUint64(nil, uint64(e.record.LeaseUntil.UnixMilli())^1<<63)
		place = binary.BigEndian.AppendUint64(place, e.seq)
		if bytes.Compare(place, q.Cursor) > 0 {
			all = append(all, due{place, e})
		}
	}
	slices.SortFunc(all, func(a, b due) int { return bytes.Compare(a.place, b.place) })
	if limit := limitOf(q.Limit, pageLimit); len(all) > limit {
		all = all[:limit]
		out.Next = all[limit-1].place
	}
	for _, d := range all {
		out.Records = append(out.Records, d.e.record.Clone())
	}
	return out, nil
}

// Scan implements [counterfoil.Store]. Records come in the order in which they
// were created, so that none is missed or repeated.
func (s *Store) Scan(ctx context.Context, q counterfoil.Query) (counterfoil.Records, error) {
	if err := s.enter(ctx); err != nil {
		return counterfoil.Records{}, fmt.Errorf("memstore: scan: %w", err)
	}
	defer s.mu.Unlock()
	entries, err := s.after(q.Cursor)
	if err != nil {
		return counterfoil.Records{}, fmt.Errorf("memstore: scan: %w", err)
	}
	out := counterfoil.Records{AsOf: s.now()}
	limit := limitOf(q.Limit, pageLimit)
	var last *entry
	for _, e := range entries {
		if e.deleted || !q.Matches(&e.record) {
			continue
		}
		if len(out.Records) == limit {
			out.Next = last.cursor()
			break
		}
		out.Records = append(out.Records, e.record.Clone())
		last = e
	}
	return out, nil
}
