package pgstore

import (
	"context"
	"sync"
	"time"
)

// days are the response partitions that lie ahead, one a day. A response that
// belongs to no day that was made goes to the default partition, from which
// it must be deleted; so they are made before they are needed.
type days struct {
	mu    sync.Mutex // guards what follows
	ahead int        // how many are known to be made, from today
	made  time.Time  // when they were last made, or tried
	busy  bool
}

// daysEvery is how often days are made again, by every node.
const daysEvery = time.Hour

// want sees to it that the day of a response is made soon. It does not wait.
func (d *days) want(s *Store, st *step) {
	if st.reply != replyAttach {
		return
	}
	now := time.Now()
	need := int(st.keeps(now)/(24*time.Hour)) + 2
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy || need <= d.ahead && now.Sub(d.made) < daysEvery || need > d.ahead && now.Sub(d.made) < time.Second {
		return
	}
	d.busy = s.background(func() {
		ctx, cancel := context.WithTimeout(s.stop, time.Minute)
		defer cancel()
		err := s.makeDays(ctx, need, false)
		d.mu.Lock()
		d.busy = false
		d.mu.Unlock()
		if err != nil && s.stop.Err() == nil {
			s.log.Warn("days of responses could not be made ahead", "error", err)
		}
	})
}

// makeDays makes the days that lie ahead and, when over is set, drops those that
// are over: at the end of a pass, when no record refers to them any more.
func (s *Store) makeDays(ctx context.Context, ahead int, over bool) error {
	var made, dropped int
	err := s.pool.QueryRow(ctx, "SELECT made, dropped FROM "+s.schema+".counterfoil_days($1, $2)", ahead, over).Scan(&made, &dropped)
	d := &s.days
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made = time.Now()
	if err != nil {
		return s.explain(err)
	}
	d.ahead = max(d.ahead, ahead)
	return nil
}
