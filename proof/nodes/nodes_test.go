// Package nodes runs two real servers on one database of PostgreSQL, and asks
// both for the same thing.
package nodes

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/proof/binary"
	"github.com/counterfoil/counterfoil/proof/database"
	"github.com/counterfoil/counterfoil/proof/witness"
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
    deadline: 10s
    lease: 5s
    settle: 1s
    wait: 50ms
  brief:
    match: ["POST /brief"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1s, safety_margin: 1m}
    replay: 1h
    deadline: 2s
    lease: 400ms
    settle: 100ms
    wait: 0s
    max_unresolved: 1000
`

// node is a server, or a place where one runs.
type node struct {
	*binary.Setup
	p *binary.Process
}

// pair is two nodes on one database, in front of one upstream.
func pair(t *testing.T) (*witness.Witness, [2]*node) {
	t.Helper()
	w := witness.New()
	up := httptest.NewServer(w)
	t.Cleanup(up.Close)
	url := database.Lend(t)
	var nodes [2]*node
	for i := range nodes {
		s := binary.NewSetup(t, binary.Build(t, false), up.URL, url, policy, "accept: [may-lose-acknowledged-claims]")
		nodes[i] = &node{Setup: s}
	}
	for _, n := range nodes { // both at once
		n.p = n.Launch(t)
	}
	for _, n := range nodes {
		n.p.WaitReady(t)
	}
	return w, nodes
}

type answer struct {
	status int
	idem   string // Idempotency-Status
	body   string
	err    error
}

func (a answer) String() string { return fmt.Sprintf("%d %q %s %v", a.status, a.idem, a.body, a.err) }

var client = &http.Client{
	Timeout: 20 * time.Second,
	// A connection per request: nobody but the caller ever resends.
	Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
}

func (n *node) send(path, key string, s witness.Script) answer {
	req, err := http.NewRequest(http.MethodPost, "http://"+n.Listen+path, strings.NewReader(s.JSON()))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("X-Account-Id", "acct-1")
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Idempotency-Status"), string(body), err}
}

// TestC29HundredDuplicatesAtTwoNodes: in every round one request runs, wherever
// it came, and the other 99 are told its answer or that it is under way.
func TestC29HundredDuplicatesAtTwoNodes(t *testing.T) {
	w, nodes := pair(t)
	const rounds, duplicates = 50, 100
	total := map[string]int{}
	var by [2]int
	for round := range rounds {
		key := fmt.Sprintf("round-%d", round)
		script := witness.Script{N: round}
		if round%2 == 1 {
			script.SleepMS = 30
		}
		answers := make([]answer, duplicates)
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for i := range answers {
			wg.Go(func() {
				<-gate
				answers[i] = nodes[i%2].send("/pay", key, script)
			})
		}
		close(gate)
		wg.Wait()
		if n := w.Effects(key); n != 1 {
			t.Fatalf("round %d: %d effects", round, n)
		}
		count, first := map[string]int{}, answer{}
		for i, a := range answers {
			count[a.idem]++
			if a.idem == "created" {
				first = a
				by[i%2]++
			}
		}
		for _, a := range answers {
			switch {
			case a.idem == "created" && a.status == 201:
			case a.idem == "replayed" && a.status == 201 && a.body == first.body:
			case a.idem == "in-progress" && a.status == 409:
			default:
				t.Errorf("round %d: %s; created was %s", round, a, first)
			}
			total[a.idem]++
		}
		if count["created"] != 1 {
			t.Errorf("round %d: %v", round, count)
		}
		for i, n := range nodes {
			if a := n.send("/pay", key, script); a.idem != "replayed" || a.body != first.body || a.status != first.status {
				t.Errorf("round %d: asked again at node %d: %s; created was %s", round, i, a, first)
			}
		}
		if w.Arrivals(key) != 1 {
			t.Errorf("round %d: %d arrivals", round, w.Arrivals(key))
		}
	}
	t.Logf("%d rounds of %d: %v; the first ran at node 0 %d times, at node 1 %d times", rounds, duplicates, total, by[0], by[1])
	if total["created"] != rounds || total["replayed"] < rounds || total["in-progress"] < rounds || by[0] < 3 || by[1] < 3 {
		t.Error("one of the nodes, or one of the answers, was hardly there")
	}
	for _, n := range nodes {
		if code := n.p.Stop(t); code != 0 {
			t.Errorf("code %d:\n%s", code, n.p.Logs())
		}
	}
}

// TestP4NodeKilledInTheMiddle kills a node while its handlers run, before and
// after their effects. The other one says in progress, then unknown, and runs
// none of them; nor does the killed one when it is back.
func TestP4NodeKilledInTheMiddle(t *testing.T) {
	w, nodes := pair(t)
	const rounds, each = 3, 16
	inProgress, unknown, before := 0, 0, 0
	for round := range rounds {
		dies, other := nodes[round%2], nodes[1-round%2]
		gate := fmt.Sprintf("gate-%d", round)
		keys := make([]string, each)
		scripts := make([]witness.Script, each)
		var cut sync.WaitGroup
		for i := range keys {
			keys[i] = fmt.Sprintf("kill-%d-%d", round, i)
			if i%2 == 0 {
				scripts[i].Gate = gate // killed before the effect, which comes all the same
			} else {
				scripts[i].AfterMS = 1500 // killed after it
			}
			cut.Go(func() {
				if a := dies.send("/brief", keys[i], scripts[i]); a.err == nil {
					t.Errorf("%s: the node that died answered: %s", keys[i], a)
				}
			})
		}
		until(t, "all at the upstream", func() bool {
			for i, k := range keys {
				if w.Arrivals(k) != 1 || i%2 == 1 && w.Effects(k) != 1 {
					return false
				}
			}
			return true
		})
		for i, k := range keys {
			if a := other.send("/brief", k, scripts[i]); a.status != 409 || a.idem != "in-progress" {
				t.Errorf("%s: while it runs: %s", k, a)
			}
		}
		dies.p.Kill()
		cut.Wait()
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i, k := range keys {
			wg.Go(func() {
				waited, deadline := 0, time.Now().Add(15*time.Second)
				for {
					a := other.send("/brief", k, scripts[i])
					if a.idem == "unknown" && a.status == 503 {
						break
					}
					if a.idem != "in-progress" || a.status != 409 || time.Now().After(deadline) {
						t.Errorf("%s: after the kill: %s", k, a)
						return
					}
					waited++
					<-time.After(20 * time.Millisecond)
				}
				mu.Lock()
				defer mu.Unlock()
				unknown++
				if waited > 0 {
					inProgress++
				}
			})
		}
		wg.Wait()
		for i, k := range keys {
			if i%2 == 0 && w.Effects(k) == 0 {
				before++
			}
		}
		w.Open(gate) // the upstream goes on, though nobody waits
		until(t, "the effects", func() bool {
			for _, k := range keys {
				if w.Effects(k) == 0 {
					return false
				}
			}
			return true
		})
		dies.p = dies.Start(t)
		for i, k := range keys {
			for _, n := range nodes {
				if a := n.send("/brief", k, scripts[i]); a.idem != "unknown" || a.status != 503 {
					t.Errorf("%s: when the node is back: %s", k, a)
				}
			}
			if w.Effects(k) != 1 || w.Arrivals(k) != 1 {
				t.Errorf("%s: %d effects, %d arrivals", k, w.Effects(k), w.Arrivals(k))
			}
		}
	}
	t.Logf("%d kills: %d handlers under way, %d of them before their effect; %d in progress first, %d unknown", rounds, rounds*each, before, inProgress, unknown)
	if unknown != rounds*each || before != rounds*each/2 || inProgress < rounds*each/2 {
		t.Error("the kills missed")
	}
}

// until polls until ok.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
