package main_test

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

// TestRoutes: both routes answer alike, and SIGTERM ends the program tidily.
func TestRoutes(t *testing.T) {
	server := pgtest.Start(t, pgtest.Options{Durable: true})
	p := newProgram(t, server.Database(t))
	life := p.start(t)
	const order = `{"to":"bob","amount":2500,"memo":"rent"}`
	for _, route := range []string{"/transfers", "/journal"} {
		for _, c := range []struct {
			name, account, key, body string
			status                   int
			mark                     string
		}{
			{"first", "alice", `"rent-1"`, order, 201, "created"},
			{"again", "alice", "rent-1", order, 201, "replayed"},
			{"spelt otherwise", "alice", "rent-1", `{"memo":"rent", "amount":2500, "to":"bob"}`, 201, "replayed"},
			{"another order", "alice", "rent-1", `{"to":"carol","amount":2500,"memo":"rent"}`, 422, "mismatch"},
			{"another's key", "bob", "rent-1", `{"to":"alice","amount":2500,"memo":"back"}`, 201, "created"},
			{"declined", "carol", "much", `{"to":"bob","amount":100001}`, 402, "created"},
			{"declined again", "carol", "much", `{"to":"bob","amount":100001}`, 402, "replayed"},
			{"nobody", "alice", "nobody", `{"to":"mallory","amount":1}`, 404, "created"},
			{"no key", "alice", "", order, 400, ""},
			{"no name", "", "rent-1", order, 401, ""},
			{"bad key", "alice", "a b", order, 400, ""},
		} {
			got := p.send(t, route, c.account, c.key, c.body)
			if got.status != c.status || got.mark != c.mark || (c.status == 201) != strings.HasPrefix(got.location, "/transfers/tr_") {
				t.Errorf("%s, %s: %+v", route, c.name, got)
			}
		}
	}
	if b := p.balanced(t); b.Entries != 8 {
		t.Errorf("%+v", b)
	}
	var a struct{ Balance int64 }
	if status := p.get(t, "alice", "/accounts/alice", &a); status != 200 || a.Balance != 100_000 {
		t.Errorf("alice: %d %+v", status, a)
	}
	var none map[string]any
	if status := p.get(t, "alice", "/accounts/mallory", &none); status != 404 {
		t.Errorf("mallory: %d", status)
	}
	if err := life.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-life.done
	if code := life.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, life.log.String())
	}
}

// TestPgBouncer: a pooler that gives each transaction another connection may
// stand between, once the tables are there.
func TestPgBouncer(t *testing.T) {
	server := pgtest.Start(t, pgtest.Options{Durable: true})
	p := newProgram(t, server.Database(t))
	p.start(t).kill() // makes the tables
	bouncer := pgtest.PgBouncer(t, server, pgtest.BouncerOptions{PoolSize: 5})
	p.database = bouncer.Through(p.database)
	life := p.start(t)
	orders := make([]*sent, 24)
	var wg sync.WaitGroup
	for client := range 4 {
		wg.Go(func() {
			for i := client; i < len(orders); i += 4 {
				o := newOrder([]string{"/transfers", "/journal"}[i/4%2], client, i)
				o.first, orders[i] = p.send(t, o.route, o.from, o.key, o.body), o
			}
		})
	}
	wg.Wait()
	life.kill()
	p.start(t)
	for _, o := range orders {
		again := p.send(t, o.route, o.from, o.key, o.body)
		if o.first.status != 201 || o.first.mark != "created" || again.mark != "replayed" || again.body != o.first.body {
			t.Errorf("%s: %+v, and again %+v", o.route, o.first, again)
		}
	}
	if b := p.balanced(t); b.Entries != int64(2*len(orders)) {
		t.Errorf("%+v", b)
	}
}
