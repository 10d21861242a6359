// Package migrate makes the schema of a [github.com/counterfoil/counterfoil/pgstore]
// and brings it up to date. It is apart from pgstore so that a program that
// only uses a store does not link goose.
//
// Migrations go forward only: what a record proves is never dropped. Each runs
// in a transaction of its own, so one that fails leaves nothing of itself
// behind. Two nodes that migrate at once take turns by an advisory lock, which
// lives as long as a session; a pooler between would hand the session to
// others, so Up refuses to work through one (PgBouncer, and what answers like
// it). Give it a direct connection, or run the output of [SQL] by hand.
package migrate

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed sql/*.sql
var embedded embed.FS

// files are the migrations, without their folder.
func files() fs.FS {
	f, err := fs.Sub(embedded, "sql")
	if err != nil {
		panic(err) // "sql" is a valid path
	}
	return f
}

// Options say where the tables are. The zero value works.
type Options struct {
	// Schema is where the tables are made; "" stands for pgstore.DefaultSchema.
	// It is made if it is not there. See [pgstore.QuoteSchema] for what it may be
	// called.
	Schema string
	// Partitions is the number of partitions of the records, by hash of their
	// id; 0 and 1 stand for a plain table. It counts when the table is made and
	// is not changed afterwards.
	Partitions int
	// Progress is told of each migration when it is done. May be nil.
	Progress func(Step)
}

// Step is one migration that was run.
type Step struct {
	Version int64
	// Name is the migration's file.
	Name string
	Took time.Duration
}

// maxPartitions is what PostgreSQL's planner bears without notice, with room.
const maxPartitions = 256

// withDefaults checks the options, and says all that is wrong with them.
func (o Options) withDefaults() (Options, error) {
	if o.Schema == "" {
		o.Schema = pgstore.DefaultSchema
	}
	var faults []error
	switch _, err := pgstore.QuoteSchema(o.Schema); {
	case err != nil:
		faults = append(faults, err)
	case strings.HasPrefix(strings.ToLower(o.Schema), "pg_"), strings.EqualFold(o.Schema, "information_schema"):
		faults = append(faults, fmt.Errorf("schema %q: the name is PostgreSQL's own", o.Schema))
	}
	if o.Partitions < 0 || o.Partitions > maxPartitions {
		faults = append(faults, fmt.Errorf("%d partitions: use 0 to %d", o.Partitions, maxPartitions))
	}
	if len(faults) > 0 {
		return o, fmt.Errorf("migrate: %w", errors.Join(faults...))
	}
	return o, nil
}

// schema is the quoted name of the schema.
func (o Options) schema() string { return pgx.Identifier{o.Schema}.Sanitize() }

// table is the quoted name of the table of versions.
func (o Options) table() string { return o.schema() + "." + versionTable }

// numbers are those of the partitions; none for a plain table.
func (o Options) numbers() []int {
	if o.Partitions < 2 {
		return nil
	}
	n := make([]int, o.Partitions)
	for i := range n {
		n[i] = i
	}
	return n
}

// lockKey is the advisory lock that whoever migrates the schema holds.
// Advisory locks are per database.
func (o Options) lockKey() int64 {
	h := fnv.New64a()
	h.Write([]byte("counterfoil migrate " + o.Schema))
	return int64(h.Sum64() >> 1)
}

// Up makes the schema if it is not there and runs the migrations that are
// pending. It returns those it ran: none when the schema is up to date, or when
// another node ran them meanwhile; on an error, those before the one that
// failed. url is a connection string as pgx takes it.
//
// It returns counterfoil.ErrUnavailable when the server cannot be reached or
// takes no writes, and pgstore.ErrSchema when the tables are of a newer version
// than this program knows.
func Up(ctx context.Context, url string, o Options) ([]Step, error) {
	return up(ctx, url, o, files())
}

func up(ctx context.Context, url string, o Options, files fs.FS) ([]Step, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	set, err := render(files, o)
	if err != nil {
		return nil, err
	}
	conn, err := connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer closeConn(conn)
	current, err := version(ctx, conn, o)
	if err != nil {
		return nil, err
	}
	if current == set.latest() {
		return nil, nil
	}
	if err := set.readable(current); err != nil {
		return nil, err
	}
	if err := direct(ctx, conn); err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, settings(false)+set.head()); err != nil {
		return nil, explain(ctx, conn, o, fmt.Errorf("migrate: make the schema %s: %w", o.Schema, err))
	}
	done, err := run(ctx, conn.Config(), o, set)
	if err != nil {
		return done, explain(ctx, conn, o, err)
	}
	// A newer program may have migrated while this one waited for its turn.
	if current, err = version(ctx, conn, o); err != nil {
		return done, err
	}
	return done, set.readable(current)
}

// run runs what is pending, one at a time, each under the lock.
func run(ctx context.Context, cfg *pgx.ConnConfig, o Options, set migrations) (_ []Step, err error) {
	db := stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, settings(false))
		return err
	}))
	defer func() { err = errors.Join(err, db.Close()) }()
	table, err := versionStore(o)
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(o.lockKey()), lock.WithLockTimeout(1, 600))
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectCustom, db, set,
		goose.WithStore(table),
		goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true), // a caller's own migrations are none of ours
		goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	var done []Step
	for {
		r, err := p.UpByOne(ctx)
		var partial *goose.PartialError
		switch {
		case errors.Is(err, goose.ErrNoNextVersion): // or another node ran it while this one waited
			return done, nil
		case errors.As(err, &partial):
			return done, fmt.Errorf("migrate: %s: %w", partial.Failed.Source.Path, partial.Err)
		case err != nil:
			return done, fmt.Errorf("migrate: %w", err)
		}
		s := Step{Version: r.Source.Version, Name: r.Source.Path, Took: r.Duration}
		done = append(done, s)
		if o.Progress != nil {
			o.Progress(s)
		}
	}
}

// Version is the version that the schema has, 0 if there is none, and the one
// that this program brings it to.
func Version(ctx context.Context, url, schema string) (current, latest int64, err error) {
	o, err := Options{Schema: schema}.withDefaults()
	if err != nil {
		return 0, 0, err
	}
	set, err := render(files(), o)
	if err != nil {
		return 0, 0, err
	}
	conn, err := connect(ctx, url)
	if err != nil {
		return 0, 0, err
	}
	defer closeConn(conn)
	current, err = version(ctx, conn, o)
	return current, set.latest(), err
}

// version is the version that the schema has, 0 if there is none.
func version(ctx context.Context, conn *pgx.Conn, o Options) (int64, error) {
	var there bool
	var v sql.NullInt64
	err := conn.QueryRow(ctx, versionTableExists(o.table()), pgx.QueryExecModeSimpleProtocol).Scan(&there)
	if err == nil && there {
		err = conn.QueryRow(ctx, "SELECT max(version_id) FROM "+o.table(), pgx.QueryExecModeSimpleProtocol).Scan(&v)
	}
	if err != nil {
		return 0, explain(ctx, conn, o, fmt.Errorf("migrate: read the version of the schema %s: %w", o.Schema, err))
	}
	return v.Int64, nil
}

// readable refuses a schema that is newer than these migrations.
func (m migrations) readable(current int64) error {
	if current > m.latest() {
		return fmt.Errorf("migrate: %w: the schema %s has version %d, and this program knows versions up to %d; use a newer one",
			pgstore.ErrSchema, m.o.Schema, current, m.latest())
	}
	return nil
}
