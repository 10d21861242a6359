package storecopy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/internal/loop"
)

// callTimeout bounds the reading of a page, and what is done for one record: a
// store that hangs must not hang the copy.
const callTimeout = time.Minute

// pass calls each for every record of s, many at a time, page by page.
func (r *run) pass(ctx context.Context, s counterfoil.Store, phase Phase, each func(context.Context, *counterfoil.Record) error) error {
	q := counterfoil.Query{Page: counterfoil.Page{Limit: r.o.Page}}
	p := Progress{Phase: phase, Total: r.total}
	for {
		page, err := scan(ctx, s, q)
		if err == nil && page.Next != nil && bytes.Equal(page.Next, q.Cursor) {
			err = errors.New("the store's scan does not move on")
		}
		if err == nil {
			err = r.together(ctx, page.Records, each)
		}
		if err != nil {
			return fmt.Errorf("%s, after %d of %d records: %w", phase, p.Done, p.Total, err)
		}
		p.Done += int64(len(page.Records))
		if r.o.Progress != nil {
			r.o.Progress(p)
		}
		if page.Next == nil {
			return nil
		}
		q.Cursor = page.Next
	}
}

func scan(ctx context.Context, s counterfoil.Store, q counterfoil.Query) (counterfoil.Records, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.Scan(ctx, q)
}

// together calls each for all records of a page and waits. The first error ends
// it and is returned.
func (r *run) together(ctx context.Context, records []counterfoil.Record, each func(context.Context, *counterfoil.Record) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(r.o.Workers, len(records)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(records) {
					return
				}
				err := loop.Recover(func() error {
					ctx, cancel := context.WithTimeout(ctx, callTimeout)
					defer cancel()
					return each(ctx, &records[i])
				})
				if err != nil {
					stop(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
