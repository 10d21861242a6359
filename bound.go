package counterfoil

import (
	"context"
	"sync"
	"time"
)

// storeContext bounds one store call. It has the caller's values and not its
// end: a caller may go away at any moment, and what is claimed or done is
// recorded all the same (cases.md C31, C40). Its timer is made when somebody
// asks for Done: a store that answers from memory never does, and every
// request makes several calls.
type storeContext struct {
	values context.Context // the caller's, for Value only
	until  time.Time

	mu    sync.Mutex // guards what follows
	err   error
	done  chan struct{}
	timer *time.Timer
}

// bound detaches a store call from ctx and gives it its own time. The caller
// must cancel it.
func (e *Engine) bound(ctx context.Context) *storeContext {
	return &storeContext{values: ctx, until: time.Now().Add(e.o.StoreTimeout)}
}

func (c *storeContext) Value(key any) any { return c.values.Value(key) }

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

// cancel does nothing on nil, the context of a call that was not bound.
func (c *storeContext) cancel() {
	if c != nil {
		c.end(context.Canceled)
	}
}

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
