package failover

import (
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/pgstore/pgtest"
	"github.com/counterfoil/counterfoil/proof/database"
)

// through opens a node on a fresh database of a server, by way of a network
// that can fail.
func through(t *testing.T, server *pgtest.Server, timeout time.Duration) (*node, *pgtest.Proxy) {
	t.Helper()
	url := server.Database(t)
	database.Migrate(t, url)
	p := pgtest.NewProxy(t, server.Addr())
	return openNode(t, p.Through(url), timeout), p
}

// TestG01AnswerLostAfterCommit: the connection is lost after the commit and
// before its answer. The claim is known by its own token, the completion by
// what it wrote, and the caller hears nothing of it.
func TestG01AnswerLostAfterCommit(t *testing.T) {
	t.Parallel()
	n, p := through(t, pgtest.Shared(t), 5*time.Second)
	defer n.close(t)
	l := newLoad(t, n)
	const rounds = 60
	lost := 0
	for i := range rounds {
		for _, atClaim := range []bool{true, false} {
			in := l.intent()
			in.failsFirst = false
			drops := 1 + i%3 // the second try's answer is lost as well
			before := n.connects.Load()
			if atClaim {
				p.DropReplies(drops)
			}
			w, cl := l.claim(n, in)
			if cl == nil {
				t.Fatalf("the claim's answer was lost: %s", wordNames[w])
			}
			if cl.Attempt() != 1 {
				t.Errorf("attempt %d", cl.Attempt())
			}
			if !atClaim {
				p.DropReplies(drops)
			}
			if w := l.complete(in, cl, l.effect(in, cl.Attempt())); w != created {
				t.Errorf("the completion's answer was lost: %s", wordNames[w])
			}
			p.DropReplies(0)
			if w := l.ask(n, in); w != replayed {
				t.Errorf("asked again: %s", wordNames[w])
			}
			lost += int(n.connects.Load() - before)
		}
	}
	if lost < rounds*3 {
		t.Errorf("only %d connections were lost, want at least %d", lost, rounds*3)
	}
	l.verifyAll()
	l.report(map[word]int{created: 2 * rounds, replayed: 2 * rounds}, "")
	if n := l.counts[unavailable] + l.counts[unconfirmed]; n > 0 {
		t.Errorf("%d calls could not find out", n)
	}
	t.Logf("%d answers of commits were lost", lost)
}

// TestG01AnswersLostUnderLoad is the same, in batches of many callers.
func TestG01AnswersLostUnderLoad(t *testing.T) {
	t.Parallel()
	n, p := through(t, pgtest.Shared(t), 2*time.Second)
	defer n.close(t)
	l := newLoad(t, n)
	before := n.connects.Load()
	l.during(16, func() {
		for range 50 {
			p.DropReplies(1)
			l.grow(created, 4)
		}
		p.DropReplies(0)
	})
	lost := n.connects.Load() - before
	l.verifyAll()
	l.report(map[word]int{created: 200, replayed: 200}, "")
	t.Logf("%d answers of commits were lost", lost)
	if lost < 30 {
		t.Errorf("only %d connections were lost", lost)
	}
}

// TestG01ConnectionsGoSilent: nothing comes back any more, and nothing is
// closed. Every call ends by its own deadline; what was under way arrives late,
// or never, and is settled.
func TestG01ConnectionsGoSilent(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	server := pgtest.Shared(t)
	for name, cut := range map[string]bool{"and wake up": false, "and are cut": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, p := through(t, server, timeout)
			defer n.close(t)
			l := newLoad(t, n)
			const each = 20
			for range 3 {
				held := l.hold(each)
				p.Freeze()
				var wg sync.WaitGroup
				bounded := func(what string, call func() word, want word) {
					start := time.Now()
					w := call()
					if took := time.Since(start); w != want || took > timeout+2*time.Second {
						t.Errorf("%s over a silent connection: %s after %s", what, wordNames[w], took)
					}
				}
				for _, h := range held {
					wg.Go(func() {
						bounded("completing", func() word { return l.complete(h, h.held, h.doing) }, unconfirmed)
					})
					wg.Go(func() {
						in := l.intent()
						bounded("claiming", func() word { return l.ask(n, in) }, unavailable)
					})
				}
				wg.Wait()
				if cut {
					p.Cut()
					p.Thaw()
					p.Heal(t)
				} else {
					p.Thaw()
				}
				// The engine goes on by itself: the outcomes are there with nobody's help.
				deadline := time.Now().Add(20 * time.Second)
				for _, h := range held {
					for w := l.ask(n, h); w != replayed; w = l.ask(n, h) {
						if time.Now().After(deadline) {
							t.Fatalf("%s: long after the network came back: %s", h.key, wordNames[w])
						}
						<-time.After(5 * time.Millisecond)
					}
				}
				l.verify()
			}
			l.verifyAll()
			l.report(map[word]int{unavailable: 3 * each, unconfirmed: 3 * each, created: 3 * each, replayed: 3 * each}, "")
		})
	}
}
