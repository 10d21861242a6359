package failover

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
	"github.com/counterfoil/counterfoil/proof/database"
)

// What the server logs when a wait for a standby does not end by the standby.
const (
	waitCancelled  = "canceling wait for synchronous replication"
	waitTerminated = "canceling the wait for synchronous replication"
)

// patience of the store calls of a node whose standby freezes.
const brief = 250 * time.Millisecond

// pair is a primary and the standby that confirms its commits.
type pair struct {
	t                *testing.T
	primary, standby *pgtest.Server
	url              string // on the primary
	watch            *pgx.Conn
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, primary: pgtest.Start(t, pgtest.Options{})}
	p.url = p.primary.URL("postgres")
	database.Migrate(t, p.url)
	p.follow("s1")
	return p
}

// follow gives the primary a standby.
func (p *pair) follow(name string) {
	p.t.Helper()
	p.standby = p.primary.Standby(p.t, name)
	p.primary.Synchronous(p.t, name)
	p.connect()
}

// connect opens the connection by which the test looks, and breaks.
func (p *pair) connect() {
	p.t.Helper()
	if p.watch != nil {
		_ = p.watch.Close(context.Background())
	}
	conn, err := pgx.Connect(context.Background(), p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	p.watch = conn
	p.t.Cleanup(func() { _ = conn.Close(context.Background()) })
}

// nodesURL names both servers; whichever takes writes is used.
func (p *pair) nodesURL() string {
	u, err := url.Parse(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	host := func(s *pgtest.Server) string {
		h, port, _ := net.SplitHostPort(s.Addr())
		return net.JoinHostPort(h, port)
	}
	u.Host = host(p.primary) + "," + host(p.standby)
	q := u.Query()
	q.Set("target_session_attrs", "read-write")
	u.RawQuery = q.Encode()
	return u.String()
}

func (p *pair) value(sql string) (n int) {
	p.t.Helper()
	if err := p.watch.QueryRow(context.Background(), sql, pgx.QueryExecModeExec).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// waiting is which of the nodes' backends wait for the standby.
const waiting = "FROM pg_stat_activity WHERE application_name = 'counterfoil' AND wait_event = 'SyncRep'"

// interrupt cancels, or terminates, every wait for the standby, and says how
// many there were.
func (p *pair) interrupt(with string) int {
	p.t.Helper()
	return p.value("SELECT count(*) FILTER (WHERE " + with + "(pid)) " + waiting)
}

// await returns when a backend of the nodes waits for the standby.
func (p *pair) await() {
	p.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for p.value("SELECT count(*) "+waiting) == 0 {
		if time.Now().After(deadline) {
			p.t.Fatal("nobody waits for the standby")
		}
		<-time.After(2 * time.Millisecond)
	}
}

// visible is how many of the intents have a record in one of the states that
// everybody sees.
func (p *pair) visible(n *node, intents []*intent, states ...counterfoil.State) int {
	p.t.Helper()
	if len(intents) == 0 {
		return 0
	}
	text := make([]string, len(intents))
	for i, in := range intents {
		id, err := n.engine.RecordID("pay", "acct-1", counterfoil.Key(in.key))
		if err != nil {
			p.t.Fatal(err)
		}
		text[i] = `'\x` + id.String() + `'`
	}
	numbers := make([]string, len(states))
	for i, s := range states {
		numbers[i] = strconv.Itoa(int(s))
	}
	return p.value("SELECT count(*) FROM counterfoil_records WHERE id IN (" + strings.Join(text, ",") + ") AND state IN (" + strings.Join(numbers, ",") + ")")
}

// logged is how often the primary wrote it into its log, WARNINGs only: each
// comes to the client and to the log.
func (p *pair) logged(text string) int { return strings.Count(p.primary.Log(), text) }

// TestG02DriverCancelsNothing: callers give up by their short deadlines while
// the standby is frozen, at claims, at completions and at reads. No wait is
// cancelled, so that nothing is visible that is not confirmed, and nothing was
// told.
func TestG02DriverCancelsNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := openNode(t, p.url, brief), openNode(t, p.url, brief)
	l := newLoad(t, a, b)
	l.during(8, func() { l.grow(created, 40) })
	l.verify()
	for range 3 {
		held := l.hold(20)
		p.standby.Freeze(t)
		l.setFrozen(true)
		fresh := len(l.open)
		l.during(8, func() {
			l.each(held, func(in *intent) { l.end(in, unconfirmed) })
			l.poll(held, 500*time.Millisecond)
		})
		if n := p.visible(a, held, counterfoil.Completed); n > 0 {
			t.Errorf("%d completions are visible, and nobody confirmed them", n)
		}
		states := []counterfoil.State{counterfoil.InProgress, counterfoil.Unknown, counterfoil.Failed, counterfoil.Completed}
		if n := p.visible(a, l.open[fresh:], states...); n > 0 || len(l.open) == fresh {
			t.Errorf("%d of %d new claims are visible, and nobody confirmed them", n, len(l.open)-fresh)
		}
		l.setFrozen(false)
		p.standby.Thaw(t)
		l.verify()
	}
	l.verifyAll()
	a.close(t)
	b.close(t)
	l.report(map[word]int{created: 40, unavailable: 60, unconfirmed: 60, replayed: 60}, fmt.Sprintf("; %d calls while frozen", l.whiles))
	for _, text := range []string{waitCancelled, waitTerminated, "canceling statement"} {
		if n := p.logged(text); n > 0 {
			t.Errorf("the server logged %q %d times", text, n)
		}
	}
}

// TestG03WaitsInterrupted: somebody cancels the statements that wait for the
// frozen standby, or terminates their connections, or the whole primary is
// killed and comes back. What was committed here is then seen here, and still
// nobody is told of it before the standby has it.
func TestG03WaitsInterrupted(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := openNode(t, p.url, brief), openNode(t, p.url, brief)
	l := newLoad(t, a, b)
	cancels, terminations, leaked := 0, 0, map[string]int{}
	for round, with := range []string{"pg_cancel_backend", "pg_terminate_backend", "kill", "pg_cancel_backend", "pg_terminate_backend", "kill"} {
		l.during(8, func() { l.grow(created, 30) })
		held := l.hold(20)
		p.standby.Freeze(t)
		l.setFrozen(true)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.each(held, func(in *intent) { l.end(in, unconfirmed) })
		}()
		p.await() // the completions come first, and then whatever else
		l.during(8, func() {
			for range 10 {
				<-time.After(40 * time.Millisecond)
				switch with {
				case "pg_cancel_backend":
					cancels += p.interrupt(with)
				case "pg_terminate_backend":
					terminations += p.interrupt(with)
				}
			}
			<-ended
			if with == "kill" {
				p.primary.Kill(t)
				p.primary.Restart(t)
				p.connect()
			}
			l.poll(held, 600*time.Millisecond)
		})
		seen := p.visible(a, held, counterfoil.Completed)
		t.Logf("round %d, %s: %d completions visible and not confirmed", round, with, seen)
		leaked[with] += seen
		l.setFrozen(false)
		p.standby.Thaw(t)
		l.verify()
	}
	l.verifyAll()
	a.close(t)
	b.close(t)
	l.report(map[word]int{created: 180, unavailable: 120, unconfirmed: 100, replayed: 100},
		fmt.Sprintf("; %d waits cancelled, %d terminated, %d calls while frozen", cancels, terminations, l.whiles))
	if cancels < 10 || terminations < 10 || l.whiles < 200 {
		t.Errorf("too little was interrupted: %d cancels, %d terminations, %d calls meanwhile", cancels, terminations, l.whiles)
	}
	// A kill finds what two batches had committed by then.
	for with, least := range map[string]int{"pg_cancel_backend": 20, "pg_terminate_backend": 20, "kill": 4} {
		if leaked[with] < least {
			t.Errorf("%s: only %d completions were visible too early", with, leaked[with])
		}
	}
	if n := p.logged(waitCancelled); n == 0 || n > cancels {
		t.Errorf("the server logged %d cancelled waits, and %d were cancelled here", n, cancels)
	}
	if n := p.logged(waitTerminated); n == 0 || n > terminations {
		t.Errorf("the server logged %d terminated waits, and %d were terminated here", n, terminations)
	}
}

// TestUnfencedReadsAreFound plants the fault that all this exists to find: reads
// that do not wait for what they tell of.
func TestUnfencedReadsAreFound(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	pgtest.Exec(t, p.url, `DO $$ BEGIN
		EXECUTE replace(pg_get_functiondef('counterfoil_apply'::regproc), 'pg_logical_emit_message(true,', 'pg_logical_emit_message(false,');
	END $$`)
	a, b := openNode(t, p.url, brief), openNode(t, p.url, brief)
	l := newLoad(t, a, b)
	var faults atomic.Int64
	l.fault = func(string, ...any) { faults.Add(1) }
	held := l.hold(20)
	p.standby.Freeze(t)
	l.setFrozen(true)
	l.each(held, func(in *intent) { l.end(in, unconfirmed) })
	for deadline := time.Now().Add(20 * time.Second); faults.Load() == 0 && time.Now().Before(deadline); {
		p.interrupt("pg_cancel_backend") // reads may be behind a write that waits
		l.poll(held, 300*time.Millisecond)
	}
	l.setFrozen(false)
	p.standby.Thaw(t)
	a.close(t)
	b.close(t)
	if faults.Load() == 0 {
		t.Error("the suite finds no fault in it")
	}
	t.Logf("%d answers that nobody had confirmed", faults.Load())
}

// TestP3Failover: the standby freezes, completions and claims become visible on
// the primary alone, readers ask for them, and then the primary is lost and the
// standby takes over. Every answer that anybody was told is there. The new
// primary gets a standby of its own, and it all happens again.
func TestP3Failover(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	l := newLoad(t)
	lost := 0
	for round := range 3 {
		a, b := openNode(t, p.nodesURL(), brief), openNode(t, p.nodesURL(), brief)
		l.nodes = []*node{a, b}
		l.during(8, func() { l.grow(created, 50) })
		held := l.hold(30)
		p.standby.Freeze(t)
		l.setFrozen(true)
		local := 0
		l.during(8, func() {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				l.each(held, func(in *intent) { l.end(in, unconfirmed) })
			}()
			for range 5 {
				<-time.After(50 * time.Millisecond)
				p.interrupt("pg_cancel_backend")
			}
			<-ended
			l.poll(held, 400*time.Millisecond)
			local = p.visible(a, held, counterfoil.Completed)
			p.primary.Kill(t)
			l.setFrozen(false)
			p.standby.Thaw(t)
			p.standby.Promote(t)
			l.grow(created, 30) // on the new primary
		})
		p.primary = p.standby
		p.url = p.primary.URL("postgres")
		p.connect()
		t.Logf("round %d: %d completions were visible on the old primary alone", round, local)
		lost += local
		l.verifyAll()
		a.close(t)
		b.close(t)
		if round < 2 {
			p.follow(fmt.Sprintf("s%d", round+2))
		}
	}
	l.report(map[word]int{created: 240, replayed: 300, unavailable: 90, unconfirmed: 90},
		fmt.Sprintf("; %d completions visible on a primary that was lost, %d calls meanwhile", lost, l.whiles))
	if lost < 30 || l.whiles < 100 {
		t.Errorf("only %d completions were at stake, and %d calls asked for them", lost, l.whiles)
	}
}
