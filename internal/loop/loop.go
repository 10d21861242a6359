// Package loop is the dull part of every background worker: do one pass, wait,
// do the next, whatever became of the one before.
package loop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// Run calls once after first, and then again and again, with every between the
// end of one pass and the start of the next, until ctx ends. Each wait after
// the first varies by a tenth either way, so that nodes that started together
// do not go on asking their store together.
//
// A panic in once does not end the loop: it is recovered and reported like an
// error (cases.md C82). onError may be nil; it is not called for an error that
// only says that ctx has ended.
func Run(ctx context.Context, first, every time.Duration, once func(context.Context) error, onError func(error)) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := Recover(func() error { return once(ctx) })
		if ctx.Err() != nil {
			return
		}
		if err != nil && onError != nil {
			onError(err)
		}
		timer.Reset(jitter(every))
	}
}

// Recover calls f and turns a panic in it into an error that carries the stack.
func Recover(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// jitter is d, give or take a tenth.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
