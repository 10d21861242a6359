package pebblestore

import (
	"slices"
	"sync"
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
