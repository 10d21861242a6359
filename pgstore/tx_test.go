package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/storetest"
)

// eachInTx is a store each of whose calls runs in a transaction of its own, as
// a caller's would. It begins again where serialization failed or another
// transaction was in the way, as callers do.
type eachInTx struct {
	*pgstore.Store
	begin func(ctx context.Context) (tx *pgstore.TxStore, commit, rollback func() error, err error)
}

func inTx[T any](s *eachInTx, ctx context.Context, call func(*pgstore.TxStore) (T, error)) (T, error) {
	for try := 0; ; try++ {
		out, err := func() (out T, err error) {
			tx, commit, rollback, err := s.begin(ctx)
			if err != nil {
				return out, err
			}
			out, err = call(tx)
			if err != nil {
				return out, errors.Join(err, rollback())
			}
			return out, commit()
		}()
		var pg *pgconn.PgError
		again := errors.As(err, &pg) && pg.Code == "40001" || errors.Is(err, counterfoil.ErrBusy)
		if !again || try > 1000 {
			return out, err
		}
		<-time.After(time.Duration(1+try%5) * time.Millisecond)
	}
}

func (s *eachInTx) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	return inTx(s, ctx, func(t *pgstore.TxStore) (counterfoil.Standing, error) {
		st, err := t.Create(ctx, d)
		// In a transaction a committed record is never one's own; the suite asks
		// for that of single calls.
		st.Created = st.Created || err == nil && !d.Record.Token.IsZero() && st.Record.Token == d.Record.Token
		return st, err
	})
}

func (s *eachInTx) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	return inTx(s, ctx, func(t *pgstore.TxStore) (counterfoil.Snapshot, error) { return t.Update(ctx, w) })
}

func (s *eachInTx) Get(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	return inTx(s, ctx, func(t *pgstore.TxStore) (counterfoil.Snapshot, error) { return t.Get(ctx, id) })
}

func (s *eachInTx) Response(ctx context.Context, id counterfoil.ID, rev uint64) ([]byte, error) {
	return inTx(s, ctx, func(t *pgstore.TxStore) ([]byte, error) { return t.Response(ctx, id, rev) })
}

// TestInTx runs the suite with every step in a transaction of the caller's, of
// both kinds and at both ends of isolation.
func TestInTx(t *testing.T) {
	for _, mode := range []struct {
		kind string
		iso  pgx.TxIsoLevel
	}{{"pgx", pgx.ReadCommitted}, {"pgx", pgx.Serializable}, {"sql", pgx.ReadCommitted}} {
		kind, iso := mode.kind, mode.iso
		t.Run(kind+"/"+string(iso), func(t *testing.T) {
			t.Parallel()
			o := suite(lossy)
			o.SharedQuota, o.Brief = true, true
			wrap := func(t testing.TB, s *pgstore.Store, url string) counterfoil.Store {
				if kind == "sql" {
					db, err := sql.Open("pgx", url)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { db.Close() })
					level := sql.LevelReadCommitted
					if iso == pgx.Serializable {
						level = sql.LevelSerializable
					}
					return &eachInTx{s, func(ctx context.Context) (*pgstore.TxStore, func() error, func() error, error) {
						tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
						if err != nil {
							return nil, nil, nil, err
						}
						return s.InSQLTx(tx), tx.Commit, tx.Rollback, nil
					}}
				}
				pool := poolOf(t, url)
				return &eachInTx{s, func(ctx context.Context) (*pgstore.TxStore, func() error, func() error, error) {
					tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: iso})
					if err != nil {
						return nil, nil, nil, err
					}
					bg := context.WithoutCancel(ctx)
					return s.InTx(tx), func() error { return tx.Commit(bg) }, func() error { return tx.Rollback(bg) }, nil
				}}
			}
			o.Open = func(t testing.TB, clock *storetest.Clock) counterfoil.Store {
				url := database(t)
				return newTimed(t, url, wrap(t, open(t, url, lossy), url), clock)
			}
			o.Reopen = func(t testing.TB, s counterfoil.Store, clock *storetest.Clock) counterfoil.Store {
				old := s.(*timed)
				if err := old.Close(); err != nil {
					t.Fatal(err)
				}
				return newTimed(t, old.url, wrap(t, open(t, old.url, lossy), old.url), clock)
			}
			storetest.Run(t, o)
		})
	}
}

func poolOf(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// bank is two accounts beside the records, and an engine.
type bank struct {
	t      *testing.T
	url    string
	store  *pgstore.Store
	engine *counterfoil.Engine
	pool   *pgxpool.Pool
}

func newBank(t *testing.T, wait time.Duration) *bank {
	t.Helper()
	url := database(t)
	pgtest.Exec(t, url, `DROP TABLE IF EXISTS account, entry;
		CREATE TABLE account (name text PRIMARY KEY, balance bigint NOT NULL);
		CREATE TABLE entry (key text);
		INSERT INTO account VALUES ('a', 1000), ('b', 1000)`)
	t.Cleanup(func() { pgtest.Exec(t, url, "DROP TABLE account, entry") })
	b := &bank{t: t, url: url, store: open(t, url, lossy), pool: poolOf(t, url)}
	op := policy.NewOperation("transfer")
	op.Inputs.ClientRetryBudget.Value = time.Hour
	op.Scope.Principal = policy.Principal{Kind: policy.PrincipalHeader, Header: "X-Account"}
	op.Wait = wait
	p := &policy.Policy{Version: 1, Operations: []policy.Operation{op}}
	p.Normalize()
	var err error
	if b.engine, err = counterfoil.Open(t.Context(), b.store, p, counterfoil.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.engine.Close(context.Background()) })
	return b
}

func (b *bank) request(key string) *counterfoil.Request {
	return &counterfoil.Request{
		Operation: "transfer", Principal: "acme", Key: counterfoil.Key(key),
		Fingerprint: func(*policy.Operation, uint8) (counterfoil.Fingerprint, error) {
			return counterfoil.Fingerprint{Version: 1, Sum: [16]byte{1}}, nil
		},
	}
}

// transfer is the effect: it moves 10 from a to b and says so.
func transfer(ctx context.Context, tx pgx.Tx, key string) (counterfoil.Result, error) {
	var a, b int64
	if err := tx.QueryRow(ctx, "SELECT (SELECT balance FROM account WHERE name = 'a'), (SELECT balance FROM account WHERE name = 'b')").Scan(&a, &b); err != nil {
		return counterfoil.Result{}, err
	}
	for _, q := range []string{"UPDATE account SET balance = balance - 10 WHERE name = 'a'", "UPDATE account SET balance = balance + 10 WHERE name = 'b'"} {
		if _, err := tx.Exec(ctx, q); err != nil {
			return counterfoil.Result{}, err
		}
	}
	if _, err := tx.Exec(ctx, "INSERT INTO entry VALUES ($1)", key); err != nil {
		return counterfoil.Result{}, err
	}
	return counterfoil.Result{Outcome: counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201}, Response: []byte("moved " + key)}, nil
}

// balanced wants n transfers, each once.
func (b *bank) balanced(n int64) {
	b.t.Helper()
	if got := pgtest.Value[int64](b.t, b.url, "SELECT count(*) FROM entry"); got != n {
		b.t.Errorf("%d transfers happened, want %d", got, n)
	}
	if got := pgtest.Value[int64](b.t, b.url, "SELECT count(DISTINCT key) FROM entry"); got != n {
		b.t.Errorf("%d keys moved money, want %d", got, n)
	}
	if got := pgtest.Value[int64](b.t, b.url, "SELECT balance FROM account WHERE name = 'b'"); got != 1000+10*n {
		b.t.Errorf("b has %d, want %d", got, 1000+10*n)
	}
}

func (b *bank) do(key string, o pgx.TxOptions) (*counterfoil.Decision, error) {
	return b.store.Do(context.Background(), b.engine, b.pool, o, b.request(key), func(ctx context.Context, tx pgx.Tx, _ *counterfoil.Claim) (counterfoil.Result, error) {
		return transfer(ctx, tx, key)
	})
}

// P1 P3: claim, effect and completion commit together, and a repeat replays.
func TestDo(t *testing.T) {
	b := newBank(t, 0)
	first, err := b.do("k1", pgx.TxOptions{})
	if err != nil || first.Verdict != counterfoil.VerdictProceed || first.Record.State != counterfoil.Completed {
		t.Fatalf("first: %+v, %v", first, err)
	}
	for range 3 {
		d, err := b.do("k1", pgx.TxOptions{})
		if err != nil || d.Verdict != counterfoil.VerdictReplay || string(d.Response) != "moved k1" {
			t.Fatalf("repeat: %+v, %v", d, err)
		}
	}
	d, err := b.engine.Begin(t.Context(), b.request("k1"))
	if err != nil || d.Verdict != counterfoil.VerdictReplay || string(d.Response) != "moved k1" {
		t.Fatalf("repeat outside of transactions: %+v, %v", d, err)
	}
	b.balanced(1)
}

// An effect that fails, and one that panics, leave no trace: the key is new.
func TestDoRollsBack(t *testing.T) {
	b := newBank(t, 0)
	broken := errors.New("no funds")
	fail := func(do func()) func(context.Context, pgx.Tx, *counterfoil.Claim) (counterfoil.Result, error) {
		return func(ctx context.Context, tx pgx.Tx, _ *counterfoil.Claim) (counterfoil.Result, error) {
			if _, err := transfer(ctx, tx, "k1"); err != nil {
				return counterfoil.Result{}, err
			}
			do()
			return counterfoil.Result{}, broken
		}
	}
	if _, err := b.store.Do(t.Context(), b.engine, b.pool, pgx.TxOptions{}, b.request("k1"), fail(func() {})); !errors.Is(err, broken) {
		t.Fatalf("got %v, want the effect's error", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not go on")
			}
		}()
		_, _ = b.store.Do(t.Context(), b.engine, b.pool, pgx.TxOptions{}, b.request("k1"), fail(func() { panic("bug") }))
	}()
	b.balanced(0)
	if n := pgtest.Value[int64](t, b.url, "SELECT count(*) FROM counterfoil_records"); n != 0 {
		t.Fatalf("%d records are left of transactions that were rolled back", n)
	}
	if d, err := b.do("k1", pgx.TxOptions{}); err != nil || d.Verdict != counterfoil.VerdictProceed {
		t.Fatalf("after rollback: %+v, %v", d, err)
	}
	b.balanced(1)
}

// A duplicate that meets an uncommitted claim is told so at once, inside a
// transaction and outside, and its transaction stays usable.
func TestDuplicateOfAnOpenTransaction(t *testing.T) {
	b := newBank(t, 0)
	ctx := t.Context()
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	d, err := b.engine.InTx(b.store.InTx(tx)).Begin(ctx, b.request("k1"))
	if err != nil || d.Verdict != counterfoil.VerdictProceed {
		t.Fatalf("first: %+v, %v", d, err)
	}
	start := time.Now()
	got, err := b.engine.Begin(ctx, b.request("k1"))
	if err != nil || got.Verdict != counterfoil.VerdictInProgress {
		t.Fatalf("outside: %+v, %v", got, err)
	}
	other, err := b.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback(ctx)
	got, err = b.engine.InTx(b.store.InTx(other)).Begin(ctx, b.request("k1"))
	if err != nil || got.Verdict != counterfoil.VerdictInProgress {
		t.Fatalf("inside: %+v, %v", got, err)
	}
	// Generous: what matters is that nobody waits for the transaction.
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("two duplicates were told after %s", took)
	}
	if _, err := other.Exec(ctx, "INSERT INTO entry VALUES ('other business')"); err != nil {
		t.Fatalf("the duplicate's transaction is not usable: %v", err)
	}
	if err := other.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Claim.Complete(ctx, counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 200}, nil); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err = b.engine.Begin(ctx, b.request("k1")); err != nil || got.Verdict != counterfoil.VerdictAlreadyProcessed {
		t.Fatalf("after the commit: %+v, %v", got, err)
	}
	// What a duplicate took in vain it gave back: the ID is free to claim again.
	if n := pgtest.Value[int64](t, b.url, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"); n != 0 {
		t.Errorf("%d advisory locks are left", n)
	}
}

// A held key stalls nobody else: others of the same batch go through.
func TestHeldKeyStallsNobody(t *testing.T) {
	b := newBank(t, 0)
	ctx := t.Context()
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if d, err := b.engine.InTx(b.store.InTx(tx)).Begin(ctx, b.request("held")); err != nil || d.Verdict != counterfoil.VerdictProceed {
		t.Fatalf("%+v, %v", d, err)
	}
	var wg sync.WaitGroup
	var free, busy atomic.Int64
	for i := range 200 {
		wg.Go(func() {
			key := fmt.Sprintf("k%d", i)
			if i%2 == 0 {
				key = "held"
			}
			d, err := b.engine.Begin(ctx, b.request(key))
			switch {
			case err != nil:
				t.Error(err)
			case d.Verdict == counterfoil.VerdictProceed && key != "held":
				free.Add(1)
			case d.Verdict == counterfoil.VerdictInProgress && key == "held":
				busy.Add(1)
			default:
				t.Errorf("%s: %s", key, d.Verdict)
			}
		})
	}
	wg.Wait()
	if free.Load() != 100 || busy.Load() != 100 {
		t.Errorf("%d keys went through and %d duplicates were told, want 100 each", free.Load(), busy.Load())
	}
}

func TestReadOnlyTransaction(t *testing.T) {
	b := newBank(t, 0)
	_, err := b.do("k1", pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if !errors.Is(err, pgstore.ErrReadOnly) || !errors.Is(err, counterfoil.ErrUnavailable) {
		t.Fatalf("got %v, want ErrReadOnly", err)
	}
	b.balanced(0)
}

// Many transfers at SERIALIZABLE on two rows fail to serialize all the time;
// Do runs them again, and each happens once, duplicates and all.
func TestDoSerializable(t *testing.T) {
	for _, iso := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(iso), func(t *testing.T) {
			b := newBank(t, 5*time.Second)
			const keys, callers = 12, 3
			var wg sync.WaitGroup
			var created, runs atomic.Int64
			for i := range keys * callers {
				key := fmt.Sprintf("k%d", i%keys)
				wg.Go(func() {
					for {
						d, err := b.store.Do(context.Background(), b.engine, b.pool, pgx.TxOptions{IsoLevel: iso}, b.request(key), func(ctx context.Context, tx pgx.Tx, _ *counterfoil.Claim) (counterfoil.Result, error) {
							runs.Add(1)
							return transfer(ctx, tx, key)
						})
						var pg *pgconn.PgError
						if errors.As(err, &pg) && pg.Code == "40001" || err == nil && d.Verdict == counterfoil.VerdictInProgress {
							continue // out of tries: the caller's turn
						}
						switch {
						case err != nil:
							t.Errorf("%s: %v", key, err)
						case d.Verdict == counterfoil.VerdictProceed:
							created.Add(1)
						case d.Verdict != counterfoil.VerdictReplay || string(d.Response) != "moved "+key:
							t.Errorf("%s: %s %q", key, d.Verdict, d.Response)
						}
						return
					}
				})
			}
			wg.Wait()
			b.balanced(keys)
			if created.Load() != keys {
				t.Errorf("%d callers were told that they were first, want %d", created.Load(), keys)
			}
			if iso != pgx.ReadCommitted && runs.Load() <= keys {
				t.Errorf("the effect ran %d times for %d keys: no serialization failure was provoked", runs.Load(), keys)
			}
		})
	}
}

// G01: the commit was done and its answer lost; Do finds its own token.
func TestDoLostCommit(t *testing.T) {
	b := newBank(t, 0)
	proxy := pgtest.NewProxy(t, pgtest.Shared(t).Addr())
	pool := poolOf(t, proxy.Through(b.url))
	var lost atomic.Int64
	for i := range 5 {
		key := fmt.Sprintf("k%d", i)
		d, err := b.store.Do(t.Context(), b.engine, pool, pgx.TxOptions{}, b.request(key), func(ctx context.Context, tx pgx.Tx, _ *counterfoil.Claim) (counterfoil.Result, error) {
			res, err := transfer(ctx, tx, key)
			return res, err
		})
		if err != nil || d.Verdict != counterfoil.VerdictProceed {
			t.Fatalf("%s: %+v, %v", key, d, err)
		}
		// Now with the answer to COMMIT lost.
		key += "-lost"
		d, err = b.store.Do(t.Context(), b.engine, losing{pool, proxy, &lost}, pgx.TxOptions{}, b.request(key), func(ctx context.Context, tx pgx.Tx, _ *counterfoil.Claim) (counterfoil.Result, error) {
			return transfer(ctx, tx, key)
		})
		if err != nil || d.Verdict != counterfoil.VerdictProceed || string(d.Response) != "moved "+key {
			t.Fatalf("%s: %+v, %v", key, d, err)
		}
	}
	b.balanced(10)
	if lost.Load() != 5 {
		t.Errorf("the answers to %d commits were lost, want 5", lost.Load())
	}
}

// losing begins transactions whose first commit is done without an answer.
type losing struct {
	*pgxpool.Pool
	proxy *pgtest.Proxy
	lost  *atomic.Int64
}

func (l losing) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	tx, err := l.Pool.BeginTx(ctx, o)
	return losingTx{tx, l}, err
}

type losingTx struct {
	pgx.Tx
	l losing
}

func (t losingTx) Commit(ctx context.Context) error {
	var wrote bool
	if err := t.QueryRow(ctx, "SELECT pg_current_xact_id_if_assigned() IS NOT NULL").Scan(&wrote); err != nil {
		return err
	}
	if wrote {
		t.l.proxy.DropReplies(1)
	}
	err := t.Tx.Commit(ctx)
	if err != nil {
		t.l.lost.Add(1)
	}
	return err
}

func TestDoSQL(t *testing.T) {
	b := newBank(t, 0)
	db, err := sql.Open("pgx", b.url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	run := func(key string) (*counterfoil.Decision, error) {
		return b.store.DoSQL(t.Context(), b.engine, db, nil, b.request(key), func(ctx context.Context, tx *sql.Tx, _ *counterfoil.Claim) (counterfoil.Result, error) {
			for _, q := range []string{"UPDATE account SET balance = balance - 10 WHERE name = 'a'", "UPDATE account SET balance = balance + 10 WHERE name = 'b'", "INSERT INTO entry VALUES ('k1')"} {
				if _, err := tx.ExecContext(ctx, q); err != nil {
					return counterfoil.Result{}, err
				}
			}
			return counterfoil.Result{Outcome: counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 200}, Response: []byte("moved")}, nil
		})
	}
	for i, want := range []counterfoil.Verdict{counterfoil.VerdictProceed, counterfoil.VerdictReplay} {
		d, err := run("k1")
		if err != nil || d.Verdict != want || string(d.Response) != "moved" {
			t.Fatalf("call %d: %+v, %v", i, d, err)
		}
	}
	b.balanced(1)
}
