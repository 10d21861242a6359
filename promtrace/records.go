package promtrace

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/sweep"
)

func recordDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descRows          = recordDesc("idempotency_keys_row_count", "Records held.", "operation")
	descInProgress    = recordDesc("idempotency_in_progress_records", "Records whose attempt holds the claim.", "operation")
	descOverdue       = recordDesc("idempotency_overdue_records", "Records in progress whose lease has lapsed.", "operation")
	descUnknown       = recordDesc("idempotency_unknown_records", "Records whose outcome nobody can tell.", "operation")
	descOldestUnknown = recordDesc("idempotency_oldest_unknown_seconds", "Age of the oldest record whose outcome nobody can tell; 0 when there is none.", "operation")
	descBytes         = recordDesc("idempotency_store_bytes", "Bytes held by kind. The operation is empty where the store counts them together.", "operation", "kind")
	descSweep         = recordDesc("idempotency_sweep_last_run_timestamp_seconds", "When a sweep was last completed, by the store's clock; 0 when none ever was.")
)

func describeRecords(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRows, descInProgress, descOverdue, descUnknown, descOldestUnknown, descBytes, descSweep} {
		ch <- d
	}
}

// countTimeout bounds the counting at a scrape; servers give up after 10 s.
const countTimeout = 5 * time.Second

// recordCounts reads what the store holds at a scrape, and not more often than
// every: several servers may scrape, and counting costs the store.
type recordCounts struct {
	every   time.Duration
	onError func(error)

	mu     sync.Mutex // guards what follows; held while the store is asked
	engine *counterfoil.Engine
	at     time.Time
	stats  counterfoil.Stats
	// statsOK and lastOK: the store could be asked.
	statsOK, lastOK bool
	last            sweep.Last
}

func (c *recordCounts) watch(e *counterfoil.Engine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine, c.at = e, time.Time{}
}

func (c *recordCounts) refresh() {
	if !c.at.IsZero() && time.Since(c.at) < c.every {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	var err error
	if c.stats, err = c.engine.Store().Stats(ctx); err != nil {
		c.fail(err)
	}
	c.statsOK = err == nil
	if c.last, err = sweep.LastRun(ctx, c.engine.Store()); err != nil {
		c.fail(err)
	}
	c.lastOK = err == nil
	c.at = time.Now()
}

func (c *recordCounts) fail(err error) {
	if c.onError != nil {
		c.onError(fmt.Errorf("metrics: %w", err))
	}
}

// collect sends the counts, at zero for operations that have no record yet.
func (c *recordCounts) collect(ch chan<- prometheus.Metric, operations []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engine == nil {
		return
	}
	c.refresh()
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if c.lastOK {
		var at float64
		if !c.last.Run.IsZero() {
			at = float64(c.last.Run.UnixMilli()) / 1000
		}
		send(descSweep, at)
	}
	if !c.statsOK {
		return
	}
	for name, o := range c.named(operations) {
		send(descRows, float64(o.Total()), name)
		send(descInProgress, float64(o.Count(counterfoil.InProgress)), name)
		send(descOverdue, float64(o.Overdue), name)
		send(descUnknown, float64(o.Count(counterfoil.Unknown)), name)
		var oldest float64
		if !o.OldestUnknown.IsZero() {
			oldest = max(c.stats.AsOf.Sub(o.OldestUnknown).Seconds(), 0)
		}
		send(descOldestUnknown, oldest, name)
	}
	for kind, n := range c.stats.Bytes {
		send(descBytes, float64(n), "", kind)
	}
}

// named is what the store counted by the operations' names. Numbers that the
// charter does not know go together under no name.
func (c *recordCounts) named(operations []string) map[string]*counterfoil.OperationStats {
	out := make(map[string]*counterfoil.OperationStats, len(operations))
	for _, name := range operations {
		out[name] = &counterfoil.OperationStats{}
	}
	for number, o := range c.stats.Operations {
		name := c.engine.OperationName(number)
		sum := out[name]
		if sum == nil {
			sum = &counterfoil.OperationStats{}
			out[name] = sum
		}
		for i, n := range o.Records {
			sum.Records[i] += n
		}
		sum.Overdue += o.Overdue
		if !o.OldestUnknown.IsZero() && (sum.OldestUnknown.IsZero() || o.OldestUnknown.Before(sum.OldestUnknown)) {
			sum.OldestUnknown = o.OldestUnknown
		}
	}
	return out
}
