package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
)

// fixture is one open store and the words in which the tests speak of it. Its
// methods end the test when a call that must succeed does not.
type fixture struct {
	*testing.T
	o     Options
	clock *Clock
	store counterfoil.Store
	ctx   context.Context
	needs []need // what the test declared
	// spoilt says that the store holds a record that it cannot read, so that
	// its listings need not succeed.
	spoilt bool

	mu   sync.Mutex // guards made
	made uint64
}

const (
	opPay    counterfoil.OperationNumber = 1
	opRefund counterfoil.OperationNumber = 300 // more than one byte of varint
)

var alice, bob = counterfoil.PrincipalDigest{0xa1}, counterfoil.PrincipalDigest{0xb0, 1}

func newFixture(t *testing.T, o Options) *fixture {
	t.Helper()
	f := &fixture{T: t, o: o, clock: NewClock(), ctx: context.Background()}
	f.store = o.Open(t, f.clock)
	t.Cleanup(func() { f.store.Close() })
	return f
}

// need fails a test that asks for something that it did not declare.
func (f *fixture) need(n need) {
	f.Helper()
	if !slices.Contains(f.needs, n) {
		f.Fatalf("this test does not apply to a store of which %s, and suite.go does not say so", n)
	}
}

// needsClock is called by tests that set the time.
func (f *fixture) needsClock() {
	f.Helper()
	f.need(needClock)
}

// reopen ends the store and opens what is left.
func (f *fixture) reopen() {
	f.Helper()
	f.need(needReopen)
	f.store = f.o.Reopen(f.T, f.store, f.clock)
}

// rounds is how often a race is run.
func (f *fixture) rounds(n int) int {
	if testing.Short() || f.o.Brief {
		return max(n/10, 10)
	}
	return n
}

// together runs fn(0) to fn(n-1) at the same moment and waits for them.
func together(n int, fn func(i int)) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			fn(i)
		})
	}
	close(start)
	wg.Wait()
}

// newID is an ID that no other test has, the same in every run. Safe for
// concurrent use.
func (f *fixture) newID() counterfoil.ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	sum := sha256.Sum256(binary.AppendUvarint([]byte(f.Name()), f.made))
	return counterfoil.ID(sum[:20])
}

// now is the store's time.
func (f *fixture) now() time.Time {
	f.Helper()
	page, err := f.store.Scan(f.ctx, counterfoil.Query{Page: counterfoil.Page{Limit: 1}})
	f.ok(err)
	return counterfoil.Instant(page.AsOf)
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// is wants err to wrap the sentinel.
func (f *fixture) is(err, sentinel error, what string) {
	f.Helper()
	if !errors.Is(err, sentinel) {
		f.Fatalf("%s: got error %v, want %q", what, err, sentinel)
	}
}

// draft is a claim of a new key: in progress for 30 s from the store's now.
func (f *fixture) draft() *counterfoil.Draft {
	return &counterfoil.Draft{
		Record: counterfoil.Record{
			ID:          f.newID(),
			Principal:   alice,
			Operation:   opPay,
			State:       counterfoil.InProgress,
			Attempt:     1,
			Token:       counterfoil.NewToken(),
			Fingerprint: counterfoil.Fingerprint{Version: 1, Sum: [16]byte{1, 2, 3}},
			Policy:      1,
		},
		Stamps: counterfoil.Stamps{
			CreatedAt:  counterfoil.In(0),
			ClaimedAt:  counterfoil.In(0),
			LeaseUntil: counterfoil.In(30 * time.Second),
			QuietAt:    counterfoil.In(90 * time.Second),
		},
	}
}

// create inserts the draft and returns the record.
func (f *fixture) create(d *counterfoil.Draft) counterfoil.Record {
	f.Helper()
	st, err := f.store.Create(f.ctx, d)
	f.ok(err)
	if !st.Created {
		f.Fatalf("Create of a new ID: got %+v, want it created", st)
	}
	return st.Record
}

// claim inserts a claim of a new key, with what change does to the draft.
func (f *fixture) claim(change ...func(*counterfoil.Draft)) counterfoil.Record {
	f.Helper()
	d := f.draft()
	for _, c := range change {
		c(d)
	}
	return f.create(d)
}

// next is a write on r as it stands.
func next(r counterfoil.Record) *counterfoil.Write {
	return &counterfoil.Write{Record: r.Clone(), IfRev: r.Rev, IfToken: r.Token}
}

// update writes on r as it stands, with what change does to the write.
func (f *fixture) update(r counterfoil.Record, change func(*counterfoil.Write)) counterfoil.Record {
	f.Helper()
	w := next(r)
	change(w)
	snap, err := f.store.Update(f.ctx, w)
	f.ok(err)
	return snap.Record
}

// get returns the record that stands.
func (f *fixture) get(id counterfoil.ID) counterfoil.Record {
	f.Helper()
	snap, err := f.store.Get(f.ctx, id)
	f.ok(err)
	return snap.Record
}

// same wants want to stand, to the last field.
func (f *fixture) same(want counterfoil.Record) {
	f.Helper()
	if d := diff(f.get(want.ID), want); d != "" {
		f.Fatalf("record %s is not what was written:\n%s", want.ID, d)
	}
}

// gone wants no record.
func (f *fixture) gone(id counterfoil.ID) {
	f.Helper()
	snap, err := f.store.Get(f.ctx, id)
	if !errors.Is(err, counterfoil.ErrNotFound) {
		f.Fatalf("Get: got record in state %s and error %v, want %q", snap.Record.State, err, counterfoil.ErrNotFound)
	}
}

// response wants the kept response of r to be want; nil wants none.
func (f *fixture) response(r counterfoil.Record, want []byte) {
	f.Helper()
	got, err := f.store.Response(f.ctx, r.ID, r.Rev)
	if want == nil {
		f.is(err, counterfoil.ErrNotFound, "Response where none is kept")
		return
	}
	f.ok(err)
	if string(got) != string(want) {
		f.Fatalf("Response: got %d bytes %.40q, want %d bytes %.40q", len(got), got, len(want), want)
	}
}

// all returns every record the query selects, page by page.
func (f *fixture) all(q counterfoil.Query) []counterfoil.Record {
	f.Helper()
	var out []counterfoil.Record
	for range 100_000 {
		page, err := f.store.Scan(f.ctx, q)
		f.ok(err)
		if q.Limit > 0 && len(page.Records) > q.Limit {
			f.Fatalf("Scan: got %d records on a page of %d", len(page.Records), q.Limit)
		}
		out = append(out, page.Records...)
		if page.Next == nil {
			return out
		}
		q.Cursor = page.Next
	}
	f.Fatal("Scan does not come to an end")
	return nil
}

// pass sweeps once through the store.
func (f *fixture) pass(o counterfoil.SweepOrder) counterfoil.SweepReport {
	f.Helper()
	var sum counterfoil.SweepReport
	for range 100_000 {
		batch, err := f.store.Sweep(f.ctx, o)
		f.ok(err)
		if o.Limit > 0 && batch.Examined > o.Limit {
			f.Fatalf("Sweep: examined %d records in a batch of %d", batch.Examined, o.Limit)
		}
		sum.Add(batch)
		if batch.Next == nil {
			return sum
		}
		o.Cursor = batch.Next
	}
	f.Fatal("Sweep does not come to an end")
	return sum
}

// sweep passes through the store until a pass changes nothing, and returns the
// sum, with Examined and Kept of the last pass only. A store may take a record
// through several states in one visit or in several.
func (f *fixture) sweep(o counterfoil.SweepOrder) counterfoil.SweepReport {
	f.Helper()
	var sum counterfoil.SweepReport
	for range 10 {
		p := f.pass(o)
		sum.Add(p)
		sum.Examined, sum.Kept = p.Examined, p.Kept
		if p.ResponsesDropped+p.Tombstoned+p.Closed+p.Announced+p.TombstonesDeleted+p.FailedDeleted == 0 {
			return sum
		}
	}
	f.Fatal("ten passes of Sweep in a row changed something")
	return sum
}
