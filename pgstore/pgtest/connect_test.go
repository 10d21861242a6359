//go:build linux

package pgtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

// connect opens a connection that is closed after the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // the other side may be frozen or gone
	})
	return c
}

// processes are all of a server, the first one included.
func processes(t *testing.T, s *pgtest.Server) []int {
	t.Helper()
	pids, err := s.Children()
	if err != nil {
		t.Fatal(err)
	}
	if len(pids) < 4 {
		t.Errorf("the server has the processes %v: too few", pids)
	}
	return append(pids, s.Pid())
}
