package cli

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

// onPostgres is a site whose store is a database, without tables yet. The
// server runs without fsync, which is taken on by name.
func onPostgres(t *testing.T, url string) *site {
	t.Helper()
	s := newSite(t)
	s.add(t, "store: "+url+"\naccept: [may-lose-acknowledged-claims]\n")
	return s
}

// add appends to counterfoil.yaml.
func (s *site) add(t *testing.T, text string) {
	t.Helper()
	was, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.config, append(was, text...), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPostgresFromTheStart(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	s := onPostgres(t, url)
	r := run(t, "serve", "--config", s.config).want(t, exitUsage)
	if !strings.Contains(r.stderr, "run counterfoil store migrate") {
		t.Fatalf("serve without tables says %q", r.stderr)
	}
	sql := run(t, "store", "migrate", "--dry-run", "--config", s.config).want(t, exitFine).stdout
	if !strings.Contains(sql, "CREATE TABLE") {
		t.Fatalf("the SQL is %q", sql)
	}
	if r = run(t, "store", "migrate", "--config", s.config).want(t, exitFine); !strings.Contains(r.stdout, "00001") {
		t.Errorf("migrate says %q", r.stdout)
	}
	if r = run(t, "store", "migrate", "--config", s.config).want(t, exitFine); !strings.Contains(r.stdout, "nothing to do") {
		t.Errorf("migrate again says %q", r.stdout)
	}
	// What --dry-run printed makes a store, too.
	other := pgtest.Shared(t).Database(t)
	cmd := exec.Command("psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", other)
	cmd.Stdin = strings.NewReader(sql)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	run(t, "record", "list", "--config", onPostgres(t, other).config).want(t, exitFine)

	s.serve(t)
	first, again := s.pay(t, "k1", http.StatusCreated), s.pay(t, "k1", http.StatusCreated)
	// A second node on the same database replays what the first one keeps: its
	// own upstream would answer otherwise.
	second := onPostgres(t, url)
	second.next.Store(http.StatusTeapot)
	second.serve(t)
	if other := second.pay(t, "k1", http.StatusCreated); first == "" || again != first || other != first {
		t.Errorf("records %q, %q, and at the second node %q", first, again, other)
	}
	run(t, "doctor", "--config", s.config).want(t, exitFailed) // fsync is off
	second.stop()
	s.stop()
}

func TestPgCron(t *testing.T) {
	plain := onPostgres(t, pgtest.Shared(t).Database(t))
	run(t, "store", "migrate", "--config", plain.config).want(t, exitFine)
	if r := run(t, "store", "pg-cron", "install", "--config", plain.config).want(t, exitFailed); !strings.Contains(r.stderr, "pg_cron") {
		t.Errorf("without the extension: %q", r.stderr)
	}
	run(t, "store", "pg-cron", "install", "--every", "soon", "--config", plain.config).want(t, exitUsage)
	run(t, "store", "pg-cron", "status", "--config", newSite(t).config).want(t, exitUsage)

	server := pgtest.Start(t, pgtest.Options{Cron: true})
	url := server.URL(pgtest.CronDatabase)
	pgtest.Exec(t, url, "CREATE EXTENSION IF NOT EXISTS pg_cron")
	s := onPostgres(t, url)
	run(t, "store", "migrate", "--config", s.config).want(t, exitFine)
	if r := run(t, "store", "pg-cron", "install", "--every", "15m", "--config", s.config).want(t, exitFine); !strings.Contains(r.stdout, "*/15 * * * *") {
		t.Errorf("install says %q", r.stdout)
	}
	if r := run(t, "store", "pg-cron", "status", "--config", s.config).want(t, exitFine); !strings.Contains(r.stdout, "counterfoil-sweep") {
		t.Errorf("status says %q", r.stdout)
	}
	if r := run(t, "store", "pg-cron", "remove", "--config", s.config).want(t, exitFine); !strings.Contains(r.stdout, "no job") {
		t.Errorf("remove says %q", r.stdout)
	}
}
