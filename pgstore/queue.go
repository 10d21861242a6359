package pgstore

import (
	"sync"
	"time"
)

// queue holds steps until a worker takes them. It is safe for concurrent use.
type queue struct {
	mu     sync.Mutex // guards what follows
	steps  []*step
	closed bool
	// wake has room for one word: there is something to do.
	wake chan struct{}
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// add puts a step in; false when the queue is closed.
func (q *queue) add(s *step) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	q.steps = append(q.steps, s)
	q.mu.Unlock()
	q.tell()
	return true
}

func (q *queue) tell() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// addLater puts a step in again after its pause, which grows. A step whose
// caller has gone meanwhile is dropped when it is taken.
func (q *queue) addLater(s *step) {
	s.pause = min(max(2*s.pause, time.Millisecond), 50*time.Millisecond)
	time.AfterFunc(s.pause, func() {
		if !q.add(s) {
			s.answer(answer{err: errClosed})
		}
	})
}

// wait returns when there may be something to take; false when the queue is
// closed and empty.
func (q *queue) wait() bool {
	for {
		q.mu.Lock()
		some, closed := len(q.steps) > 0, q.closed
		q.mu.Unlock()
		switch {
		case some:
			return true
		case closed:
			q.tell() // the other workers
			return false
		}
		<-q.wake
	}
}

// take takes at most limit steps whose callers still wait.
func (q *queue) take(limit int) []*step {
	q.mu.Lock()
	n := min(limit, len(q.steps))
	taken := append(make([]*step, 0, n), q.steps[:n]...)
	rest := copy(q.steps, q.steps[n:])
	clear(q.steps[rest:])
	q.steps = q.steps[:rest]
	more := rest > 0 || q.closed
	q.mu.Unlock()
	if more {
		q.tell() // for the other worker
	}
	now := time.Now()
	kept := taken[:0]
	for _, s := range taken {
		if s.gone(now) {
			s.answer(answer{err: errLate})
			continue
		}
		kept = append(kept, s)
	}
	return kept
}

// close lets the workers finish what is queued and takes nothing more.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.tell()
}

// gone reports that nobody waits for the step any longer.
func (s *step) gone(now time.Time) bool {
	return !s.until.IsZero() && now.After(s.until)
}

// answer gives the caller its answer; the first one counts.
func (s *step) answer(a answer) {
	select {
	case s.done <- a:
	default:
	}
}
