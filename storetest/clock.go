package storetest

import (
	"sync"
	"time"
)

// Clock is a clock that stands still until it is told otherwise. The suite
// passes one to every store it opens. It is safe for concurrent use. A nil
// *Clock is the wall clock; benchmarks pass that.
type Clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

// Epoch is where clocks made by NewClock stand.
var Epoch = time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)

// NewClock returns a clock that stands at [Epoch].
func NewClock() *Clock { return &Clock{now: Epoch} }

// Now is the clock's time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock on by d, or back when d is negative, and returns the
// new time.
func (c *Clock) Advance(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}

// Set moves the clock to t.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}
