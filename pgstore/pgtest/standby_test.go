//go:build linux

package pgtest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

// TestSynchronousStandby: a commit waits while the standby is frozen, and what
// has been answered is there after failover.
func TestSynchronousStandby(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{})
	url := s.Database(t)
	pgtest.Exec(t, url, "CREATE TABLE x (n int)")
	b := s.Standby(t, "s1")
	if !pgtest.Value[bool](t, b.URL("postgres"), "SELECT pg_is_in_recovery()") {
		t.Fatal("the standby is a primary")
	}
	c := connect(t, url)
	// Several times, since a commit right after Synchronous is what may slip by.
	for n := range 5 {
		s.Synchronous(t, "ANY 1 (s1)")
		b.Freeze(t)
		answer := make(chan error, 1)
		go func() {
			_, err := c.Exec(t.Context(), "INSERT INTO x VALUES (1)")
			answer <- err
		}()
		err := pgtest.Until(10*time.Second, "waiting for the standby", func() (bool, error) {
			select {
			case err := <-answer:
				t.Fatalf("commit %d was answered with the standby frozen: %v", n, err)
			default:
			}
			// Without a write of its own this commits nothing, and does not wait.
			return pgtest.Value[bool](t, s.URL("postgres"),
				"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Thaw(t)
		if err := <-answer; err != nil {
			t.Fatalf("after Thaw: %v", err)
		}
		s.Synchronous(t, "")
	}
	s.Synchronous(t, "s1")
	pgtest.Exec(t, url, "INSERT INTO x VALUES (2)")
	s.Kill(t)
	b.Promote(t)
	there := strings.Replace(url, s.Addr(), b.Addr(), 1)
	if n := pgtest.Value[int](t, there, "SELECT count(*) FROM x"); n != 6 {
		t.Errorf("%d rows after failover, want 6", n)
	}
	pgtest.Exec(t, there, "INSERT INTO x VALUES (3)")
	if strings.Contains(s.Log(), "canceling wait for synchronous replication") {
		t.Error("a wait for the standby was cancelled")
	}
}

// TestPromotedWaitsForNobody: a standby that was copied from a synchronous
// primary has its settings, but not its standbys.
func TestPromotedWaitsForNobody(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{})
	first := s.Standby(t, "s1")
	s.Synchronous(t, "s1")
	second := s.Standby(t, "s2")
	s.Synchronous(t, "FIRST 2 (s1, s2)")
	second.Kill(t)
	second.Restart(t) // as a standby
	if !pgtest.Value[bool](t, second.URL("postgres"), "SELECT pg_is_in_recovery()") {
		t.Fatal("a standby is a primary after Restart")
	}
	s.Kill(t)
	first.Freeze(t)
	second.Promote(t)
	pgtest.Exec(t, second.URL("postgres"), "CREATE TABLE x (n int)")
}
