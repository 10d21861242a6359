package wire

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/counterfoil/counterfoil/cmd/internal/config"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/migrate"
)

// Postgres is an open PostgreSQL store.
type Postgres = pgstore.Store

// Step is one migration that was run.
type Step = migrate.Step

// SchemaVersion is the version of the tables that this program works with.
const SchemaVersion = pgstore.SchemaVersion

// Migrate makes the tables of a PostgreSQL store, or brings them up to date.
func Migrate(ctx context.Context, s config.Store, partitions int) ([]Step, error) {
	return migrate.Up(ctx, s.URL, migrate.Options{Schema: s.Schema, Partitions: partitions})
}

// MigrationSQL is what Migrate would run.
func MigrationSQL(ctx context.Context, s config.Store, partitions int) (string, error) {
	return migrate.SQL(ctx, s.URL, migrate.Options{Schema: s.Schema, Partitions: partitions})
}

// database publishes what a PostgreSQL store's server says of itself
// (docs/operations.md). It asks when it is scraped, and not more than every
// figuresFor.
type database struct {
	store   *pgstore.Store
	onError func(error)

	mu    sync.Mutex // held while asking
	last  pgstore.Figures
	asked time.Time
}

const figuresFor = 15 * time.Second

var (
	cronRun    = prometheus.NewDesc("pg_cron_last_run_timestamp", "When the sweep that pg_cron runs last ended well, in seconds since 1970.", []string{"job"}, nil)
	deadTuples = prometheus.NewDesc("idempotency_postgres_dead_tuples", "Rows of the records' table that were deleted or replaced and wait for VACUUM.", nil, nil)
	oldestXmin = prometheus.NewDesc("idempotency_postgres_oldest_xmin_age_seconds", "How long the oldest snapshot has been open that keeps dead rows from VACUUM.", nil, nil)
	indexBytes = prometheus.NewDesc("idempotency_postgres_index_bytes", "What the indexes of all tables take up.", nil, nil)
)

// Describe implements prometheus.Collector.
func (d *database) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{cronRun, deadTuples, oldestXmin, indexBytes} {
		to <- desc
	}
}

// Collect implements prometheus.Collector. Without figures it publishes none:
// an old value would look like a fresh one.
func (d *database) Collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.asked) > figuresFor {
		ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
		defer cancel()
		f, err := d.store.Figures(ctx)
		if err != nil {
			d.onError(err)
			return
		}
		d.last, d.asked = f, time.Now()
	}
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	if !d.last.CronLastRun.IsZero() {
		gauge(cronRun, float64(d.last.CronLastRun.UnixMilli())/1000, d.store.CronJob())
	}
	gauge(deadTuples, float64(d.last.DeadTuples))
	gauge(oldestXmin, d.last.OldestXmin.Seconds())
	gauge(indexBytes, float64(d.last.IndexBytes))
}
