package failover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
)

// word is what a caller was told.
type word int

const (
	created     word = iota // its effect happened, and its outcome is durable
	replayed                // the answer of the one that was created
	failed                  // no effect happened, and that is durable
	inProgress              // somebody's claim stands
	unknown                 // nobody can tell
	busy                    // a transaction holds the key: nothing is said of a record
	unavailable             // nothing was attempted
	unconfirmed             // the effect happened, and the store did not say

	words
)

var wordNames = [words]string{"created", "replayed", "failed", "in progress", "unknown", "busy", "unavailable", "unconfirmed"}

// intent is one thing a caller wants, asked for any number of times. It has one
// effect: nobody here proves absence after one.
type intent struct {
	key string
	// failsFirst: its first attempt ends before the effect, and says so.
	failsFirst bool

	mu sync.Mutex // guards what follows
	// effects is the witness: what happened outside the store.
	effects int
	answer  string // of the effect; whoever is told one is told this
	told    told
	attempt int
	// completionsTorn counts completions that ended without the owner knowing
	// whether they were done.
	completionsTorn int

	// held is a claim whose effect, doing, has happened, and is not reported yet.
	held  *counterfoil.Claim
	doing string
}

// told is what callers of an intent hold.
type told struct {
	answer bool // the answer
	stands bool // that there is a record
}

func (in *intent) snapshot() told {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.told
}

// load asks for intents at the nodes and remembers every answer.
type load struct {
	t     *testing.T
	nodes []*node
	// fault is told of every broken promise.
	fault func(format string, args ...any)

	// frozen is not zero while nothing may be told, because no standby can
	// confirm it; each time has a number of its own.
	frozen atomic.Int64
	freeze int64

	mu      sync.Mutex // guards what follows
	rng     *rand.Rand
	open    []*intent // not verified since they were last asked for
	given   []*intent // answered once and for all
	counts  [words]int
	landed  int // claims that were not confirmed, and stood all the same
	found   int // completions that were not confirmed, and stood all the same
	whiles  int // calls that were made while nothing could be told
	refused map[string]int
}

func newLoad(t *testing.T, nodes ...*node) *load {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &load{t: t, nodes: nodes, fault: t.Errorf, rng: rand.New(rand.NewPCG(seed, 0)), refused: map[string]int{}}
}

func (l *load) dice(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rng.IntN(n)
}

func (l *load) node() *node {
	if len(l.nodes) == 1 {
		return l.nodes[0]
	}
	return l.nodes[l.dice(len(l.nodes))]
}

var keys atomic.Int64

// intent is a new one.
func (l *load) intent() *intent {
	in := &intent{key: fmt.Sprintf("key-%d", keys.Add(1)), failsFirst: l.dice(10) == 0}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, in)
	return in
}

// setFrozen says that from now on nothing may be told, or that it may again.
// Call it after freezing, and before thawing.
func (l *load) setFrozen(to bool) {
	if !to {
		l.frozen.Store(0)
		return
	}
	l.freeze++
	l.frozen.Store(l.freeze)
}

// call is one call at a store, from its start on.
type call struct {
	l      *load
	in     *intent
	frozen int64
	before told
}

func (l *load) begin(in *intent) call { return call{l, in, l.frozen.Load(), in.snapshot()} }

// tell remembers what the caller was told, and holds it against what was told
// before the call began: later answers may say more, never less.
func (c *call) tell(w word, why error) word {
	l, in := c.l, c.in
	still := c.frozen != 0 && l.frozen.Load() == c.frozen
	l.mu.Lock()
	l.counts[w]++
	if c.frozen != 0 {
		l.whiles++
	}
	if why != nil && w == unavailable {
		l.refused[kind(why)]++
	}
	l.mu.Unlock()
	in.mu.Lock()
	defer in.mu.Unlock()
	switch w {
	case created, replayed:
		in.told.answer, in.told.stands = true, true
	case failed, inProgress, unknown:
		in.told.stands = true
	default:
		return w
	}
	if still {
		l.fault("%s: a caller was told %q while no standby could confirm it", in.key, wordNames[w])
	}
	if c.before.answer && w != replayed {
		l.fault("%s: the answer had been given; asked again: %q", in.key, wordNames[w])
	}
	return w
}

// kind tells errors apart for the log of a run.
func kind(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, counterfoil.ErrUnavailable):
		return "unavailable"
	}
	return err.Error()
}

// claim asks for the intent and returns what was told, or, with created, the
// claim by which it may be attempted.
func (l *load) claim(n *node, in *intent) (word, *counterfoil.Claim) {
	c := l.begin(in)
	d, err := n.engine.Begin(l.t.Context(), request(in.key))
	if err != nil {
		if !errors.Is(err, counterfoil.ErrUnavailable) {
			l.t.Errorf("%s: begin: %v", in.key, err)
		}
		return c.tell(unavailable, err), nil
	}
	switch d.Verdict {
	case counterfoil.VerdictProceed:
		in.mu.Lock()
		defer in.mu.Unlock()
		if c.frozen != 0 && l.frozen.Load() == c.frozen {
			l.fault("%s: a claim was told while no standby could confirm it", in.key)
		}
		if c.before.answer || c.before.stands && d.Opens == counterfoil.OpensFirst {
			l.fault("%s: a record stood, and is gone: %+v then attempt %d", in.key, c.before, d.Claim.Attempt())
		}
		in.told.stands = true
		return created, d.Claim
	case counterfoil.VerdictReplay:
		in.mu.Lock()
		if in.effects != 1 || string(d.Response) != in.answer {
			l.fault("%s: replayed %q, want %q of %d effects", in.key, d.Response, in.answer, in.effects)
		}
		lost := in.completionsTorn > 0 && !in.told.answer
		in.mu.Unlock()
		if lost {
			l.mu.Lock()
			l.found++
			l.mu.Unlock()
		}
		return c.tell(replayed, nil), nil
	case counterfoil.VerdictInProgress:
		if d.Record.State == counterfoil.Absent {
			return c.tell(busy, nil), nil
		}
		return c.tell(inProgress, nil), nil
	case counterfoil.VerdictUnknown:
		return c.tell(unknown, nil), nil
	}
	l.t.Errorf("%s: verdict %s", in.key, d.Verdict)
	return c.tell(unavailable, nil), nil
}

// effect happens at most once for an intent, whatever the attempt.
func (l *load) effect(in *intent, attempt uint32) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.effects++
	if in.effects > 1 {
		l.fault("P1: %s: effect %d, in attempt %d", in.key, in.effects, attempt)
	}
	in.answer = fmt.Sprintf("%s: effect %d of attempt %d", in.key, in.effects, attempt)
	return in.answer
}

// complete reports the effect.
func (l *load) complete(in *intent, cl *counterfoil.Claim, answer string) word {
	c := l.begin(in)
	_, err := cl.Complete(l.t.Context(), counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201}, []byte(answer))
	switch {
	case err == nil:
		c.before.answer = false // two callers at once may both have it
		return c.tell(created, nil)
	case errors.Is(err, counterfoil.ErrUnconfirmed):
		in.mu.Lock()
		in.completionsTorn++
		in.mu.Unlock()
		return c.tell(unconfirmed, err)
	}
	l.t.Errorf("%s: complete: %v", in.key, err)
	return c.tell(unconfirmed, err)
}

// ask is one request: claim, effect, completion.
func (l *load) ask(n *node, in *intent) word {
	w, cl := l.claim(n, in)
	if cl == nil {
		return w
	}
	in.mu.Lock()
	in.attempt++
	fails := in.failsFirst && in.attempt == 1
	landed := cl.Attempt() > uint32(in.attempt)
	in.mu.Unlock()
	if landed {
		l.mu.Lock()
		l.landed++
		l.mu.Unlock()
	}
	if fails {
		c := l.begin(in)
		if _, err := cl.Fail(l.t.Context(), "declined before the effect"); err != nil {
			// Fenced: it was written, the answer was lost, and the next attempt
			// opened before it was asked for again.
			if !errors.Is(err, counterfoil.ErrUnconfirmed) && !errors.Is(err, counterfoil.ErrFenced) {
				l.t.Errorf("%s: fail: %v", in.key, err)
			}
			return c.tell(unavailable, err)
		}
		return c.tell(failed, nil)
	}
	return l.complete(in, cl, l.effect(in, cl.Attempt()))
}

// run has so many workers ask until stop is closed. Some intents are asked for
// at two nodes at once, and most again.
func (l *load) run(workers int, stop <-chan struct{}) (wait func()) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				in := l.intent()
				var twin sync.WaitGroup
				if l.dice(3) == 0 {
					twin.Go(func() { l.ask(l.node(), in) })
				}
				for range 1 + l.dice(3) {
					pause := time.Duration(0)
					switch l.ask(l.node(), in) {
					case unavailable, unconfirmed:
						pause = 20 * time.Millisecond
					}
					select {
					case <-stop:
						twin.Wait()
						return
					case <-time.After(pause):
					}
				}
				twin.Wait()
			}
		})
	}
	return wg.Wait
}

// grow waits until so many more callers were told the word, and then for a
// moment at random, so that what comes next comes at any point of their calls.
func (l *load) grow(w word, n int) {
	l.t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.counts[w]
	}
	deadline := time.Now().Add(30 * time.Second)
	for want := count() + n; count() < want; {
		if time.Now().After(deadline) {
			l.t.Errorf("only %d more are %s", n-(want-count()), wordNames[w])
			return
		}
		<-time.After(2 * time.Millisecond)
	}
	<-time.After(time.Duration(l.dice(50)) * time.Millisecond)
}

// during loads the nodes for as long as what takes.
func (l *load) during(workers int, what func()) {
	stop := make(chan struct{})
	wait := l.run(workers, stop)
	what()
	close(stop)
	wait()
}

// verify asks again for everything open until it has its last word.
func (l *load) verify() {
	l.t.Helper()
	l.mu.Lock()
	open := l.open
	l.open = nil
	l.mu.Unlock()
	l.each(open, func(in *intent) {
		deadline := time.Now().Add(30 * time.Second)
		for {
			switch l.ask(l.node(), in) {
			case created, replayed:
				l.mu.Lock()
				l.given = append(l.given, in)
				l.mu.Unlock()
				return
			case unknown:
				return
			}
			if time.Now().After(deadline) {
				l.t.Errorf("%s: has no last word", in.key)
				return
			}
			<-time.After(20 * time.Millisecond)
		}
	})
}

// verifyAll is verify, for everything that was ever answered too.
func (l *load) verifyAll() {
	l.t.Helper()
	l.verify()
	l.each(l.given, func(in *intent) {
		deadline := time.Now().Add(30 * time.Second)
		for l.ask(l.node(), in) != replayed {
			if l.t.Failed() || time.Now().After(deadline) {
				l.t.Errorf("%s: is not replayed any more", in.key)
				return
			}
			<-time.After(20 * time.Millisecond)
		}
	})
}

func (l *load) each(intents []*intent, do func(*intent)) {
	var wg sync.WaitGroup
	next := make(chan *intent)
	for range 16 {
		wg.Go(func() {
			for in := range next {
				do(in)
			}
		})
	}
	for _, in := range intents {
		next <- in
	}
	close(next)
	wg.Wait()
}

// report prints what happened, and fails where less did than shows anything.
func (l *load) report(least map[word]int, more string) {
	l.t.Helper()
	text := ""
	for w, n := range l.counts {
		text += fmt.Sprintf("%d %s, ", n, wordNames[w])
	}
	l.t.Logf("told: %sclaims landed unconfirmed: %d, completions found after being unconfirmed: %d, refusals: %v; answers that stand: %d%s",
		text, l.landed, l.found, l.refused, len(l.given), more)
	for w, n := range least {
		if l.counts[w] < n {
			l.t.Errorf("only %d %s, want at least %d", l.counts[w], wordNames[w], n)
		}
	}
}

// hold claims so many intents and lets their effects happen: their completions
// are under way.
func (l *load) hold(n int) []*intent {
	l.t.Helper()
	held := make([]*intent, n)
	for i := range held {
		held[i] = l.intent()
		held[i].failsFirst = false
	}
	l.each(held, func(in *intent) {
		deadline := time.Now().Add(20 * time.Second)
		_, cl := l.claim(l.node(), in)
		for cl == nil { // a slow machine
			if time.Now().After(deadline) {
				l.t.Errorf("%s: cannot be claimed", in.key)
				return
			}
			<-time.After(20 * time.Millisecond)
			_, cl = l.claim(l.node(), in)
		}
		in.mu.Lock()
		in.attempt++
		in.mu.Unlock()
		in.held, in.doing = cl, l.effect(in, cl.Attempt())
	})
	return held
}

// end completes a held intent.
func (l *load) end(in *intent, want word) {
	if in.held == nil {
		return
	}
	if w := l.complete(in, in.held, in.doing); w != want {
		l.t.Errorf("%s: completion: %s, want %s", in.key, wordNames[w], wordNames[want])
	}
}

// poll asks for the intents, over and over, for so long.
func (l *load) poll(intents []*intent, long time.Duration) {
	until := time.Now().Add(long)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for time.Now().Before(until) {
				l.ask(l.node(), intents[l.dice(len(intents))])
			}
		})
	}
	wg.Wait()
}
