package storecopy_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/storecopy"
)

var (
	ctx = context.Background()
	// now is what every store's clock shows.
	now   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	alice = counterfoil.PrincipalDigest{0xa1}
	// opPay is the number that the charter gives to the one operation.
	opPay counterfoil.OperationNumber = 1

	states = []counterfoil.State{
		counterfoil.InProgress, counterfoil.Unknown, counterfoil.Failed,
		counterfoil.Completed, counterfoil.Tombstone, counterfoil.Announced,
	}
)

func newStore() *memstore.Store {
	return memstore.New(memstore.Options{Clock: func() time.Time { return now }})
}

func newID(name string) counterfoil.ID {
	sum := sha256.Sum256([]byte(name))
	return counterfoil.ID(sum[:20])
}

// payments is the policy of the operation that the tests use.
func payments(version uint32) *policy.Policy {
	o := policy.NewOperation("pay")
	o.Match = []string{"POST /pay"}
	o.Scope.Principal = policy.Principal{Kind: policy.PrincipalHeader, Header: "X-Account"}
	o.Inputs.ClientRetryBudget.Value = time.Hour
	o.MaxUnresolved = 3
	p := &policy.Policy{Version: version, Operations: []policy.Operation{o}}
	p.Normalize()
	return p
}

// engine opens an engine, which writes the charter.
func engine(t *testing.T, s counterfoil.Store) *counterfoil.Engine {
	t.Helper()
	e, err := counterfoil.Open(ctx, s, payments(1), counterfoil.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func request(key counterfoil.Key, firstSent time.Time) *counterfoil.Request {
	return &counterfoil.Request{
		Operation: "pay", Principal: "acct_1", Key: key, FirstSent: firstSent,
		Fingerprint: func(*policy.Operation, uint8) (counterfoil.Fingerprint, error) {
			return counterfoil.Fingerprint{Version: 1}, nil
		},
	}
}

// full is a record with every field set.
func full(s counterfoil.State) counterfoil.Record {
	at := now
	tick := func() time.Time { at = at.Add(-time.Hour - time.Millisecond); return at }
	r := counterfoil.Record{
		ID: newID("full " + s.String()), Principal: counterfoil.PrincipalDigest{1, 0, 255, 0, 7, 9}, Operation: math.MaxUint32,
		State: s, Attempt: counterfoil.MaxAttempts, Token: counterfoil.NewToken(), Reference: strings.Repeat("r", counterfoil.MaxReason),
		Fingerprint: counterfoil.Fingerprint{Version: 255, Sum: [16]byte{15: 255}}, Policy: math.MaxUint32,
		Dispatched: true, Observed: true, Erased: true, Proof: counterfoil.ProofEarly,
		CreatedAt: tick(), ClaimedAt: tick(), FirstDispatch: tick(), LastDispatch: tick(), QuietAt: tick(), SettledAt: tick(), AnnouncedAt: tick(),
		LeaseUntil: now.Add(time.Hour), ReplayUntil: now.Add(2*time.Hour + time.Millisecond), Horizon: now.Add(90_000*time.Hour + 7*time.Millisecond),
		Outcome: counterfoil.Outcome{Class: counterfoil.Declined, Status: 599, Resource: "/" + strings.Repeat("ü", 500)},
		Gates:   []counterfoil.Gate{{Name: "dispute", Until: now.Add(time.Hour)}, {Name: "past", Until: now.Add(-time.Hour)}},
		Holds:   []counterfoil.Hold{{At: tick(), Actor: "ops", Reason: "dispute 17"}},
	}
	for i := range counterfoil.MaxEvidence {
		r.Evidence = append(r.Evidence, counterfoil.Evidence{
			Kind: counterfoil.EvidenceKind(1 + i%11), At: tick(), Count: math.MaxUint32, Attempt: uint32(i),
			Outcome: counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201, Resource: fmt.Sprintf("/pay/%d", i)},
			Actor:   "o", Reason: "é",
		})
	}
	if s == counterfoil.Tombstone || s == counterfoil.Announced {
		r.Token, r.Reference = counterfoil.Token{}, ""
	}
	return r
}

// plain is a record such as the engine makes.
func plain(name string, s counterfoil.State) counterfoil.Record {
	r := counterfoil.Record{
		ID: newID(name), Principal: alice, Operation: opPay, State: s, Attempt: 1, Token: counterfoil.NewToken(), Policy: 1,
		CreatedAt: now.Add(-time.Minute), ClaimedAt: now.Add(-time.Minute), LeaseUntil: now.Add(time.Minute),
	}
	if !s.Open() {
		r.SettledAt, r.Horizon = now, now.Add(time.Hour)
	}
	if s == counterfoil.Completed {
		r.ReplayUntil = now.Add(time.Hour)
	}
	if s == counterfoil.Tombstone || s == counterfoil.Announced {
		r.Token = counterfoil.Token{}
	}
	return r
}

// put writes a record, with a response if it is not nil.
func put(t *testing.T, s counterfoil.Store, r counterfoil.Record, response []byte) counterfoil.Record {
	t.Helper()
	st, err := s.Create(ctx, &counterfoil.Draft{Record: r})
	if err != nil || !st.Created && !r.Token.IsZero() {
		t.Fatal(err, st)
	}
	if response == nil {
		return st.Record
	}
	r.HasResponse = true
	snap, err := s.Update(ctx, &counterfoil.Write{Record: r, IfRev: st.Record.Rev, IfToken: r.Token, Response: response})
	if err != nil {
		t.Fatal(err)
	}
	return snap.Record
}

// move writes the next content of a record.
func move(t *testing.T, s counterfoil.Store, r counterfoil.Record, change func(*counterfoil.Record)) counterfoil.Record {
	t.Helper()
	w := &counterfoil.Write{Record: r.Clone(), IfRev: r.Rev, IfToken: r.Token}
	change(&w.Record)
	snap, err := s.Update(ctx, w)
	if err != nil {
		t.Fatal(err)
	}
	return snap.Record
}

// fill puts records in every state into a store that an engine has used: with
// every field, and as the engine makes them, with and without responses.
func fill(t *testing.T) counterfoil.Store {
	t.Helper()
	s := newStore()
	engine(t, s)
	for _, state := range states {
		put(t, s, full(state), nil)
		put(t, s, plain("plain "+state.String(), state), nil)
	}
	r := full(counterfoil.Completed)
	r.ID = newID("full with a response")
	put(t, s, r, bytes.Repeat([]byte("answer "), 1000))
	put(t, s, plain("answered", counterfoil.Completed), []byte("201"))
	put(t, s, plain("answered with nothing", counterfoil.Completed), []byte{})
	r = plain("answered long ago", counterfoil.Completed)
	r.ReplayUntil = now
	put(t, s, r, []byte("gone"))
	forget(t, s, opPay, now.Add(-24*time.Hour))
	return s
}

func forget(t *testing.T, s counterfoil.Store, op counterfoil.OperationNumber, at time.Time) {
	t.Helper()
	m, err := s.Meta(ctx, counterfoil.MetaForgotten)
	if err != nil && !errors.Is(err, counterfoil.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := s.SetMeta(ctx, counterfoil.MetaForgotten, m.Rev, counterfoil.Forgotten{op: at}.Encode()); err != nil {
		t.Fatal(err)
	}
}

// all is every record of a store, by ID.
func all(t *testing.T, s counterfoil.Store) map[counterfoil.ID]counterfoil.Record {
	t.Helper()
	page, err := s.Scan(ctx, counterfoil.Query{Page: counterfoil.Page{Limit: 100_000}})
	if err != nil || page.Next != nil {
		t.Fatal(err)
	}
	out := map[counterfoil.ID]counterfoil.Record{}
	for _, r := range page.Records {
		out[r.ID] = r
	}
	return out
}

// sameStores wants both to hold the same, to the last field; only the response
// whose replay is over may be left behind.
func sameStores(t *testing.T, from, to counterfoil.Store) {
	t.Helper()
	source, target := all(t, from), all(t, to)
	if len(source) != len(target) {
		t.Errorf("%d records in the source, %d in the target", len(source), len(target))
	}
	for id, s := range source {
		g := target[id]
		replayed := s.HasResponse && now.Before(s.ReplayUntil)
		if g.HasResponse != replayed {
			t.Errorf("record %s: has a response: %t, want %t", id, g.HasResponse, replayed)
		}
		if replayed {
			want, werr := from.Response(ctx, id, s.Rev)
			got, gerr := to.Response(ctx, id, g.Rev)
			if werr != nil || gerr != nil || !bytes.Equal(want, got) {
				t.Errorf("response of %s: %q, %v; want %q, %v", id, got, gerr, want, werr)
			}
		}
		s.Rev, g.Rev, s.HasResponse, g.HasResponse = 0, 0, false, false
		if !reflect.DeepEqual(s, g) {
			t.Errorf("record differs\n got %+v\nwant %+v", g, s)
		}
	}
	for _, name := range []string{counterfoil.MetaCharter, counterfoil.MetaForgotten} {
		if want, got := value(t, from, name), value(t, to, name); !bytes.Equal(want, got) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	trust, _, err := counterfoil.ReadTrust(ctx, to)
	if want, _, werr := counterfoil.ReadTrust(ctx, from); err != nil || werr != nil || trust != want {
		t.Errorf("trust %+v, want %+v (%v, %v)", trust, want, err, werr)
	}
	if err := storecopy.Unfinished(ctx, to); err != nil {
		t.Error(err)
	}
}

// value is a meta value, nil when it was never set.
func value(t *testing.T, s counterfoil.Store, name string) []byte {
	t.Helper()
	m, err := s.Meta(ctx, name)
	if err != nil && !errors.Is(err, counterfoil.ErrNotFound) {
		t.Fatal(err)
	}
	return m.Value
}

// run copies, and wants it to succeed.
func run(t *testing.T, from, to counterfoil.Store) storecopy.Report {
	t.Helper()
	rep, err := storecopy.Run(ctx, from, to, storecopy.Options{Page: 4})
	if err != nil {
		t.Fatalf("%v\n%+v", err, rep)
	}
	if !rep.Verified || rep.Refused != 0 || len(rep.Differences) != 0 {
		t.Errorf("report %+v", rep)
	}
	return rep
}

// refused copies, and wants it to fail for that reason.
func refused(t *testing.T, from, to counterfoil.Store, reason error, says ...string) storecopy.Report {
	t.Helper()
	rep, err := storecopy.Run(ctx, from, to, storecopy.Options{Page: 4})
	if !errors.Is(err, reason) || rep.Verified {
		t.Fatalf("error %v, verified %t; want %v", err, rep.Verified, reason)
	}
	for _, word := range says {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error lacks %q: %v", word, err)
		}
	}
	return rep
}

var errBroken = errors.New("connection lost")

// wire is what two stores are reached through. From call at on every call
// fails, the first of them done all the same where lost says so: its answer got
// lost. It stays broken: the program has died.
type wire struct {
	mu    sync.Mutex // guards what follows
	calls int
	at    int
	lost  bool
	// before is called with the number of each call.
	before func(n int)
}

// call says whether the call happens, and whether its answer arrives.
func (w *wire) call() (done, answered bool) {
	w.mu.Lock()
	w.calls++
	n := w.calls
	w.mu.Unlock()
	if w.before != nil {
		w.before(n)
	}
	if w.at == 0 || n < w.at {
		return true, true
	}
	return n == w.at && w.lost, false
}

func through[T any](w *wire, do func() (T, error)) (T, error) {
	done, answered := w.call()
	var got, none T
	var err error
	if done {
		got, err = do()
	}
	if !answered {
		return none, errBroken
	}
	return got, err
}

// far is a store at the other end of a wire.
type far struct {
	counterfoil.Store
	w *wire
}

func (f far) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	return through(f.w, func() (counterfoil.Standing, error) { return f.Store.Create(ctx, d) })
}

func (f far) Update(ctx context.Context, u *counterfoil.Write) (counterfoil.Snapshot, error) {
	return through(f.w, func() (counterfoil.Snapshot, error) { return f.Store.Update(ctx, u) })
}

func (f far) Get(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	return through(f.w, func() (counterfoil.Snapshot, error) { return f.Store.Get(ctx, id) })
}

func (f far) Response(ctx context.Context, id counterfoil.ID, rev uint64) ([]byte, error) {
	return through(f.w, func() ([]byte, error) { return f.Store.Response(ctx, id, rev) })
}

func (f far) Scan(ctx context.Context, q counterfoil.Query) (counterfoil.Records, error) {
	return through(f.w, func() (counterfoil.Records, error) { return f.Store.Scan(ctx, q) })
}

func (f far) Meta(ctx context.Context, name string) (counterfoil.Meta, error) {
	return through(f.w, func() (counterfoil.Meta, error) { return f.Store.Meta(ctx, name) })
}

func (f far) SetMeta(ctx context.Context, name string, ifRev uint64, value []byte) (uint64, error) {
	return through(f.w, func() (uint64, error) { return f.Store.SetMeta(ctx, name, ifRev, value) })
}

func (f far) Stats(ctx context.Context) (counterfoil.Stats, error) {
	return through(f.w, func() (counterfoil.Stats, error) { return f.Store.Stats(ctx) })
}
