package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/counterfoil/counterfoil"
)

// Store is a [counterfoil.Store] in PostgreSQL. It is safe for concurrent use,
// and so are any number of them, in any number of processes, on one schema.
type Store struct {
	o      Options
	log    *slog.Logger
	pool   *pgxpool.Pool
	schema string // quoted
	apply  applier
	info   counterfoil.Info

	writes, reads *queue
	workers       sync.WaitGroup
	stop          context.Context // ends with Close
	cancel        context.CancelFunc
	closed        atomic.Bool

	mu       sync.Mutex // guards what follows
	underWay map[*pgxpool.Conn]struct{}
	hangUp   bool // every connection is ended, and none is used any more

	days  days
	stats statsCache
}

var _ counterfoil.Store = (*Store)(nil)

// Open connects to the server of the URL (a connection string of libpq, with
// the settings of pgxpool, such as pool_max_conns) and checks that the tables
// are there. It makes nothing: package pgstore/migrate does. A setting under
// which records could be lost silently is an error (dangers.md §3.2); [Store.Doctor]
// says the rest.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", redact(err))
	}
	return OpenConfig(ctx, config, o)
}

// OpenConfig is [Open] with a pool's configuration, which the store changes:
// to dial so that no statement is ever cancelled, and to prepare none.
func OpenConfig(ctx context.Context, config *pgxpool.Config, o Options) (_ *Store, err error) {
	quoted, err := QuoteSchema(o.Schema)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	if o.Schema == "" {
		o.Schema = DefaultSchema
	}
	if o.Workers <= 0 {
		o.Workers = 2
	}
	if o.Batch <= 0 {
		o.Batch = 256
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	prepare(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", redact(err))
	}
	defer func() {
		if err != nil {
			pool.Close()
		}
	}()
	s := &Store{o: o, log: o.Logger, pool: pool, schema: quoted, apply: newApplier(o.Schema, quoted), writes: newQueue(), reads: newQueue()}
	s.stop, s.cancel = context.WithCancel(context.Background())
	if err := s.examineOnce(ctx); err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	for range o.Workers {
		s.workers.Add(2)
		go (&worker{s, s.writes}).run()
		go (&worker{s, s.reads}).run()
	}
	if err := s.makeDays(ctx, 0, false); err != nil {
		s.log.Warn("days of responses could not be made ahead", "error", err)
	}
	return s, nil
}

// prepare sets up how connections are made.
func prepare(config *pgxpool.Config) {
	c := config.ConnConfig
	c.DefaultQueryExecMode = pgx.QueryExecModeExec // nothing is prepared: PgBouncer (dangers.md G09)
	c.StatementCacheCapacity, c.DescriptionCacheCapacity = 0, 0
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "counterfoil"
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 5 * time.Second
	}
	notice := c.OnNotice
	c.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			if count, ok := conn.CustomData()[warningsKey].(*atomic.Int64); ok {
				count.Add(1)
			}
		}
		if notice != nil {
			notice(conn, n)
		}
	}
	before := config.BeforeConnect
	config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, c); err != nil {
				return err
			}
		}
		// pgx cancels what runs on a connection that broke, by dialling again. A
		// cancelled wait for a standby is an unconfirmed commit that everybody
		// sees, so a connection dials once (dangers.md G02, reliability.md F1).
		var connected atomic.Bool
		dial := c.DialFunc
		if dial == nil {
			dial = (&net.Dialer{Timeout: c.ConnectTimeout}).DialContext
		}
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if connected.Load() {
				return nil, errors.New("statements are not cancelled")
			}
			conn, err := dial(ctx, network, addr)
			if err == nil {
				keepAlive(conn)
			}
			return conn, err
		}
		after := c.AfterConnect
		c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			connected.Store(true)
			conn.CustomData()[warningsKey] = new(atomic.Int64)
			if after != nil {
				return after(ctx, conn)
			}
			return nil
		}
		return nil
	}
}

// examineOnce reads what the store is, and refuses what would lose records.
func (s *Store) examineOnce(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, redact(err))
	}
	defer conn.Release()
	if err := checkVersion(ctx, conn.Conn(), s.schema, s.o.Schema); err != nil {
		return err
	}
	found, err := examine(ctx, conn.Conn(), s.o.Schema)
	if err != nil {
		return s.explain(err)
	}
	if s.o.AcceptLoss {
		found = slices.DeleteFunc(found, func(f Finding) bool { return f.Code == "G07" })
	}
	if err := refuse(found); err != nil {
		return err
	}
	s.info.Kind = "postgres"
	if s.info.Durability, _, err = durability(ctx, conn.Conn()); err != nil {
		return s.explain(err)
	}
	if err := conn.QueryRow(ctx, "SELECT id::text FROM "+s.schema+".counterfoil_store").Scan(&s.info.ID); err != nil {
		return s.explain(err)
	}
	s.info.ID = strings.ReplaceAll(s.info.ID, "-", "")
	return nil
}

// checkVersion compares the tables with [SchemaVersion].
func checkVersion(ctx context.Context, conn *pgx.Conn, quoted, name string) error {
	var there bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", quoted+".counterfoil_migrations").Scan(&there); err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("%w: schema %s has none; run counterfoil store migrate", ErrSchema, name)
	}
	var have int64
	err := conn.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+quoted+".counterfoil_migrations WHERE is_applied").Scan(&have)
	switch {
	case err != nil:
		return err
	case have < SchemaVersion:
		return fmt.Errorf("%w: schema %s has version %d and this version needs %d; run counterfoil store migrate", ErrSchema, name, have, SchemaVersion)
	case have > SchemaVersion:
		return fmt.Errorf("%w: schema %s has version %d, made by a newer counterfoil; this one knows %d", ErrSchema, name, have, SchemaVersion)
	}
	return nil
}

// Info implements [counterfoil.Store].
func (s *Store) Info() counterfoil.Info { return s.info }

// closeTimeout is how long Close waits for what the server has not answered.
const closeTimeout = 5 * time.Second

// Close finishes what is queued and closes the pool. What the server does not
// answer in 5 s, a commit that waits for a standby for one, is left to it: the
// connection is ended and the callers get an error. Nothing is cancelled.
func (s *Store) Close() error {
	s.mu.Lock() // no background work begins after this
	was := s.closed.Swap(true)
	s.mu.Unlock()
	if was {
		return nil
	}
	s.writes.close()
	s.reads.close()
	impatient := time.AfterFunc(closeTimeout, s.endConnections)
	s.workers.Wait()
	impatient.Stop()
	s.cancel()
	s.pool.Close()
	return nil
}

// background runs f beside the callers, unless the store is closing.
func (s *Store) background(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return false
	}
	s.workers.Go(f)
	return true
}

// begin notes that a batch is under way on the connection; false when there is
// to be none.
func (s *Store) begin(conn *pgxpool.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangUp {
		return false
	}
	if s.underWay == nil {
		s.underWay = map[*pgxpool.Conn]struct{}{}
	}
	s.underWay[conn] = struct{}{}
	return true
}

func (s *Store) end(conn *pgxpool.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.underWay, conn)
}

// endConnections makes calls that are under way fail.
func (s *Store) endConnections() {
	s.cancel() // nobody waits for a connection any longer
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangUp = true
	for conn := range s.underWay {
		_ = conn.Conn().PgConn().Conn().Close()
	}
}

// redact takes the password out of an error that quotes a URL.
func redact(err error) error {
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return err
	}
	return errors.New(parse.Error())
}
