package main_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

// What TestKill must at least have seen to mean anything.
const (
	randomKills  = 24
	minTorn      = 15 // kills that hit an open transaction
	minTransfers = 60 // of each route
)

// TestKill kills the program at every step and at random moments, while clients
// send orders to both routes and retry them with the same keys until they have
// an answer, or give up for good. At the end the books balance, no key has moved
// money twice, and every key still gets its first answer.
func TestKill(t *testing.T) {
	server := pgtest.Start(t, pgtest.Options{Durable: true}) // the program refuses a server that may lose commits
	p := newProgram(t, server.Database(t))
	life := p.start(t)

	clients := &clients{program: p, stop: make(chan struct{})}
	for i := range 12 {
		route := []string{"/transfers", "/journal"}[i%2]
		clients.Go(func() { clients.run(t, route, i) })
	}

	kills, at := 0, map[string]int{}
	// PostgreSQL says which transactions it found open when the program was gone.
	torn, tornKills := 0, 0
	restart := func(env ...string) {
		t.Helper()
		life = p.start(t, env...)
		if n := strings.Count(server.Log(), "unexpected EOF on client connection with an open transaction"); n > torn {
			torn = n
			tornKills++
		}
	}
	died := func(want string) {
		t.Helper()
		ok, step := life.killed()
		if !ok || step != want {
			t.Fatalf("the program ended by itself, or at step %q in place of %q:\n%s", step, want, life.log.String())
		}
		kills++
		at[step]++
	}
	steps := steps(t)
	plan := slices.Concat(steps, make([]string, randomKills))
	rand.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	for _, step := range plan {
		if step == "" {
			select {
			case <-life.done:
			case <-time.After(time.Duration(20+rand.IntN(400)) * time.Millisecond):
				life.kill()
			}
			died("")
			restart()
			continue
		}
		life.kill()
		died("")
		restart(fmt.Sprintf("LEDGER_DIE_AT=%s:%d", step, 1+rand.IntN(3)))
		select {
		case <-life.done:
		case <-time.After(20 * time.Second):
			t.Fatalf("nobody came to the step %q", step)
		}
		died(step)
		restart()
	}
	clients.finish()

	// Everybody has an answer, or has given up. Ask once more, of a program that
	// has seen none of it.
	life.kill()
	died("")
	restart()
	b := p.balanced(t)
	moved := entries(t, p.database)
	transfers := map[string]int{}
	abandoned, replayed, processed, waited := 0, 0, 0, 0
	for _, o := range clients.orders {
		n := moved[o.memo]
		delete(moved, o.memo)
		if o.first.status == 0 {
			abandoned++
			if n != (count{}) && n != (count{2, 1}) {
				t.Errorf("an abandoned order of %s moved money %+v", o.route, n)
			}
			continue
		}
		if o.first.status != http.StatusCreated || n != (count{2, 1}) {
			t.Errorf("an order of %s was told %+v and moved money %+v", o.route, o.first, n)
		}
		transfers[o.route]++
		waited += o.tries - 1
		again := p.send(t, o.route, o.from, o.key, o.body)
		switch {
		case again.status == o.first.status && again.mark == "replayed" && again.body == o.first.body && again.location == o.first.location:
			replayed++
		case o.route == "/transfers" && again.status == http.StatusCreated && again.mark == "already-processed" && again.location == o.first.location:
			processed++ // killed between the commit and the answer's keeping
			var shown struct{ Transfer, Memo string }
			if status := p.get(t, o.from, again.location, &shown); status != http.StatusOK || shown.Memo != o.memo {
				t.Errorf("%s shows %d %+v", again.location, status, shown)
			}
		default:
			t.Errorf("an order of %s was first told %+v, and now %+v", o.route, o.first, again)
		}
		if o.index%20 == 0 {
			if other := p.send(t, o.route, o.from, o.key, strings.Replace(o.body, `"amount":`, `"amount":1`, 1)); other.status != http.StatusUnprocessableEntity || other.mark != "mismatch" {
				t.Errorf("another order under the same key was told %+v", other)
			}
		}
	}
	if len(moved) != 0 {
		t.Errorf("money moved that nobody ordered: %v", moved)
	}
	if again := p.balanced(t); again != b {
		t.Errorf("asking again changed the books from %+v to %+v", b, again)
	}

	t.Logf("%d kills, %d of them at steps, %d with transactions open, %d in all; %v transfers after %d retries, %d replayed, %d already processed; %d orders abandoned",
		kills, kills-at[""], tornKills, torn, transfers, waited, replayed, processed, abandoned)
	for _, step := range steps {
		if at[step] == 0 {
			t.Errorf("never killed at the step %q", step)
		}
	}
	if kills < 30 || tornKills < minTorn || transfers["/transfers"] < minTransfers || transfers["/journal"] < minTransfers || waited == 0 {
		t.Error("too little happened for the test to mean anything")
	}
	if n := clients.unknown.Load(); n != 0 {
		t.Errorf("%d answers said that nobody knows", n)
	}
}

// steps are the names of all steps in the program.
func steps(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(`\b(?:step|reached)\("([^"]+)"\)`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pattern.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) < 12 {
		t.Fatalf("only the steps %q were found", names)
	}
	return names
}

// sent is one order of a client.
type sent struct {
	index                        int
	route, from, memo, key, body string
	tries                        int
	next                         time.Time // not before
	first                        told      // the first answer that settles it
}

// clients send orders until they are told to finish.
type clients struct {
	*program
	sync.WaitGroup
	stop    chan struct{}
	unknown atomic.Int64

	mu     sync.Mutex // guards orders
	orders []*sent    // settled, or abandoned
}

func (c *clients) finish() {
	close(c.stop)
	c.Wait()
}

// run is one client. It has up to twenty orders open at a time: while one waits
// for a dead program's lease it goes on with others.
func (c *clients) run(t *testing.T, route string, number int) {
	var open []*sent
	for index := 0; ; {
		stopping := false
		select {
		case <-c.stop:
			stopping = true
		default:
		}
		var o *sent
		for i, waiting := range open {
			if time.Now().After(waiting.next) {
				o, open = waiting, slices.Delete(open, i, i+1)
				break
			}
		}
		switch {
		case o == nil && stopping && len(open) == 0:
			return
		case o == nil && (stopping || len(open) >= 20):
			<-time.After(5 * time.Millisecond)
			continue
		case o == nil:
			o = newOrder(route, number, index)
			index++
		}
		o.tries++
		answer := c.send(t, route, o.from, o.key, o.body)
		if answer.mark == "unknown" {
			c.unknown.Add(1)
		}
		switch {
		case answer.status > 0 && answer.status < 500 && answer.status != http.StatusConflict:
			o.first = answer
		case o.tries == 1 && rand.IntN(10) == 0:
			// Given up, never to be sent again: at most once is all that is owed.
		case o.tries > 1000:
			t.Errorf("an order of %s is still told %+v", route, answer)
		default:
			o.next = time.Now().Add(time.Duration(20*min(o.tries, 10)) * time.Millisecond)
			open = append(open, o)
			continue
		}
		c.mu.Lock()
		c.orders = append(c.orders, o)
		c.mu.Unlock()
	}
}

func newOrder(route string, client, index int) *sent {
	names := []string{"alice", "bob", "carol"}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	memo := fmt.Sprintf("%s %d of client %d", route[1:], index, client)
	return &sent{
		index: index, route: route, from: names[0], memo: memo, key: fmt.Sprintf("key-%d-%d", client, index),
		body: fmt.Sprintf(`{"to":%q,"amount":%d,"memo":%q}`, names[1], 1+rand.IntN(9), memo),
	}
}

// count is how many entries and how many transfers bear a memo.
type count struct{ entries, transfers int64 }

// entries counts by memo, which the test chose and Counterfoil never saw.
func entries(t *testing.T, database string) map[string]count {
	t.Helper()
	text := pgtest.Value[string](t, database, `SELECT coalesce(string_agg(memo || '=' || n || '=' || transfers, E'\n'), '') FROM
		(SELECT memo, count(*) AS n, count(DISTINCT transfer) AS transfers FROM entries GROUP BY memo) m`)
	found := map[string]count{}
	for line := range strings.Lines(text) {
		memo, numbers, _ := strings.Cut(strings.TrimSpace(line), "=")
		var n count
		if _, err := fmt.Sscanf(numbers, "%d=%d", &n.entries, &n.transfers); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		found[memo] = n
	}
	return found
}
