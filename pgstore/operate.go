package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Doctor looks at server, role and tables for what is known to lose records
// (dangers.md §3.2).
func (s *Store) Doctor(ctx context.Context) (found []Finding, err error) {
	err = s.withConn(ctx, func(c *pgx.Conn) error {
		found, err = examine(ctx, c, s.o.Schema)
		return err
	})
	return found, err
}

// Figures are what the server knows of the tables, cheaply.
func (s *Store) Figures(ctx context.Context) (f Figures, err error) {
	err = s.withConn(ctx, func(c *pgx.Conn) error {
		f, err = figures(ctx, c, s.o.Schema)
		return err
	})
	return f, err
}

// CronJob is the name of the job that sweeps this schema by pg_cron.
func (s *Store) CronJob() string { return cronJob(s.o.Schema) }

// InstallCron has pg_cron sweep inside the database, by the same rules as
// [Store.Sweep]. grace is that of [counterfoil.SweepOrder].
func (s *Store) InstallCron(ctx context.Context, every, grace time.Duration) error {
	return s.withConn(ctx, func(c *pgx.Conn) error { return installCron(ctx, c, s.o.Schema, every, grace) })
}

// RemoveCron takes the job away. It is no error when there is none.
func (s *Store) RemoveCron(ctx context.Context) error {
	return s.withConn(ctx, func(c *pgx.Conn) error { return removeCron(ctx, c, s.o.Schema) })
}

// Cron is the state of the job.
func (s *Store) Cron(ctx context.Context) (st CronStatus, err error) {
	err = s.withConn(ctx, func(c *pgx.Conn) error {
		st, err = cronStatus(ctx, c, s.o.Schema)
		return err
	})
	return st, err
}

func (s *Store) withConn(ctx context.Context, do func(*pgx.Conn) error) error {
	if s.closed.Load() {
		return errClosed
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.unreachable(err)
	}
	defer conn.Release()
	return do(conn.Conn())
}
