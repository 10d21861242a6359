package httpguard

import (
	"context"
	"sync"
	"time"
)

// effect is the handler's context: the caller's values and the attempt, the
// operation's deadline, and no end when the caller goes away. It is one value
// in place of a chain of three contexts and their timers, since every guarded
// request pays for it.
type effect struct {
	caller   context.Context
	attempt  *Attempt
	deadline time.Time

	mu sync.Mutex // guards what follows
	// values is the caller's context without its cancellation, made when
	// somebody asks for one of its values.
	values context.Context
	done   chan struct{}
	err    error
	// after is called, each in its own goroutine, when the context ends.
	after []*func()
}

// Deadline is the claim's.
func (e *effect) Deadline() (time.Time, bool) { return e.deadline, true }

// Done is made when somebody asks for it.
func (e *effect) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done == nil {
		e.done = make(chan struct{})
		if e.err != nil {
			close(e.done)
		}
	}
	return e.done
}

// Err is DeadlineExceeded at the deadline, Canceled once the handler returned.
func (e *effect) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// Value finds the attempt, and what the caller's context holds.
func (e *effect) Value(key any) any {
	if key == (attemptKey{}) {
		return e.attempt
	}
	e.mu.Lock()
	if e.values == nil {
		e.values = context.WithoutCancel(e.caller)
	}
	values := e.values
	e.mu.Unlock()
	return values.Value(key)
}

// AfterFunc lets package context derive from this one without a goroutine.
func (e *effect) AfterFunc(f func()) (stop func() bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		go f()
		return func() bool { return false }
	}
	p := &f
	e.after = append(e.after, p)
	return func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		for i, q := range e.after {
			if q == p {
				e.after = append(e.after[:i], e.after[i+1:]...)
				return true
			}
		}
		return false
	}
}

// end closes the context, once.
func (e *effect) end(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return
	}
	e.err = err
	if e.done != nil {
		close(e.done)
	}
	for _, f := range e.after {
		go (*f)()
	}
	e.after = nil
}
