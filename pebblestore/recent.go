package pebblestore

import (
	"math"
	"slices"
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
	// runs are rows that sweeps deleted: many at once, and in order.
	runs []deletedRun
	// flushed is the highest sequence number that is known to be in a table.
	flushed atomic.Uint64
	cleaned uint64
	// first is the sequence number of the first batch. Until something as late
	// is in a table, what was recovered from the log may not be, and every row
	// counts as recent.
	first uint64
	warm  bool
}

// deletedRun is what one batch deleted for a sweep, sorted by ID.
type deletedRun struct {
	rows []spent
	last uint64 // as in recent.ids; all that there is until the batch is stamped
}

func (d *deletedRun) has(id counterfoil.ID) bool {
	if id.Compare(d.rows[0].id) < 0 || id.Compare(d.rows[len(d.rows)-1].id) > 0 {
		return false
	}
	_, found := slices.BinarySearchFunc(d.rows, id, func(s spent, id counterfoil.ID) int { return s.id.Compare(id) })
	return found
}

// noteAll marks the rows that a sweep deletes in the batch under way. They are
// sorted, and not written to any more.
func (r *recent) noteAll(rows []spent) {
	if len(rows) > 0 {
		r.runs = append(r.runs, deletedRun{rows, math.MaxUint64})
	}
}

// note marks a row that the batch under way writes or deletes.
func (r *recent) note(id counterfoil.ID) { r.batch = append(r.batch, id) }

// has reports that a row is to be looked up in Pebble's memory as well.
func (r *recent) has(id counterfoil.ID) bool {
	if _, ok := r.ids[id]; ok || !r.warm {
		return true
	}
	for i := range r.runs {
		if r.runs[i].has(id) {
			return true
		}
	}
	return false
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
	if !known {
		return
	}
	r.batch = r.batch[:0]
	for i := len(r.runs) - 1; i >= 0 && r.runs[i].last == math.MaxUint64; i-- {
		r.runs[i].last = last
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
	r.runs = slices.DeleteFunc(r.runs, func(d deletedRun) bool { return d.last <= flushed })
}
