package pgstore_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/migrate"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
	"github.com/counterfoil/counterfoil/storetest"
)

// lossy opens servers that run without fsync, as most tests' do.
var lossy = pgstore.Options{AcceptLoss: true}

// databases of the shared server are used again: emptying one takes a tenth of
// the time that making one takes.
var databases struct {
	sync.Mutex
	free map[string][]string // by how they were made
}

// database has the tables, and nothing in them. It belongs to the test.
func database(t testing.TB) string {
	t.Helper()
	return databaseWith(t, migrate.Options{})
}

// databaseWith has tables made in another way. Its URL names the schema, so
// that the test need not.
func databaseWith(t testing.TB, o migrate.Options) string {
	t.Helper()
	kind := fmt.Sprint(o.Schema, o.Partitions)
	databases.Lock()
	var url string
	if free := databases.free[kind]; len(free) > 0 {
		url, databases.free[kind] = free[len(free)-1], free[:len(free)-1]
	}
	databases.Unlock()
	if url == "" {
		s := pgtest.Shared(t)
		name := fmt.Sprintf("again%d", again.Add(1))
		pgtest.Exec(t, s.URL("postgres"), "CREATE DATABASE "+name)
		url = s.URL(name)
		if _, err := migrate.Up(t.Context(), url, o); err != nil {
			t.Fatal(err)
		}
		if o.Schema != "" {
			url = with(t, url, `search_path="`+o.Schema+`"`)
		}
	}
	t.Cleanup(func() {
		pgtest.Exec(t, url, `TRUNCATE counterfoil_records, counterfoil_responses, counterfoil_meta, counterfoil_forgotten;
			UPDATE counterfoil_store SET id = gen_random_uuid(), response_days = 2;
			CREATE OR REPLACE FUNCTION counterfoil_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';
			DROP TABLE IF EXISTS test_clock`)
		databases.Lock()
		defer databases.Unlock()
		if databases.free == nil {
			databases.free = map[string][]string{}
		}
		databases.free[kind] = append(databases.free[kind], url)
	})
	return url
}

var again atomic.Int64

// open opens the store of a URL.
func open(t testing.TB, url string, o pgstore.Options) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(context.Background(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// timed is a store whose server takes its time from a clock of the suite: the
// function counterfoil_now is replaced, and reads a table that is written
// before each call.
type timed struct {
	counterfoil.Store
	url   string
	clock *storetest.Clock
	pool  *pgxpool.Pool
	// steady keeps the server's clock from going back, for the comparison with a
	// store whose time does not.
	steady bool

	mu   sync.Mutex // guards last
	last time.Time
}

func newTimed(t testing.TB, url string, s counterfoil.Store, clock *storetest.Clock) *timed {
	t.Helper()
	schema := pgtest.Value[string](t, url, "SELECT quote_ident(current_schema())")
	pgtest.Exec(t, url, `CREATE TABLE IF NOT EXISTS test_clock (at timestamptz);
		CREATE OR REPLACE FUNCTION counterfoil_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT coalesce((SELECT max(at) FROM `+schema+`.test_clock), clock_timestamp())'`)
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &timed{Store: s, url: url, clock: clock, pool: pool}
}

// tell sets the server's clock.
func (s *timed) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if now.Equal(s.last) || s.steady && now.Before(s.last) {
		return
	}
	_, err := s.pool.Exec(context.Background(), "WITH gone AS (DELETE FROM test_clock) INSERT INTO test_clock VALUES ($1)", now)
	if err != nil {
		panic(err)
	}
	s.last = now
}

func (s *timed) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	s.tell()
	return s.Store.Create(ctx, d)
}

func (s *timed) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	s.tell()
	return s.Store.Update(ctx, w)
}

func (s *timed) Get(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	s.tell()
	return s.Store.Get(ctx, id)
}

func (s *timed) Overdue(ctx context.Context, p counterfoil.Page) (counterfoil.Records, error) {
	s.tell()
	return s.Store.Overdue(ctx, p)
}

func (s *timed) Scan(ctx context.Context, q counterfoil.Query) (counterfoil.Records, error) {
	s.tell()
	return s.Store.Scan(ctx, q)
}

func (s *timed) Sweep(ctx context.Context, o counterfoil.SweepOrder) (counterfoil.SweepReport, error) {
	s.tell()
	return s.Store.Sweep(ctx, o)
}

func (s *timed) Stats(ctx context.Context) (counterfoil.Stats, error) {
	s.tell()
	return s.Store.Stats(ctx)
}

// with adds parameters to a URL.
func with(t testing.TB, raw string, more ...string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for _, m := range more {
		k, v, _ := strings.Cut(m, "=")
		q.Set(k, v)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// connect is a connection that the test uses itself.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}
