package counterfoil_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
)

func indexKey(t *testing.T, c byte) counterfoil.IndexKey {
	t.Helper()
	k, err := counterfoil.NewIndexKey(bytes.Repeat([]byte{c}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (w *world) charter() (counterfoil.Charter, uint64) {
	w.t.Helper()
	c, rev, err := counterfoil.ReadCharter(w.t.Context(), w.store)
	if err != nil {
		w.t.Fatal(err)
	}
	return *c, rev
}

// refusedBy opens the store with p and o, wants it refused, and returns the
// faults; the charter must be untouched.
func (w *world) refusedBy(p *policy.Policy, o counterfoil.Options) []counterfoil.CharterFault {
	w.t.Helper()
	before, rev := w.charter()
	_, err := counterfoil.Open(w.t.Context(), w.store, p, o)
	var ce *counterfoil.CharterError
	if !errors.As(err, &ce) || !errors.Is(err, counterfoil.ErrCharter) || counterfoil.Code(err) != "charter" {
		w.t.Fatalf("error %v, want a charter error", err)
	}
	for _, f := range ce.Faults {
		if f.Remedy == "" || !strings.Contains(err.Error(), f.Remedy) || !strings.Contains(err.Error(), f.Field) {
			w.t.Errorf("fault %+v is not told in %q", f, err)
		}
	}
	if after, now := w.charter(); now != rev || !reflect.DeepEqual(before, after) {
		w.t.Errorf("refused, and changed the charter from %+v to %+v", before, after)
	}
	return ce.Faults
}

// renamed is capture under the name "take", on the same routes.
func renamed(changes ...func(*policy.Operation)) policy.Operation {
	return capture(append([]func(*policy.Operation){func(o *policy.Operation) { o.Name = "take" }}, changes...)...)
}

func TestCharterOfNewStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policyOf(3, capture(), capture(func(o *policy.Operation) { o.Name, o.Scope.Family = "refund", "payments" }))
		w := newWorld(t, p, counterfoil.Options{IndexKey: indexKey(t, 1)})
		c, rev := w.charter()
		want := []counterfoil.CharterOperation{
			{Number: 1, Name: "capture", Principal: "header:X-Account", Family: "capture", KeyHeader: "Idempotency-Key"},
			{Number: 2, Name: "refund", Principal: "header:X-Account", Family: "payments", KeyHeader: "Idempotency-Key"},
		}
		if !reflect.DeepEqual(c.Operations, want) || c.Newest() != 3 || c.IndexKeyCheck == "" || len(c.Policies) != 1 {
			t.Errorf("charter %+v", c)
		}
		if !bytes.Equal(c.Policies[0].Text, p.Text()) {
			t.Errorf("policy text %s, want %s", c.Policies[0].Text, p.Text())
		}
		w.open(p, counterfoil.Options{IndexKey: indexKey(t, 1)})
		if _, again := w.charter(); again != rev {
			t.Error("opening again wrote the charter anew")
		}
		if w.e.OperationNumber("refund") != 2 || w.e.OperationName(2) != "refund" || w.e.OperationName(9) != "" || w.e.OperationNumber("x") != 0 {
			t.Error("names and numbers differ")
		}
	})
}

// TestCharterIndexKey: another index key finds none of the records.
func TestCharterIndexKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policyOf(1, capture(), renamed(func(o *policy.Operation) { o.Match = nil }))
		w := newWorld(t, p, counterfoil.Options{IndexKey: indexKey(t, 1)})
		for i := range 3 {
			w.completed(fmt.Sprint("k", i))
		}
		early := uuidv7(time.Now(), 1)
		for name, o := range map[string]counterfoil.Options{
			"another": {IndexKey: indexKey(t, 2)}, "none": {}, "not all forgotten": {IndexKey: indexKey(t, 2), Forget: []string{"capture"}},
		} {
			f := w.refusedBy(p, o)
			if len(f) != 1 || f[0].Field != "index_key_file" || f[0].Forgets != 3 {
				t.Errorf("%s: faults %+v", name, f)
			}
		}
		w.e = w.open(p, counterfoil.Options{IndexKey: indexKey(t, 2), Forget: []string{"capture", "take"}})
		w.ask(request("k0", 1), proceed)
		// What was forgotten is witnessed: older keys may have run (F).
		w.ask(request(early, 1), expired)
		w.refusedBy(p, counterfoil.Options{IndexKey: indexKey(t, 1)})
	})
}

// TestCharterScope: whatever would look for keys in another place is refused,
// every fault at once, with the number of records it would forget.
func TestCharterScope(t *testing.T) {
	changes := map[string]func(*policy.Operation){
		"scope.principal": func(o *policy.Operation) { o.Scope.Principal.Header = "Authorization" },
		"scope.family":    func(o *policy.Operation) { o.Scope.Family = "payments" },
		"key.header":      func(o *policy.Operation) { o.Key.Header = "X-Request-Id" },
	}
	for field, change := range changes {
		t.Run(field, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.completed("k0")
				w.unknown("k1")
				pass(time.Hour)
				early := uuidv7(time.Now().Add(-time.Minute), 1)
				next := policyOf(2, capture(change))
				f := w.refusedBy(next, counterfoil.Options{})
				if len(f) != 1 || f[0].Field != field || f[0].Operation != "capture" || f[0].Forgets != 2 || f[0].Kept == f[0].Given {
					t.Errorf("faults %+v", f)
				}
				if err := w.e.SetPolicy(t.Context(), next); !errors.Is(err, counterfoil.ErrCharter) || w.e.Policy().Version != 1 {
					t.Errorf("set policy: %v, version %d", err, w.e.Policy().Version)
				}
				w.ask(request("k0", 1), replay) // the engine goes on by the old one
				w.ask(request(early, 1), proceed)

				w.e = w.open(next, counterfoil.Options{Forget: []string{"capture"}})
				late := request(uuidv7(time.Now().Add(-time.Minute), 2), 1)
				w.ask(late, expired) // F was raised
				pass(counterfoil.ClockTolerance + tick)
				w.ask(request(uuidv7(time.Now(), 3), 1), proceed)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		two := func(changes ...func(*policy.Operation)) *policy.Policy {
			return policyOf(uint32(len(changes)+1), capture(changes...), renamed(append(changes, func(o *policy.Operation) { o.Match = nil })...))
		}
		w := newWorld(t, two(), counterfoil.Options{})
		f := w.refusedBy(two(changes["scope.principal"], changes["scope.family"], changes["key.header"]), counterfoil.Options{})
		if len(f) != 6 {
			t.Errorf("%d faults, want all 6: %+v", len(f), f)
		}
		if f := w.refusedBy(two(changes["scope.family"], changes["key.header"]), counterfoil.Options{Forget: []string{"take"}}); len(f) != 2 {
			t.Errorf("faults %+v, want the two of capture", f)
		}
		_, err := counterfoil.Open(t.Context(), w.store, two(), counterfoil.Options{Forget: []string{"nonesuch"}})
		if !errors.Is(err, counterfoil.ErrOperationUnknown) {
			t.Errorf("forget an operation that is not: %v", err)
		}
	})
}

// TestCharterRename: a renamed operation keeps its records if it says so and
// keeps its family.
func TestCharterRename(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.completed("k")
		f := w.refusedBy(policyOf(2, renamed()), counterfoil.Options{})
		if len(f) != 1 || f[0].Field != "name" || f[0].Kept != "capture" || f[0].Given != "take" || f[0].Forgets != 1 ||
			!strings.Contains(f[0].Remedy, "renamed_from: capture") {
			t.Errorf("faults %+v", f)
		}
		from := func(o *policy.Operation) { o.RenamedFrom = "capture" }
		if f := w.refusedBy(policyOf(2, renamed(from)), counterfoil.Options{}); len(f) != 1 || f[0].Field != "scope.family" || f[0].Kept != "capture" {
			t.Errorf("faults %+v: the family is where the keys are", f)
		}
		keeps := func(o *policy.Operation) { o.Scope.Family = "capture" }
		old := w.e
		w.e = w.open(policyOf(2, renamed(from, keeps)), counterfoil.Options{})
		req := request("k", 1)
		req.Operation = "take"
		w.ask(req, replay)
		req = request("k", 2)
		req.Operation = "take"
		w.ask(req, mismatch)
		if n := w.e.OperationNumber("take"); n != 1 || w.e.OperationName(1) != "take" {
			t.Errorf("number %d, name %q", n, w.e.OperationName(1))
		}
		c, _ := w.charter()
		if len(c.Operations) != 1 || !reflect.DeepEqual(c.Operations[0].Former, []string{"capture"}) {
			t.Errorf("operations %+v", c.Operations)
		}
		// The node that has not been restarted yet goes on under the old name,
		// also once it has heard of the new one.
		w.e = old
		if err := old.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.ask(request("k", 1), replay)
		d := w.ask(request("new", 1), proceed)
		if d.Record.Operation != 1 {
			t.Errorf("record of operation %d, want 1", d.Record.Operation)
		}
		// Nor does a restart of that node forget anything: its version is known.
		again, err := counterfoil.Open(t.Context(), w.store, old.Policy(), counterfoil.Options{})
		if err != nil {
			t.Fatalf("version 1 again, beside version 2: %v", err)
		}
		if n := again.OperationNumber("capture"); n != 1 {
			t.Errorf("number %d, want 1", n)
		}
	})
	inWorld(t, func(t *testing.T, w *world) {
		// Really another operation on the same route: the operator says so.
		w.e = w.open(policyOf(2, renamed()), counterfoil.Options{Forget: []string{"take"}})
		if n := w.e.OperationNumber("take"); n != 2 {
			t.Errorf("number %d, want a new one", n)
		}
		// A new operation on a new route needs no word.
		w.e = w.open(policyOf(3, renamed(), capture(func(o *policy.Operation) { o.Name, o.Match = "void", []string{"POST /v1/void"} })), counterfoil.Options{})
		if n := w.e.OperationNumber("void"); n != 3 {
			t.Errorf("number %d, want 3", n)
		}
	})
}

// TestCharterVersions: a version number means one content, and none goes back.
func TestCharterVersions(t *testing.T) {
	longer := func(o *policy.Operation) { o.Protect = 2 * retention }
	inWorld(t, func(t *testing.T, w *world) {
		f := w.refusedBy(policyOf(1, capture(longer)), counterfoil.Options{})
		if len(f) != 1 || f[0].Field != "policy version 1" || !strings.Contains(f[0].Remedy, "version: 2") {
			t.Errorf("faults %+v", f)
		}
		if err := w.e.SetPolicy(t.Context(), policyOf(1, capture(longer))); !errors.Is(err, counterfoil.ErrCharter) {
			t.Errorf("error %v", err)
		}
		if !w.e.MaySweep() {
			t.Error("the newest may not sweep")
		}
		newer := w.open(policyOf(5, capture(longer)), counterfoil.Options{})
		if f := w.refusedBy(policyOf(4, capture(longer)), counterfoil.Options{}); len(f) != 1 || f[0].Kept != "5" || f[0].Given != "4" {
			t.Errorf("faults %+v", f)
		}
		// A version once used may run on beside a newer one, and does not sweep.
		again := w.open(policyOf(1, capture()), counterfoil.Options{})
		if again.MaySweep() || !newer.MaySweep() {
			t.Errorf("may sweep: version 1 %t, version 5 %t", again.MaySweep(), newer.MaySweep())
		}
		if err := w.e.Refresh(t.Context()); err != nil || w.e.MaySweep() {
			t.Errorf("may sweep beside a newer version, %v", err)
		}
		if err := w.e.SetPolicy(t.Context(), policyOf(6, capture())); err != nil || !w.e.MaySweep() || w.e.Policy().Version != 6 {
			t.Errorf("set policy: %v", err)
		}
	})
}

// TestCharterUnreadable: a charter of another form is never taken for none.
func TestCharterUnreadable(t *testing.T) {
	for _, text := range []string{"", "garbage", `{"layout":2}`, `{}`} {
		s := memstore.New(memstore.Options{})
		if _, err := s.SetMeta(t.Context(), counterfoil.MetaCharter, 0, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := counterfoil.Open(t.Context(), s, policyOf(1, capture()), counterfoil.Options{}); !errors.Is(err, counterfoil.ErrUnreadable) {
			t.Errorf("charter %q: %v", text, err)
		}
		if m, err := s.Meta(t.Context(), counterfoil.MetaCharter); err != nil || string(m.Value) != text {
			t.Errorf("charter %q became %q, %v", text, m.Value, err)
		}
	}
	for _, name := range []string{counterfoil.MetaTrust} {
		s := memstore.New(memstore.Options{})
		if _, err := s.SetMeta(t.Context(), name, 0, []byte("garbage")); err != nil {
			t.Fatal(err)
		}
		if _, err := counterfoil.Open(t.Context(), s, policyOf(1, capture()), counterfoil.Options{}); !errors.Is(err, counterfoil.ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCharterManyNodes start at once over a new store: every operation gets
// one number.
func TestCharterManyNodes(t *testing.T) {
	s := memstore.New(memstore.Options{})
	var ops []policy.Operation
	for i := range 20 {
		ops = append(ops, capture(func(o *policy.Operation) { o.Name, o.Match = fmt.Sprint("op", i), nil }))
	}
	p := policyOf(1, ops...)
	numbers := make([]map[string]counterfoil.OperationNumber, 6)
	var wg sync.WaitGroup
	for i := range numbers {
		wg.Go(func() {
			e, err := counterfoil.Open(t.Context(), s, p, counterfoil.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			numbers[i] = map[string]counterfoil.OperationNumber{}
			for _, o := range ops {
				numbers[i][o.Name] = e.OperationNumber(o.Name)
			}
		})
	}
	wg.Wait()
	for _, n := range numbers {
		if !reflect.DeepEqual(n, numbers[0]) {
			t.Errorf("numbers %v and %v", n, numbers[0])
		}
	}
}

// TestForgottenForm: F is read as it was written, only grows, and what cannot
// be read is never taken as empty.
func TestForgottenForm(t *testing.T) {
	f := counterfoil.Forgotten{}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	if !f.Raise(1, at) || f.Raise(1, at) || f.Raise(1, at.Add(-time.Hour)) || !f.Raise(300, at.Add(time.Hour)) || !f[1].Equal(at) {
		t.Errorf("forgotten %v", f)
	}
	got, err := counterfoil.DecodeForgotten(f.Encode())
	if err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("decoded %v, %v; want %v", got, err, f)
	}
	text := f.Encode()
	for _, bad := range [][]byte{nil, {}, {2}, text[:len(text)-1], {1, 0x80}, {1, 5}} {
		if _, err := counterfoil.DecodeForgotten(bad); !errors.Is(err, counterfoil.ErrUnreadable) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}
