//go:build linux

package pgtest_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

// TestPgBouncer: ten clients, all connected, share two connections. In session
// mode the third would wait for ever.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	b := pgtest.PgBouncer(t, s, pgtest.BouncerOptions{PoolSize: 2})
	url := b.Through(s.Database(t))
	clients := make([]*pgx.Conn, 10)
	for i := range clients {
		clients[i] = connect(t, url)
	}
	var mu sync.Mutex
	backends := map[int]int{}
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for range 50 {
				var pid int
				if err := c.QueryRow(t.Context(), "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				backends[pid]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	answers := 0
	for _, n := range backends {
		answers += n
	}
	if answers != 500 || len(backends) > 2 {
		t.Errorf("%d answers from the server's processes %v, want 500 from two", answers, backends)
	}
	pgtest.Exec(t, url, "CREATE TABLE x (n int)")
	pgtest.Exec(t, url, "INSERT INTO x VALUES ($1)", 5)
	if n := pgtest.Value[int](t, url, "SELECT n FROM x WHERE n = $1", 5); n != 5 {
		t.Errorf("read %d, wrote 5", n)
	}
}
