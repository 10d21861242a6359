// Package database lends databases of PostgreSQL that have the tables, and
// nothing in them, to the suites that treat every store alike.
package database

import (
	"fmt"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil/pgstore/migrate"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

// idle are databases of the shared server that no test uses: emptying one takes
// a tenth of the time that making one takes.
var idle struct {
	sync.Mutex
	urls []string
	made int
}

// Lend returns the URL of a database that belongs to the test until it ends. Its
// server runs without fsync: whoever opens it has to accept that.
func Lend(t testing.TB) string {
	t.Helper()
	url := take()
	if url == "" {
		url = create(t)
	}
	t.Cleanup(func() {
		pgtest.Exec(t, url, `TRUNCATE counterfoil_records, counterfoil_responses, counterfoil_meta, counterfoil_forgotten;
			UPDATE counterfoil_store SET id = gen_random_uuid(), response_days = 2`)
		idle.Lock()
		defer idle.Unlock()
		idle.urls = append(idle.urls, url)
	})
	return url
}

func take() (url string) {
	idle.Lock()
	defer idle.Unlock()
	if n := len(idle.urls); n > 0 {
		url, idle.urls = idle.urls[n-1], idle.urls[:n-1]
	}
	return url
}

func create(t testing.TB) string {
	t.Helper()
	idle.Lock()
	idle.made++
	name := fmt.Sprintf("lent%d", idle.made)
	idle.Unlock()
	server := pgtest.Shared(t)
	pgtest.Exec(t, server.URL("postgres"), "CREATE DATABASE "+name)
	Migrate(t, server.URL(name))
	return server.URL(name)
}

// Migrate makes the tables in the database of a test's own server.
func Migrate(t testing.TB, url string) {
	t.Helper()
	if _, err := migrate.Up(t.Context(), url, migrate.Options{}); err != nil {
		t.Fatal(err)
	}
}
