// Package kill kills the real server with SIGKILL, at random moments and at
// named steps, and holds what callers were told against what a witness outside
// the process counted (reliability.md, KILL).
package kill

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/proof/binary"
	"github.com/counterfoil/counterfoil/proof/database"
	"github.com/counterfoil/counterfoil/proof/witness"
)

var (
	cycles = flag.Int("cycles", 300, "how many times the server is killed")
	seed   = flag.Uint64("seed", 0, "seed of the random choices; 0 draws one")
)

func TestMain(m *testing.M) {
	code := m.Run()
	binary.Clean()
	os.Exit(code)
}

const policy = `
version: 1
operations:
  pay:
    match: ["POST /pay"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1s, safety_margin: 1m}
    replay: 1h
    deadline: 2s
    lease: 200ms
    settle: 100ms
    wait: 0s
    max_unresolved: 100000
  brief:
    match: ["POST /brief"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 10ms, broker_redelivery_window: 0s, reconciliation_cadence: 10ms, safety_margin: 10ms}
    replay: 0s
    deadline: 2s
    lease: 20ms
    settle: 0s
    wait: 0s
`

// steps at which a named kill strikes; "" is a random moment.
var steps = []string{
	"before-claim-commit", "during-claim-commit", "after-claim-commit", "after-effect",
	"before-completion-commit", "during-completion-commit", "after-completion-commit", "mid-sweep",
}

// TestP1P2P3KilledAnywhere: never two effects of one key (each has one attempt,
// for nothing here proves absence), never a lost answer that had been given,
// and abandoned claims become unknown.
func TestP1P2P3KilledAnywhere(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d: go test ./kill -seed %d -cycles %d", *seed, *seed, *cycles)
	path := binary.Build(t, false)
	pebble := func(*testing.T) (string, []string) { return "pebble:./data", nil }
	lanes := []struct {
		name   string
		store  func(t *testing.T) (address string, more []string)
		cycles int
	}{
		{"lane 0", pebble, *cycles / 2},
		{"lane 1", pebble, *cycles / 2},
		{"postgres", func(t *testing.T) (string, []string) {
			return database.Lend(t), []string{"accept: [may-lose-acknowledged-claims]"}
		}, *cycles / 10},
	}
	for i, lane := range lanes {
		t.Run(lane.name, func(t *testing.T) {
			t.Parallel()
			store, more := lane.store(t)
			l := newLane(t, path, rand.New(rand.NewPCG(*seed, uint64(i))), store, more...)
			for range lane.cycles / 2 {
				l.named()
				l.random()
			}
			l.finish()
		})
	}
}

// lane is one server's life of being killed.
type lane struct {
	t     *testing.T
	rng   *rand.Rand
	w     *witness.Witness
	setup *binary.Setup
	keys  int
	// open are the requests of servers that died since the last verification.
	open []*request
	// given are all answers that callers hold.
	given  []*request
	counts struct{ kills, requests, answered, unknown, ranLater, hits int }
	// strike is set while the next effect, after so many, kills the server.
	strike atomic.Pointer[strike]
}

type strike struct {
	left atomic.Int64
	p    *binary.Process
}

func newLane(t *testing.T, path string, rng *rand.Rand, store string, more ...string) *lane {
	l := &lane{t: t, rng: rng, w: witness.New()}
	l.w.OnEffect = func(string) {
		if s := l.strike.Load(); s != nil && s.left.Add(-1) == 0 {
			s.p.KillAsync()
		}
	}
	up := httptest.NewServer(l.w)
	t.Cleanup(up.Close)
	l.setup = binary.NewSetup(t, path, up.URL, store, policy, more...)
	return l
}

// named starts a server that dies at a named step, and loads it.
func (l *lane) named() {
	step := steps[l.rng.IntN(len(steps))]
	n := int64(1 + l.rng.IntN(6))
	if step == "after-effect" {
		p := l.setup.Start(l.t)
		s := &strike{p: p}
		s.left.Store(n)
		l.strike.Store(s)
		l.load(p, nil)
		l.strike.Store(nil)
		return
	}
	if step == "mid-sweep" {
		n = int64(1 + l.rng.IntN(2))
	}
	p := l.setup.Start(l.t, fmt.Sprintf("COUNTERFOIL_FAULT_AT=%s:%d", step, n))
	l.load(p, func() {
		if step == "mid-sweep" {
			for range 2 {
				sweepOnce(p)
			}
		}
	})
}

// random verifies what the named kill left, then loads the server and kills it
// at a random moment.
func (l *lane) random() {
	p := l.setup.Start(l.t)
	l.verify(p)
	delay := time.Duration(l.rng.IntN(30_000)) * time.Microsecond
	timer := time.AfterFunc(delay, p.KillAsync)
	defer timer.Stop()
	l.load(p, nil)
}

// load sends requests at once, some of them twice, until all have an answer or
// the server is gone; then it makes sure that it is gone.
func (l *lane) load(p *binary.Process, beside func()) {
	batch := make([]*request, 0, 8)
	for range 8 {
		l.keys++
		r := &request{key: fmt.Sprintf("k-%d", l.keys), path: "/pay"}
		switch l.rng.IntN(8) {
		case 0:
			r.script = witness.Script{StatusOnce: 429}
		case 1:
			r.script = witness.Script{Status: 500}
		case 2:
			r.script = witness.Script{SleepMS: l.rng.IntN(20)}
		case 3:
			r.path = "/brief"
		}
		batch = append(batch, r)
	}
	var wg sync.WaitGroup
	for _, r := range batch {
		twice := l.rng.IntN(3) == 0
		wg.Go(func() { r.keep(r.send(p)) })
		if twice {
			wg.Go(func() { r.keep(r.send(p)) })
		}
	}
	if beside != nil {
		beside()
	}
	wg.Wait()
	select {
	case <-p.Done():
		l.counts.hits++
	default: // the step was not reached
	}
	p.Kill()
	l.counts.kills++
	l.counts.requests += len(batch)
	l.open = append(l.open, batch...)
}

// verify asks again for everything that the dead servers left.
func (l *lane) verify(p *binary.Process) {
	for _, r := range l.open {
		if r.path == "/brief" {
			continue // its time is over in an instant: it may run as new
		}
		before := l.w.Effects(r.key)
		if before > 1 {
			l.t.Fatalf("P1: %s: %d effects", r.key, before)
		}
		l.settle(p, r, before)
		if got := l.w.Effects(r.key); got > 1 {
			l.t.Fatalf("%s: %d effects after asking again", r.key, got)
		}
	}
	l.open = l.open[:0]
}

// settle asks until the key has its last word, and checks it.
func (l *lane) settle(p *binary.Process, r *request, before int) {
	t := l.t
	deadline := time.Now().Add(20 * time.Second)
	for {
		a := r.send(p)
		held := r.held.Load()
		switch {
		case a.err != nil:
			t.Fatalf("%s: the restarted server does not answer: %v\n%s", r.key, a.err, p.Logs())
		case held != nil && a.status2xx() && a.idem == "replayed" && a.body == held.body && a.status == held.status:
			l.counts.answered++
			l.given = append(l.given, r)
			return
		case held != nil:
			t.Fatalf("P3: %s: the answer %d %q had been given; asked again: %+v", r.key, held.status, held.body, a)
		case a.idem == "in-progress" && time.Now().Before(deadline):
			// The lease of a dead owner; it lapses.
			<-time.After(20 * time.Millisecond)
		case a.idem == "replayed" && before == 1:
			// Its outcome was durable, and only the answer was lost.
			r.keep(a)
			l.given = append(l.given, r)
			return
		case a.idem == "created" && before == 0:
			// Nothing had happened, and that was proved or never claimed.
			l.counts.ranLater++
			r.keep(a)
			l.given = append(l.given, r)
			return
		case a.idem == "no-effect" && before == 0:
			// The witness's 429; ask again.
		case a.idem == "unknown":
			if again := r.send(p); again.idem != "unknown" || l.w.Effects(r.key) > before && a.status != 500 {
				t.Fatalf("P4: %s was unknown and then %+v", r.key, again)
			}
			l.counts.unknown++
			return
		default:
			t.Fatalf("%s: with %d effects before: %+v", r.key, before, a)
		}
	}
}

// finish asks a last server for every answer that was ever given.
func (l *lane) finish() {
	p := l.setup.Start(l.t)
	l.verify(p)
	for _, r := range l.given {
		held := r.held.Load()
		if a := r.send(p); a.idem != "replayed" || a.status != held.status || a.body != held.body {
			l.t.Fatalf("%s: after all kills: %+v, held %+v", r.key, a, *held)
		}
		if n := l.w.Effects(r.key); n != 1 {
			l.t.Fatalf("%s: %d effects", r.key, n)
		}
	}
	if code := p.Stop(l.t); code != 0 {
		l.t.Errorf("the last server ended with code %d:\n%s", code, p.Logs())
	}
	c := l.counts
	l.t.Logf("%d kills (%d while serving), %d requests, %d answers held, %d unknown, %d ran later, %d effects",
		c.kills, c.hits, c.requests, len(l.given), c.unknown, c.ranLater, l.w.Total())
	// Guards against empty success: a run in which nothing was hit proves
	// nothing.
	least := 30 // percent
	if c.kills < 100 {
		least = 15 // few scatter more
	}
	if c.kills >= 20 && (c.hits*100 < c.kills*least || len(l.given)*10 < c.requests || c.unknown == 0) {
		l.t.Errorf("the kills missed: %+v", c)
	}
}
