package pebblestore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/counterfoil/counterfoil"
)

// op is one call on its way through the writer. The caller fills in the first
// part and waits for done; the writer fills in the rest before.
type op struct {
	kind opKind
	id   counterfoil.ID
	// rec is the caller's copy of the next content. The writer stamps it, and it
	// becomes the row's own.
	rec      *counterfoil.Record
	stamps   *counterfoil.Stamps
	maxOpen  int
	born     time.Time
	kin      []counterfoil.OperationNumber // not written to
	ifRev    uint64
	ifToken  counterfoil.Token
	response []byte // attached when hasResponse
	attach   bool

	name  string // of a meta value
	value []byte
	chunk *chunk // of a sweep
	task  func(w *writer) error

	at      ref // where the response was put
	found   *row
	asOf    time.Time
	created bool
	over    bool
	forgot  time.Time
	rev     uint64
	err     error

	done chan struct{} // has room for one
}

type opKind uint8

const (
	opCreate opKind = iota
	opUpdate
	opMeta
	opSweep
	// opTask runs a function of the store's own in the writer.
	opTask
	// opFence changes nothing: it is answered when all before it is durable.
	opFence
)

var ops = sync.Pool{New: func() any { return &op{done: make(chan struct{}, 1)} }}

// recycle gives o back. Only whoever got the answer may: an op that was given
// up on still belongs to the writer.
func (o *op) recycle() {
	*o = op{done: o.done, response: o.response[:0]}
	if cap(o.response) > 1<<20 {
		o.response = nil
	}
	ops.Put(o)
}

// commit says whether a batch is durable yet. Rows point to the one that writes
// them.
type commit struct {
	over atomic.Bool
	done chan struct{}
	err  error // valid once done is closed
}

func newCommit() *commit { return &commit{done: make(chan struct{})} }

func (c *commit) finish(err error) {
	c.err = err
	c.over.Store(true)
	close(c.done)
}

// pending reports that what c writes may still vanish in a crash.
func (c *commit) pending() bool { return c != nil && !c.over.Load() }

// batch is what is committed together. Its answers are given in order.
type batch struct {
	commit *commit
	ops    []*op
	// rows are the Pebble batches, applied already and still to be synced.
	rows []*pebble.Batch
	// responses is done when the segments are synced; its error is syncErr.
	responses sync.WaitGroup
	syncErr   error
	syncMu    sync.Mutex // guards syncErr
	// settled are the rows to be taken out of the writer's map of settled rows
	// once this is durable.
	settled []counterfoil.ID
	// dropped are segments whose rows this batch deletes.
	dropped []*segment
	started time.Time
}

// syncFailed notes the first failure of a segment's sync.
func (b *batch) syncFailed(err error) {
	b.syncMu.Lock()
	defer b.syncMu.Unlock()
	if b.syncErr == nil {
		b.syncErr = err
	}
}
