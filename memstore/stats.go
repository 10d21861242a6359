package memstore

import (
	"context"
	"fmt"
	"reflect"

	"github.com/counterfoil/counterfoil"
)

// entrySize is what a record takes without the things it points to.
var entrySize = int64(reflect.TypeFor[entry]().Size())

// Stats implements [counterfoil.Store]. The counts are exact. Bytes has
// "tombstone" (tombstones and announced), "record" (all others) and "response".
// Operations without a record are left out.
func (s *Store) Stats(ctx context.Context) (counterfoil.Stats, error) {
	if err := s.enter(ctx); err != nil {
		return counterfoil.Stats{}, fmt.Errorf("memstore: stats: %w", err)
	}
	defer s.mu.Unlock()
	out := counterfoil.Stats{
		AsOf:       s.now(),
		Operations: make(map[counterfoil.OperationNumber]counterfoil.OperationStats, len(s.ops)),
	}
	var tombstones int64
	for op, o := range s.ops {
		if o.Total() > 0 {
			out.Operations[op] = *o
			tombstones += o.Count(counterfoil.Tombstone) + o.Count(counterfoil.Announced)
		}
	}
	for e := s.open.first; e != nil; e = e.next {
		o := out.Operations[e.record.Operation]
		switch {
		case e.record.Lapsed(out.AsOf):
			o.Overdue++
		case e.record.State == counterfoil.Unknown:
			if o.OldestUnknown.IsZero() || e.record.CreatedAt.Before(o.OldestUnknown) {
				o.OldestUnknown = e.record.CreatedAt
			}
		}
		out.Operations[e.record.Operation] = o
	}
	out.Bytes = map[string]int64{
		"tombstone": tombstones * entrySize,
		"record":    (int64(len(s.byID)) - tombstones) * entrySize,
		"response":  s.responseBytes,
	}
	return out, nil
}
