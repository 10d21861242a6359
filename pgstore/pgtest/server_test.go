//go:build linux

package pgtest_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

func TestDatabasesAreSeparate(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	if pgtest.Shared(t) != s {
		t.Error("the shared server is another one the second time")
	}
	a, b := s.Database(t), s.Database(t)
	pgtest.Exec(t, a, "CREATE TABLE x (n int); INSERT INTO x VALUES (7)")
	pgtest.Exec(t, b, "CREATE TABLE x (n int)")
	if n := pgtest.Value[int](t, a, "SELECT count(*) FROM x WHERE n = $1", 7); n != 1 {
		t.Errorf("the first database has %d rows, not the one written", n)
	}
	if n := pgtest.Value[int](t, b, "SELECT count(*) FROM x"); n != 0 {
		t.Errorf("the second database has %d rows of another", n)
	}
	for name, want := range map[string]string{
		"server_encoding": "UTF8", "lc_collate": "C", "fsync": "off", "wal_level": "replica", "max_connections": "200",
	} {
		if got := pgtest.Value[string](t, a, "SELECT current_setting($1)", name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestDatabaseIsDropped: also while somebody is connected.
func TestDatabaseIsDropped(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	var url string
	t.Run("test", func(t *testing.T) {
		url = s.Database(t)
		connect(t, url)
	})
	name := url[strings.LastIndexByte(url, '/')+1 : strings.IndexByte(url, '?')]
	if pgtest.Value[bool](t, s.URL("postgres"), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name) {
		t.Errorf("the database %s is there after its test", name)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{Durable: true, Settings: map[string]string{
		"max_connections": "50", "search_path": "it's, public",
	}})
	for name, want := range map[string]string{"fsync": "on", "max_connections": "50", "search_path": "it's, public"} {
		if got := pgtest.Value[string](t, s.URL("postgres"), "SELECT current_setting($1)", name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{Durable: true})
	url := s.Database(t)
	pgtest.Exec(t, url, "CREATE TABLE x (n int)")
	idle := connect(t, url)
	busy := connect(t, url)
	slept := make(chan error, 1)
	go func() {
		_, err := busy.Exec(t.Context(), "SELECT pg_sleep(3600)")
		slept <- err
	}()
	for n := range 3 {
		pgtest.Exec(t, url, "INSERT INTO x VALUES ($1)", n)
		all := processes(t, s)
		s.Kill(t)
		for _, pid := range all {
			if gone, err := pgtest.Gone(pid); err != nil || !gone {
				t.Errorf("process %d is there after Kill (%v)", pid, err)
			}
		}
		s.Restart(t)
		if got := pgtest.Value[int](t, url, "SELECT count(*) FROM x"); got != n+1 {
			t.Fatalf("%d rows after kill %d, want %d", got, n+1, n+1)
		}
	}
	if err := <-slept; err == nil {
		t.Error("a statement went on over the server's death")
	}
	if err := idle.Ping(t.Context()); err == nil {
		t.Error("a connection went on over the server's death")
	}
	if !strings.Contains(s.Log(), "automatic recovery in progress") {
		t.Error("the log knows nothing of a recovery: was it killed?")
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{})
	url := s.Database(t)
	pgtest.Exec(t, url, "CREATE TABLE x (n int)")
	for _, how := range []struct {
		shutdown pgtest.Shutdown
		recovers int
	}{{pgtest.Fast, 0}, {pgtest.Immediate, 1}} {
		before := strings.Count(s.Log(), "automatic recovery in progress")
		pid := s.Pid()
		s.Stop(t, how.shutdown)
		if gone, err := pgtest.Gone(pid); err != nil || !gone {
			t.Errorf("%s: process %d is there (%v)", how.shutdown, pid, err)
		}
		s.Restart(t)
		if n := strings.Count(s.Log(), "automatic recovery in progress") - before; n != how.recovers {
			t.Errorf("%s: %d recoveries, want %d", how.shutdown, n, how.recovers)
		}
		pgtest.Exec(t, url, "INSERT INTO x VALUES (1)")
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{})
	c := connect(t, s.URL("postgres"))
	all := processes(t, s)
	s.Freeze(t)
	for _, pid := range all {
		if frozen, err := pgtest.Frozen(pid); err != nil || !frozen {
			t.Errorf("process %d goes on (%v)", pid, err)
		}
	}
	answer := make(chan error, 1)
	go func() { answer <- c.Ping(t.Context()) }()
	select {
	case err := <-answer:
		t.Fatalf("a frozen server has answered: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	s.Thaw(t)
	if err := <-answer; err != nil {
		t.Errorf("after Thaw: %v", err)
	}
	s.Freeze(t)
	s.Kill(t)
	s.Restart(t)
	pgtest.Exec(t, s.URL("postgres"), "SELECT 1")
}

func TestCron(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{Cron: true})
	url := s.URL(pgtest.CronDatabase)
	pgtest.Exec(t, url, "CREATE EXTENSION pg_cron; CREATE TABLE ran (at timestamptz DEFAULT clock_timestamp())")
	pgtest.Exec(t, url, "SELECT cron.schedule('@reboot', 'INSERT INTO ran DEFAULT VALUES')")
	s.Stop(t, pgtest.Fast)
	s.Restart(t)
	err := pgtest.Until(time.Minute, "job", func() (bool, error) {
		return pgtest.Value[int](t, url, "SELECT count(*) FROM ran") > 0, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// child is what TestNothingOutlives learns from the process that it kills.
type child struct {
	Base string
	Pids []int
}

// TestNothingOutlives: a test process that is killed leaves no server, not even
// a frozen one or one that is busy, and no directory.
func TestNothingOutlives(t *testing.T) {
	if os.Getenv("PGTEST_CHILD") != "" {
		lead(t)
		return
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestNothingOutlives$")
	cmd.Env = append(os.Environ(), "PGTEST_CHILD=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // the child ends with us
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	var c child
	if err := json.Unmarshal(line, &c); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if len(c.Pids) < 12 {
		t.Errorf("two servers have the processes %v: too few", c.Pids)
	}
	for _, pid := range c.Pids {
		if gone, err := pgtest.Gone(pid); err != nil || gone {
			t.Errorf("process %d is gone before its time (%v)", pid, err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	err = pgtest.Until(time.Minute, "all gone", func() (bool, error) {
		for _, pid := range c.Pids {
			if gone, err := pgtest.Gone(pid); err != nil || !gone {
				return false, fmt.Errorf("process %d is there (%v)", pid, err)
			}
		}
		_, err := os.Stat(c.Base)
		return errors.Is(err, fs.ErrNotExist), fmt.Errorf("directory %s: %v", c.Base, err)
	})
	if err != nil {
		t.Error(err)
	}
}

func lead(t *testing.T) {
	shared, frozen := pgtest.Shared(t), pgtest.Start(t, pgtest.Options{})
	pgtest.PgBouncer(t, shared, pgtest.BouncerOptions{})
	busy := connect(t, shared.URL("postgres"))
	go func() { _, _ = busy.Exec(t.Context(), "SELECT count(*) FROM generate_series(1, 1e12)") }()
	connect(t, frozen.URL("postgres"))
	c := child{Base: shared.Base()}
	c.Pids = append(processes(t, shared), processes(t, frozen)...)
	frozen.Freeze(t)
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(text))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// TestNothingStays: a server is gone after its test.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	var all []int
	var data string
	t.Run("test", func(t *testing.T) {
		s := pgtest.Start(t, pgtest.Options{})
		connect(t, s.URL("postgres"))
		all, data = processes(t, s), s.Data()
		s.Freeze(t)
	})
	for _, pid := range all {
		if gone, err := pgtest.Gone(pid); err != nil || !gone {
			t.Errorf("process %d is there after its test (%v)", pid, err)
		}
	}
	if _, err := os.Stat(filepath.Dir(data)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there after its test (%v)", filepath.Dir(data), err)
	}
}
