package sweep_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/sweep"
)

// rules are of one operation that keeps its records for retention and their
// responses as long.
func rules(version uint32, retention time.Duration) *policy.Policy {
	o := policy.NewOperation("capture")
	o.Scope.Principal = policy.Principal{Kind: policy.PrincipalHeader, Header: "X-Account"}
	o.Inputs.ClientRetryBudget.Value = retention
	o.Lease = 30 * time.Second
	o.MaxUnresolved = 0
	return &policy.Policy{Version: version, Operations: []policy.Operation{o}}
}

func newStore() *memstore.Store { return memstore.New(memstore.Options{Clock: time.Now}) }

func open(t *testing.T, s counterfoil.Store, p *policy.Policy) *counterfoil.Engine {
	t.Helper()
	e, err := counterfoil.Open(t.Context(), s, p, counterfoil.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func request(key counterfoil.Key) *counterfoil.Request {
	return &counterfoil.Request{
		Operation: "capture", Principal: "acct", Key: key, NoWait: true,
		Fingerprint: func(*policy.Operation, uint8) (counterfoil.Fingerprint, error) {
			return counterfoil.Fingerprint{Version: 1, Sum: [16]byte{7}}, nil
		},
	}
}

// uuidv7 is a key born at t.
func uuidv7(t time.Time, n byte) counterfoil.Key {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.UnixMilli())<<16)
	b[6], b[8], b[15] = 0x70, 0x80, n
	return counterfoil.Key(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

// run does the effect of key once, if it may, and returns the decision.
func run(t *testing.T, e *counterfoil.Engine, key counterfoil.Key) *counterfoil.Decision {
	t.Helper()
	d, err := e.Do(t.Context(), request(key), func(context.Context, *counterfoil.Claim) (counterfoil.Result, error) {
		return counterfoil.Result{Outcome: counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201}, Response: []byte("r")}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// begin starts a request and holds its verdict against want.
func begin(t *testing.T, e *counterfoil.Engine, key counterfoil.Key, want counterfoil.Verdict) *counterfoil.Decision {
	t.Helper()
	d, err := e.Begin(t.Context(), request(key))
	if err != nil {
		t.Fatal(err)
	}
	if d.Verdict != want {
		t.Fatalf("%s, want %s (record %+v)", d.Verdict, want, d.Record)
	}
	return d
}

// fill makes n completed records.
func fill(t *testing.T, e *counterfoil.Engine, prefix string, n int) {
	t.Helper()
	for i := range n {
		run(t, e, counterfoil.Key(fmt.Sprint(prefix, i)))
	}
}

func total(t *testing.T, s counterfoil.Store) (n int64) {
	t.Helper()
	stats, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range stats.Operations {
		n += o.Total()
	}
	return n
}

func pass(t *testing.T, w *sweep.Worker) sweep.Report {
	t.Helper()
	rep, err := w.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !rep.Complete {
		t.Fatalf("report %+v: not complete, and no error", rep)
	}
	return rep
}

func lastRun(t *testing.T, s counterfoil.Store) sweep.Last {
	t.Helper()
	last, err := sweep.LastRun(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// seam is a store whose sweep can be watched and made to fail.
type seam struct {
	counterfoil.Store
	calls atomic.Int32
	// before sees every order; an error keeps it from the store.
	before func(call int32, o counterfoil.SweepOrder) error
}

func (s *seam) Sweep(ctx context.Context, o counterfoil.SweepOrder) (counterfoil.SweepReport, error) {
	if err := s.before(s.calls.Add(1), o); err != nil {
		return counterfoil.SweepReport{}, err
	}
	return s.Store.Sweep(ctx, o)
}
