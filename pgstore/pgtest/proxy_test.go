//go:build linux

package pgtest_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

// proxied is an empty table x (n int), and its URL directly and by way of a proxy.
func proxied(t *testing.T) (p *pgtest.Proxy, direct, via string) {
	t.Helper()
	s := pgtest.Shared(t)
	direct = s.Database(t)
	pgtest.Exec(t, direct, "CREATE TABLE x (n int)")
	p = pgtest.NewProxy(t, s.Addr())
	return p, direct, p.Through(direct)
}

func count(t *testing.T, url string) int {
	t.Helper()
	return pgtest.Value[int](t, url, "SELECT count(*) FROM x")
}

func TestProxyForwards(t *testing.T) {
	t.Parallel()
	_, _, via := proxied(t)
	pgtest.Exec(t, via, "INSERT INTO x SELECT * FROM generate_series(1, 1000)")
	c := connect(t, via)
	n, err := c.CopyFrom(t.Context(), pgx.Identifier{"x"}, []string{"n"},
		pgx.CopyFromSlice(1000, func(i int) ([]any, error) { return []any{i}, nil }))
	if err != nil || n != 1000 || count(t, via) != 2000 {
		t.Errorf("copied %d rows (%v), and there are %d", n, err, count(t, via))
	}
	// A message far larger than any buffer, in both directions.
	big := strings.Repeat("0123456789abcdef", 1<<18)
	if got := pgtest.Value[string](t, via, "SELECT $1::text", big); got != big {
		t.Errorf("4 MiB came back as %d bytes, or as others", len(got))
	}
	if _, err := c.Exec(t.Context(), "LISTEN news"); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, via, "NOTIFY news, 'x'")
	if n, err := c.WaitForNotification(t.Context()); err != nil || n.Payload != "x" {
		t.Errorf("notification %v, %v", n, err)
	}
}

func TestProxyCut(t *testing.T) {
	t.Parallel()
	p, direct, via := proxied(t)
	open := connect(t, via)
	waiting := make(chan error, 1)
	sleeper := connect(t, via)
	go func() {
		_, err := sleeper.Exec(t.Context(), "SELECT pg_sleep(3600)")
		waiting <- err
	}()
	for range 2 {
		p.Cut()
		if _, err := open.Exec(t.Context(), "INSERT INTO x VALUES (1)"); err == nil {
			t.Error("a statement went through a connection that was cut")
		}
		if c, err := pgx.Connect(t.Context(), via); err == nil {
			c.Close(t.Context())
			t.Error("a new connection went through what was cut")
		} else if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a new connection got %v, not refused", err)
		}
		p.Heal(t)
		open = connect(t, via)
		if err := open.Ping(t.Context()); err != nil {
			t.Errorf("after Heal: %v", err)
		}
	}
	if err := <-waiting; err == nil {
		t.Error("a client that waited was not cut off")
	}
	if n := count(t, direct); n != 0 {
		t.Errorf("%d rows came through", n)
	}
}

func TestProxyFreeze(t *testing.T) {
	t.Parallel()
	p, direct, via := proxied(t)
	open := connect(t, via)
	p.Freeze()
	answers := make(chan error, 2)
	go func() {
		_, err := open.Exec(t.Context(), "INSERT INTO x VALUES (1)")
		answers <- err
	}()
	go func() {
		c, err := pgx.Connect(t.Context(), via)
		if err == nil {
			err = c.Close(t.Context())
		}
		answers <- err
	}()
	select {
	case err := <-answers:
		t.Fatalf("an answer came through what is frozen: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if n := count(t, direct); n != 0 {
		t.Errorf("%d rows went through what is frozen", n)
	}
	p.Thaw()
	for range 2 {
		if err := <-answers; err != nil {
			t.Errorf("after Thaw: %v", err)
		}
	}
	if n := count(t, direct); n != 1 {
		t.Errorf("%d rows after Thaw, want the one that was sent", n)
	}
}

// TestProxyFreezeIsLate: the statement of a client that has gone arrives.
func TestProxyFreezeIsLate(t *testing.T) {
	t.Parallel()
	p, direct, via := proxied(t)
	c := connect(t, via)
	raw, err := c.PgConn().Hijack()
	if err != nil {
		t.Fatal(err)
	}
	p.Freeze()
	raw.Frontend.SendQuery(&pgproto3.Query{String: "INSERT INTO x VALUES (1)"})
	if err := errors.Join(raw.Frontend.Flush(), raw.Conn.Close()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, direct); n != 0 {
		t.Errorf("%d rows went through what is frozen", n)
	}
	p.Thaw()
	if err := pgtest.Until(10*time.Second, "arrival", func() (bool, error) { return count(t, direct) == 1, nil }); err != nil {
		t.Error(err)
	}
}

// TestProxyCutWhileFrozen: Cut does not wait for what never comes.
func TestProxyCutWhileFrozen(t *testing.T) {
	t.Parallel()
	p, direct, via := proxied(t)
	c := connect(t, via)
	p.Freeze()
	answer := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), "INSERT INTO x VALUES (1)")
		answer <- err
	}()
	p.Cut()
	if err := <-answer; err == nil {
		t.Error("a statement was answered over a connection that was frozen and cut")
	}
	p.Thaw()
	p.Heal(t)
	if n := count(t, via) + count(t, direct); n != 0 {
		t.Errorf("%d rows came through", n)
	}
}

func TestProxyDropReplies(t *testing.T) {
	t.Parallel()
	lost := func(t *testing.T, err error) {
		t.Helper()
		var answer *pgconn.PgError
		if err == nil || errors.As(err, &answer) {
			t.Errorf("the answer came through: %v", err)
		}
	}
	p, direct, via := proxied(t)

	t.Run("statement", func(t *testing.T) {
		c := connect(t, via)
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.DropReplies(1)
		_, err := c.Exec(t.Context(), "INSERT INTO x VALUES ($1)", 1)
		lost(t, err)
		if n := count(t, direct); n != 1 {
			t.Errorf("%d rows, want the one whose answer was lost", n)
		}
		pgtest.Exec(t, via, "INSERT INTO x VALUES (2)") // the next one is answered
	})
	t.Run("transaction", func(t *testing.T) {
		c := connect(t, via)
		before := count(t, direct)
		p.DropReplies(1)
		tx, err := c.Begin(t.Context())
		if err != nil {
			t.Fatalf("BEGIN is no commit: %v", err)
		}
		if _, err := tx.Exec(t.Context(), "INSERT INTO x VALUES ($1)", 3); err != nil {
			t.Fatalf("a statement within a transaction is no commit: %v", err)
		}
		lost(t, tx.Commit(t.Context()))
		if n := count(t, direct); n != before+1 {
			t.Errorf("%d rows more, want the one whose answer was lost", n-before)
		}
	})
	t.Run("rollback and error", func(t *testing.T) {
		c := connect(t, via)
		p.DropReplies(1)
		if _, err := c.Exec(t.Context(), "INSERT INTO x VALUES ('none')"); err == nil {
			t.Error("an error was answered with success")
		}
		tx, err := c.Begin(t.Context())
		if err == nil {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Errorf("neither an error nor ROLLBACK is a commit: %v", err)
		}
		_, err = c.Exec(t.Context(), "INSERT INTO x VALUES (4)", pgx.QueryExecModeSimpleProtocol)
		lost(t, err)
	})
	t.Run("several", func(t *testing.T) {
		before := count(t, direct)
		p.DropReplies(2)
		for range 2 {
			c := connect(t, via)
			_, err := c.Exec(t.Context(), "INSERT INTO x VALUES ($1)", 5)
			lost(t, err)
		}
		pgtest.Exec(t, via, "INSERT INTO x VALUES (5)")
		if n := count(t, direct); n != before+3 {
			t.Errorf("%d rows more, want 3", n-before)
		}
	})
	t.Run("batch", func(t *testing.T) {
		c := connect(t, via)
		before := count(t, direct)
		p.DropReplies(1)
		b := &pgx.Batch{}
		b.Queue("INSERT INTO x VALUES ($1)", 6)
		b.Queue("INSERT INTO x VALUES ($1)", 7)
		lost(t, c.SendBatch(t.Context(), b).Close())
		if n := count(t, direct); n != before+2 {
			t.Errorf("%d rows more, want the two whose answers were lost", n-before)
		}
	})
}
