package pebblestore

import (
	"sync"
	"time"
)

// forwardSlack is how far the wall clock may run ahead of the monotonic one
// while the store is open. Beyond it a step is taken for a mistake until the
// next start (dangers.md E11).
const forwardSlack = time.Minute

// clock is the store's time. It never goes back: neither while it runs nor, by
// what the ledger remembers, over a restart.
type clock struct {
	wall func() time.Time
	// steady begins to count monotonic time, suspension included; nil when the
	// wall clock is believed as it is.
	steady func() (elapsed func() time.Duration)

	mu     sync.Mutex // guards what follows
	anchor time.Time  // where elapsed counts from
	// elapsed is the monotonic time since anchor; nil without steady.
	elapsed func() time.Duration
	last    time.Time // the latest time given out
	skew    time.Duration
}

// start makes the clock go on from seen, the latest time that was persisted.
func (c *clock) start(seen time.Time) {
	c.anchor = c.wall().Round(0).UTC()
	if c.steady != nil {
		// From this very moment: opening took its time, and a count that began
		// before would run ahead of the wall clock by it.
		c.elapsed = c.steady()
	}
	if seen.After(c.anchor) {
		c.skew = c.anchor.Sub(seen)
		c.anchor = seen
	}
	c.last = c.anchor
}

// now is the time; it is at least as late as every time given out before.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.wall().Round(0).UTC()
	if c.elapsed != nil {
		steady := c.anchor.Add(c.elapsed())
		c.skew = t.Sub(steady)
		switch {
		case c.skew < 0:
			t = steady
		case c.skew > forwardSlack:
			t = steady.Add(forwardSlack)
		}
	}
	if t.After(c.last) {
		c.last = t
	}
	return c.last
}

// drift is how far the wall clock was from the store's time when last seen.
func (c *clock) drift() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skew
}

// given is the latest time given out.
func (c *clock) given() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}
