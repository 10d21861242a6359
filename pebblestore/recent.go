package pebblestore

import (
	"math"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/counterfoil/counterfoil"
)

// recent knows which settled rows Pebble may still have in memory. All others
// are looked up in its tables alone, whose filters answer most lookups of a new
// key; to seek in its memtables took a third of the writer's time.
//
// A row counts as recent from the batch that writes or deletes it until a flush
// has made a table of anything that was written later: Pebble flushes in the
// order of its sequence numbers. When in doubt a row stays recent, which costs a
// seek; to forget one early would let a key run twice.
//
// The writer alone uses it, but for flushed.
type recent struct {
	ids map[counterfoil.ID]uint64 // to the last sequence number of its batch
	// batch are the rows of the batch under way.
	batch []counterfoil.ID
	// flushed is the highest sequence number that is known to be in a table.
	flushed atomic.Uint64
	cleaned uint64
	// first is the sequence number of the first batch. Until something as late
	// is in a table, what was recovered from the log may not be, and every row
	// counts as recent.
	first uint64
	warm  bool
}

// note marks a row that the batch under way writes or deletes.
func (r *recent) note(id counterfoil.ID) { r.batch = append(r.batch, id) }

// has reports that a row is to be looked up in Pebble's memory as well.
func (r *recent) has(id counterfoil.ID) bool {
	_, ok := r.ids[id]
	return ok || !r.warm
}

// stamp takes in the rows of a batch that has been applied.
func (r *recent) stamp(b *pebble.Batch) {
	last := uint64(b.SeqNum()) + uint64(b.Count())
	known := b.SeqNum() != 0
	if known && r.first == 0 {
		r.first = uint64(b.SeqNum())
	}
	if !known {
		// Pebble took a large batch over, and its number with it. The next one
		// that tells its number is later than this.
		last = math.MaxUint64
	}
	for _, id := range r.batch {
		r.ids[id] = last
	}
	if known {
		r.batch = r.batch[:0]
	}
}

// onFlush hears of a flush once its tables can be read.
func (r *recent) onFlush(info pebble.FlushInfo) {
	if info.Err != nil || info.Ingest {
		return
	}
	for i := range info.Output {
		if n := uint64(info.Output[i].LargestSeqNum); n > r.flushed.Load() {
			r.flushed.Store(n) // flushes come one at a time
		}
	}
}

// clean drops the rows that are in tables.
func (r *recent) clean() {
	flushed := r.flushed.Load()
	if flushed == r.cleaned {
		return
	}
	r.cleaned = flushed
	r.warm = r.warm || r.first != 0 && flushed >= r.first
	for id, last := range r.ids {
		if last <= flushed {
			delete(r.ids, id)
		}
	}
}
