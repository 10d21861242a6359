package counterfoil_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
)

// The lifetimes of the operation that most tests use.
const (
	lease     = 30 * time.Second
	deadline  = time.Minute
	settle    = 30 * time.Second
	quiet     = deadline + settle
	cadence   = time.Hour
	ttl       = 24 * time.Hour
	retention = 90 * 24 * time.Hour
	tick      = time.Millisecond // what the store's clock can tell apart
)

var succeeded = counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201, Resource: "/v1/payments/1"}

// capture is the operation "capture", changed by changes.
func capture(changes ...func(*policy.Operation)) policy.Operation {
	o := policy.NewOperation("capture")
	o.Match = []string{"POST /v1/capture"}
	o.Scope.Principal = policy.Principal{Kind: policy.PrincipalHeader, Header: "X-Account"}
	o.Inputs.ClientRetryBudget.Value = 4 * time.Hour
	o.Inputs.ReconciliationCadence.Value = cadence
	o.Inputs.SafetyMargin.Value = 19 * time.Hour
	o.Protect = retention
	o.Lease, o.Deadline, o.Settle, o.Wait = lease, deadline, settle, 0
	for _, f := range changes {
		f(&o)
	}
	return o
}

func explicit(o *policy.Operation)    { o.Dispatch = policy.DispatchExplicit }
func countLate(o *policy.Operation)   { o.Late = policy.LateCount }
func holdUnknown(o *policy.Operation) { o.OnUnknown.Rule = policy.UnknownHold }

func redispatchWithin(d time.Duration) func(*policy.Operation) {
	return func(o *policy.Operation) {
		o.OnUnknown = policy.OnUnknown{Rule: policy.UnknownRedispatch, Within: d}
	}
}

func policyOf(version uint32, ops ...policy.Operation) *policy.Policy {
	p := &policy.Policy{Version: version, Operations: ops}
	p.Normalize()
	return p
}

// world is an engine over a memory store whose calls can be made to fail, with
// everything its trace told. Its clock is the bubble's.
type world struct {
	t      *testing.T
	faults *faults
	store  counterfoil.Store
	e      *counterfoil.Engine

	mu           sync.Mutex // guards what follows
	decided      []counterfoil.Decided
	refused      []error
	ended        []counterfoil.Ended
	reconciled   []counterfoil.State
	contradicted int
	unconfirmed  int
}

// inWorld runs f in a bubble of its own time, in a world of one operation.
func inWorld(t *testing.T, f func(t *testing.T, w *world), changes ...func(*policy.Operation)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, newWorld(t, policyOf(1, capture(changes...)), counterfoil.Options{}))
	})
}

func newWorld(t *testing.T, p *policy.Policy, o counterfoil.Options) *world {
	t.Helper()
	s := &faults{Store: memstore.New(memstore.Options{Clock: time.Now})}
	w := &world{t: t, faults: s, store: s.Store}
	w.e = w.open(p, o)
	t.Cleanup(func() { pass(2 * time.Second) }) // what is done late, is done
	return w
}

// open opens another engine over the same store, as another process would; its
// trace is the world's.
func (w *world) open(p *policy.Policy, o counterfoil.Options) *counterfoil.Engine {
	w.t.Helper()
	o.Trace = w.trace()
	e, err := counterfoil.Open(w.t.Context(), w.faults, p, o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		// What is settled in the background ends by itself, at t_quiet at the
		// latest, and with it the bubble.
		if err := e.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
	})
	return e
}

func (w *world) trace() *counterfoil.Trace {
	note := func(f func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	}
	return &counterfoil.Trace{
		Decided:      func(d counterfoil.Decided) { note(func() { w.decided = append(w.decided, d) }) },
		Refused:      func(_ string, err error) { note(func() { w.refused = append(w.refused, err) }) },
		Ended:        func(e counterfoil.Ended) { note(func() { w.ended = append(w.ended, e) }) },
		Unconfirmed:  func(string, counterfoil.ID, error) { note(func() { w.unconfirmed++ }) },
		Contradicted: func(string, counterfoil.ID) { note(func() { w.contradicted++ }) },
		Reconciled: func(_ string, _ counterfoil.ID, s counterfoil.State) {
			note(func() { w.reconciled = append(w.reconciled, s) })
		},
	}
}

// pass lets d go by, and whatever wakes up in it come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// request is a request for key; content tells apart what is asked under it.
func request(key string, content byte) *counterfoil.Request {
	return &counterfoil.Request{
		Operation: "capture", Principal: "acct-1", Key: counterfoil.Key(key), Fingerprint: digest(content),
	}
}

// digest is a fingerprint function whose version 2 is the newest.
func digest(content byte) counterfoil.FingerprintFunc {
	return func(op *policy.Operation, version uint8) (counterfoil.Fingerprint, error) {
		if version == 0 {
			version = 2
		}
		if version > 2 {
			return counterfoil.Fingerprint{}, fmt.Errorf("fingerprint version %d", version)
		}
		return counterfoil.Fingerprint{Version: version, Sum: [16]byte{version, content, byte(len(op.Fingerprint.Ignore))}}, nil
	}
}

// uuidv7 is a key that was made at born.
func uuidv7(born time.Time, n uint16) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(born.UnixMilli())<<16)
	b[6], b[8] = 0x70, 0x80
	binary.BigEndian.PutUint16(b[14:], n)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// ask begins a request and holds its verdict against want.
func (w *world) ask(req *counterfoil.Request, want counterfoil.Verdict) *counterfoil.Decision {
	w.t.Helper()
	d, err := w.e.Begin(w.t.Context(), req)
	if err != nil {
		w.t.Fatalf("begin: %v; want %s", err, want)
	}
	if d.Verdict != want {
		w.t.Fatalf("verdict %s (row %d), want %s; record %+v", d.Verdict, d.Row, want, d.Record)
	}
	if (d.Claim != nil) != (want == proceed) {
		w.t.Fatalf("verdict %s with claim %v", d.Verdict, d.Claim)
	}
	return d
}

// claim begins a request for key that must proceed.
func (w *world) claim(key string) *counterfoil.Claim {
	w.t.Helper()
	return w.ask(request(key, 1), proceed).Claim
}

// completed makes a completed record for key and returns its id.
func (w *world) completed(key string) counterfoil.ID {
	w.t.Helper()
	c := w.claim(key)
	w.complete(c)
	return c.ID()
}

func (w *world) complete(c *counterfoil.Claim) {
	w.t.Helper()
	snap, err := c.Complete(w.t.Context(), succeeded, []byte("response"))
	if err != nil || snap.Record.State != counterfoil.Completed {
		w.t.Fatalf("complete: %v, record %+v", err, snap.Record)
	}
}

// unknown makes an unknown record for key, and returns its claim.
func (w *world) unknown(key string) *counterfoil.Claim {
	w.t.Helper()
	c := w.claim(key)
	if _, err := c.Unknown(w.t.Context(), counterfoil.EvidenceAmbiguous, 502, "bad gateway"); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) get(id counterfoil.ID) counterfoil.Record {
	w.t.Helper()
	snap, err := w.store.Get(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return snap.Record
}

func (w *world) gone(id counterfoil.ID) bool {
	_, err := w.store.Get(w.t.Context(), id)
	return errors.Is(err, counterfoil.ErrNotFound)
}

// state fails the test unless the record is in state want.
func (w *world) state(id counterfoil.ID, want counterfoil.State) counterfoil.Record {
	w.t.Helper()
	r := w.get(id)
	if r.State != want {
		w.t.Fatalf("record is %s, want %s: %+v", r.State, want, r)
	}
	return r
}

func (w *world) reconcile(id counterfoil.ID) counterfoil.State {
	w.t.Helper()
	snap, err := w.store.Get(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := w.e.Reconcile(w.t.Context(), snap.Record, snap.AsOf)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) sweep(grace time.Duration) counterfoil.SweepReport {
	w.t.Helper()
	rep, err := w.store.Sweep(w.t.Context(), counterfoil.SweepOrder{Grace: grace})
	if err != nil {
		w.t.Fatal(err)
	}
	return rep
}

// resolve settles an unknown record by a person's word.
func (w *world) resolve(id counterfoil.ID, res counterfoil.Resolution) counterfoil.Record {
	w.t.Helper()
	res.Actor, res.Reason = "ann", "looked it up"
	snap, err := w.e.Resolve(w.t.Context(), id, res)
	if err != nil {
		w.t.Fatal(err)
	}
	return snap.Record
}

func (w *world) counts() (contradicted, unconfirmed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.contradicted, w.unconfirmed
}

// has reports whether the record's evidence has kind.
func has(r counterfoil.Record, kind counterfoil.EvidenceKind) bool {
	for _, e := range r.Evidence {
		if e.Kind == kind {
			return true
		}
	}
	return false
}

// fault is what becomes of one store call.
type fault int

const (
	works  fault = iota
	refuse       // fails, and nothing is done
	lose         // is done, and its answer lost
	late         // fails, and is done a second later
	hang         // neither done nor answered in its time
)

var errDown = errors.New("connection reset")

// faults is a store whose calls fail as they are told, by name of the call.
type faults struct {
	counterfoil.Store

	mu     sync.Mutex         // guards what follows
	next   map[string][]fault // of the next calls, then all work
	always map[string]fault
	calls  map[string]int
}

// plan sets what becomes of the next calls of that name.
func (f *faults) plan(call string, next ...fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = map[string][]fault{}
	}
	f.next[call] = next
}

// all sets what becomes of every call of that name from now on.
func (f *faults) all(what fault, calls ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.always == nil {
		f.always = map[string]fault{}
	}
	for _, c := range calls {
		f.always[c] = what
	}
}

func (f *faults) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *faults) take(call string) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[call]++
	if plan := f.next[call]; len(plan) > 0 {
		f.next[call] = plan[1:]
		return plan[0]
	}
	return f.always[call]
}

// through makes one store call, or does to it what is planned.
func through[T any](ctx context.Context, f *faults, call string, real func(context.Context) (T, error)) (T, error) {
	var none T
	switch f.take(call) {
	case refuse:
		return none, errDown
	case lose:
		_, _ = real(ctx)
		return none, errDown
	case late:
		go func() {
			time.Sleep(time.Second)
			_, _ = real(context.WithoutCancel(ctx))
		}()
		return none, errDown
	case hang:
		<-ctx.Done()
		return none, ctx.Err()
	}
	return real(ctx)
}

func (f *faults) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	draft := *d
	return through(ctx, f, "create", func(ctx context.Context) (counterfoil.Standing, error) { return f.Store.Create(ctx, &draft) })
}

func (f *faults) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	write := *w
	return through(ctx, f, "update", func(ctx context.Context) (counterfoil.Snapshot, error) { return f.Store.Update(ctx, &write) })
}

func (f *faults) Get(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	return through(ctx, f, "get", func(ctx context.Context) (counterfoil.Snapshot, error) { return f.Store.Get(ctx, id) })
}

func (f *faults) Response(ctx context.Context, id counterfoil.ID, rev uint64) ([]byte, error) {
	return through(ctx, f, "response", func(ctx context.Context) ([]byte, error) { return f.Store.Response(ctx, id, rev) })
}

func (f *faults) Meta(ctx context.Context, name string) (counterfoil.Meta, error) {
	return through(ctx, f, "meta", func(ctx context.Context) (counterfoil.Meta, error) { return f.Store.Meta(ctx, name) })
}
