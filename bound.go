package counterfoil

import (
	"context"
	"sync"
	"time"
)

// storeContext bounds one store call, detached from the caller. Its timer is
// made when somebody asks for Done: a store that answers from memory never
// does, and every request makes several calls.
type storeContext struct {
	context.Context // the caller's values
	until           time.Time

	mu    sync.Mutex // guards what follows
	err   error
	done  chan struct{}
	timer *time.Timer
}

func (c *storeContext) Deadline() (time.Time, bool) { return c.until, true }

func (c *storeContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		} else {
			c.timer = time.AfterFunc(time.Until(c.until), func() { c.end(context.DeadlineExceeded) })
		}
	}
	return c.done
}

func (c *storeContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && !time.Now().Before(c.until) {
		c.endLocked(context.DeadlineExceeded)
	}
	return c.err
}

func (c *storeContext) cancel() { c.end(context.Canceled) }

func (c *storeContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(err)
}

func (c *storeContext) endLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
		c.timer.Stop()
	}
}
