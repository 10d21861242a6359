package storetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
)

// benchChunk bounds how many pairs one store takes during a benchmark, so that
// a store in memory does not outgrow the machine. Opening the next is not
// measured.
const benchChunk = 200_000

// Bench measures pairs, a claim of a new key and its completion with a
// response of 1 KiB (performance.md), at 1, 16 and 256 callers, on the wall
// clock. Beside the time per pair it reports pairs/s.
func Bench(b *testing.B, o Options) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("pairs/callers=%d", callers), func(b *testing.B) {
			b.ReportAllocs()
			b.StopTimer()
			var spent time.Duration
			for done := 0; done < b.N; {
				n := min(b.N-done, benchChunk)
				s := o.Open(b, nil)
				start := time.Now()
				b.StartTimer()
				pairs(b, s, callers, n)
				b.StopTimer()
				spent += time.Since(start)
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				done += n
			}
			b.ReportMetric(float64(b.N)/spent.Seconds(), "pairs/s")
		})
	}
}

// pairs lets callers make n pairs between them.
func pairs(b *testing.B, s counterfoil.Store, callers, n int) {
	body := noise(1 << 10)
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			var c caller // its drafts are no garbage of the store's
			for {
				i := taken.Add(1)
				if i > int64(n) {
					return
				}
				if err := c.pair(s, uint64(i), body); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// caller is one who makes pairs.
type caller struct {
	d counterfoil.Draft
	w counterfoil.Write
}

// pair claims key i and completes it. IDs are spread as digests are.
func (c *caller) pair(s counterfoil.Store, i uint64, body []byte) error {
	ctx := context.Background()
	now := counterfoil.In(0)
	c.d = counterfoil.Draft{
		Record: counterfoil.Record{
			Operation: opPay, State: counterfoil.InProgress, Attempt: 1, Policy: 1, Dispatched: true,
			Fingerprint: counterfoil.Fingerprint{Version: 1},
		},
		Stamps: counterfoil.Stamps{
			CreatedAt: now, ClaimedAt: now, FirstDispatch: now, LastDispatch: now,
			LeaseUntil: counterfoil.In(30 * time.Second), QuietAt: counterfoil.In(90 * time.Second),
		},
	}
	r := &c.d.Record
	spread := i * 0x9e3779b97f4a7c15
	binary.BigEndian.PutUint64(r.ID[:], spread)
	binary.BigEndian.PutUint64(r.ID[8:], spread^i)
	binary.BigEndian.PutUint64(r.Token[:], i)
	binary.BigEndian.PutUint64(r.Fingerprint.Sum[:], spread)
	binary.BigEndian.PutUint32(r.Principal[:], uint32(i%1000))
	st, err := s.Create(ctx, &c.d)
	if err != nil {
		return err
	}
	if !st.Created {
		return fmt.Errorf("key %d was not new", i)
	}
	c.w = counterfoil.Write{
		Record: st.Record, IfRev: st.Record.Rev, IfToken: st.Record.Token, Response: body,
		Stamps: counterfoil.Stamps{
			SettledAt: now, ReplayUntil: counterfoil.In(24 * time.Hour), Horizon: counterfoil.In(9 * 24 * time.Hour),
		},
	}
	c.w.Record.State = counterfoil.Completed
	c.w.Record.Outcome = counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201, Resource: "/pay/1"}
	_, err = s.Update(ctx, &c.w)
	return err
}
