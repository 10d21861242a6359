// Package failover breaks PostgreSQL under load, and holds what every caller
// was told against what stands afterwards and against a witness that counts the
// effects (reliability.md F1 and F2; dangers.md G01 to G04).
package failover

import (
	"context"
	"crypto/sha256"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/policyfile"
)

const policyText = `
version: 1
operations:
  pay:
    match: ["POST /pay"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1s, safety_margin: 1m}
    replay: 1h
    deadline: 4s
    lease: 500ms
    settle: 1s
    wait: 0s
    max_unresolved: 100000
`

// node is one engine with a store of its own. Nodes share nothing but the
// database.
type node struct {
	store  *pgstore.Store
	engine *counterfoil.Engine
	// connects is how many connections were made: one that was lost is made anew.
	connects atomic.Int64
}

// openNode opens a node whose store calls end after so long. The server of
// most tests runs without fsync: no process that is killed loses anything by it.
func openNode(t *testing.T, url string, timeout time.Duration) *node {
	t.Helper()
	n := &node{}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.ConnectTimeout = time.Second
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { n.connects.Add(1); return nil }
	if n.store, err = pgstore.OpenConfig(t.Context(), config, pgstore.Options{AcceptLoss: true}); err != nil {
		t.Fatal(err)
	}
	n.engine, err = counterfoil.Open(t.Context(), n.store, parsed(t), counterfoil.Options{StoreTimeout: timeout})
	if err != nil {
		n.store.Close()
		t.Fatal(err)
	}
	return n
}

func parsed(t *testing.T) *policy.Policy {
	t.Helper()
	p, err := policyfile.Parse("policy.yaml", []byte(policyText))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// close lets the engine settle what it can.
func (n *node) close(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = n.engine.Close(ctx) // outcomes that are left become unknown
	if err := n.store.Close(); err != nil {
		t.Error(err)
	}
}

// die ends a node as a crash would, as far as others can see: what it had not
// written stays unwritten.
func (n *node) die(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.engine.Close(ctx)
	if err := n.store.Close(); err != nil {
		t.Error(err)
	}
}

func request(key string) *counterfoil.Request {
	return &counterfoil.Request{
		Operation: "pay", Principal: "acct-1", Key: counterfoil.Key(key), NoWait: true,
		Fingerprint: func(*policy.Operation, uint8) (counterfoil.Fingerprint, error) {
			sum := sha256.Sum256([]byte(key))
			return counterfoil.Fingerprint{Version: 1, Sum: [16]byte(sum[:16])}, nil
		},
	}
}
