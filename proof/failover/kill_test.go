package failover

import (
	"fmt"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/pgstore/pgtest"
	"github.com/counterfoil/counterfoil/proof/database"
)

// TestP2P3ServerKilled kills all processes of the server with SIGKILL while two
// nodes load it, and starts it again: what was told stands, and nothing happens
// twice. Every other time a node dies with it, and what it held becomes unknown.
func TestP2P3ServerKilled(t *testing.T) {
	t.Parallel()
	const cycles = 10
	server := pgtest.Start(t, pgtest.Options{Durable: true})
	url := server.Database(t)
	database.Migrate(t, url)
	l := newLoad(t, openNode(t, url, time.Second), openNode(t, url, time.Second))
	hits := 0
	for i := range cycles {
		before := l.torn()
		l.during(16, func() {
			l.grow(created, 30)
			server.Kill(t)
		})
		if l.torn() > before {
			hits++ // calls were under way
		}
		if i%2 == 0 {
			l.nodes[0].die(t)
		}
		server.Restart(t)
		if i%2 == 0 {
			l.nodes[0] = openNode(t, url, time.Second)
		}
		l.verify()
	}
	l.verifyAll()
	l.report(map[word]int{created: 300, replayed: 300, unavailable: 30, unconfirmed: 10, unknown: 3},
		fmt.Sprintf("; %d kills, %d while calls were under way", cycles, hits))
	if hits < cycles*8/10 {
		t.Errorf("only %d of %d kills hit a call under way", hits, cycles)
	}
	for _, n := range l.nodes {
		n.close(t)
	}
}

// torn is how many completions were left unconfirmed: the effect had happened,
// and the kill came before the answer of the store.
func (l *load) torn() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[unconfirmed]
}
