package storetest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
)

// Compare runs a number of random operations against the store and against
// memstore, on one clock, and fails at the first difference in what they answer
// or hold. The same seed gives the same operations; a failure prints it, with
// the operations that led there. It needs a clock that can be set.
func Compare(t *testing.T, o Options, seed uint64, ops int) {
	t.Helper()
	if o.OwnClock {
		t.Fatal("Compare needs a store whose clock can be set")
	}
	f := newFixture(t, o)
	f.needs = []need{needClock, needReopen}
	oracle := memstore.New(memstore.Options{Clock: f.clock.Now})
	t.Cleanup(func() { oracle.Close() })
	m := &model{
		fixture: f,
		oracle:  oracle,
		rng:     rand.New(rand.NewPCG(seed, 1)),
		seed:    seed,
		ops:     ops,
		latest:  f.clock.Now(),
		done:    make(map[string]int),
	}
	for range 14 {
		m.pool = append(m.pool, f.newID())
	}
	for m.step = 1; m.step <= ops; m.step++ {
		m.move()
		if m.step%50 == 0 {
			m.audit()
		}
	}
	m.audit()
	t.Logf("seed %d, %d operations: %v", seed, ops, m.done)
}

// model is a walk through the states of two stores that must stay alike.
type model struct {
	*fixture
	oracle    *memstore.Store
	rng       *rand.Rand
	seed      uint64
	step, ops int
	pool      []counterfoil.ID
	latest    time.Time // the latest time of the clock
	trail     []string  // what was done last
	done      map[string]int
}

// moves are the operations, each as often as its weight.
var moves = []struct {
	name   string
	weight int
	do     func(m *model)
}{
	{"create", 22, (*model).create},
	{"update", 36, (*model).update},
	{"response", 5, (*model).readResponse},
	{"overdue", 3, (*model).listOverdue},
	{"scan", 4, (*model).listScan},
	{"sweep", 4, (*model).runSweep},
	{"meta", 4, (*model).writeMeta},
	{"forgotten", 1, (*model).raiseForgotten},
	{"time", 10, (*model).passTime},
	{"clock back", 2, (*model).turnBack},
	{"reopen", 1, (*model).openAgain},
}

func (m *model) move() {
	m.Helper()
	total := 0
	for _, mv := range moves {
		total += mv.weight
	}
	n := m.rng.IntN(total)
	for _, mv := range moves {
		if n -= mv.weight; n < 0 {
			m.done[mv.name]++
			mv.do(m)
			return
		}
	}
}

// did remembers an operation for the report of a failure.
func (m *model) did(format string, args ...any) {
	m.trail = append(m.trail, fmt.Sprintf("%d: ", m.step)+fmt.Sprintf(format, args...))
	if len(m.trail) > 15 {
		m.trail = m.trail[1:]
	}
}

// differs ends the test.
func (m *model) differs(format string, args ...any) {
	m.Helper()
	m.Fatalf("seed %d, operation %d of %d: %s\nlast operations:\n  %s",
		m.seed, m.step, m.ops, fmt.Sprintf(format, args...), strings.Join(m.trail, "\n  "))
}

// agree compares how two calls ended, and reports whether both succeeded.
func (m *model) agree(got, want error) bool {
	m.Helper()
	if (got == nil) != (want == nil) || got != nil && counterfoil.Code(got) != counterfoil.Code(want) {
		m.differs("got error %v, memstore %v", got, want)
	}
	return got == nil
}

// alike compares two records but for what may differ: revs, of which a sweep
// may spend one or several, and what a tombstone may let go.
func (m *model) alike(got, want counterfoil.Record) {
	m.Helper()
	if d := diff(canonical(got), canonical(want)); d != "" {
		m.differs("record %.8s differs from memstore's:\n%s", want.ID, d)
	}
}

func canonical(r counterfoil.Record) counterfoil.Record {
	if r.State == counterfoil.Tombstone || r.State == counterfoil.Announced {
		r = stub(r)
	} else {
		r = r.Clone()
	}
	r.Rev = 0
	for i := range r.Evidence {
		if e := &r.Evidence[i]; e.Kind == counterfoil.EvidenceClosed {
			e.Actor, e.Reason, e.Attempt = "", "", 0 // a store's own words
		}
	}
	return r
}

func (m *model) sameTime(got, want time.Time) {
	m.Helper()
	if !counterfoil.Instant(got).Equal(counterfoil.Instant(want)) {
		m.differs("as of %s, memstore as of %s", got, want)
	}
}

// both reads a record from both stores and compares; ok is false when neither
// has it.
func (m *model) both(id counterfoil.ID) (mine, theirs counterfoil.Record, ok bool) {
	m.Helper()
	got, gerr := m.store.Get(m.ctx, id)
	want, werr := m.oracle.Get(m.ctx, id)
	if !m.agree(gerr, werr) {
		return mine, theirs, false
	}
	m.alike(got.Record, want.Record)
	m.sameTime(got.AsOf, want.AsOf)
	return got.Record, want.Record, true
}

// audit compares all that the two stores hold.
func (m *model) audit() {
	m.Helper()
	got := m.everything(m.store)
	want := m.everything(m.oracle)
	if len(got) != len(want) {
		m.differs("holds %d records, memstore %d", len(got), len(want))
	}
	for i := range want {
		m.alike(got[i], want[i])
		a, aerr := m.store.Response(m.ctx, got[i].ID, got[i].Rev)
		b, berr := m.oracle.Response(m.ctx, want[i].ID, want[i].Rev)
		if m.agree(aerr, berr) && !bytes.Equal(a, b) {
			m.differs("response of %.8s: %d bytes %.20q, memstore %d bytes %.20q", want[i].ID, len(a), a, len(b), b)
		}
	}
	m.counted()
	if a, b := m.forgottenIn(m.store), m.forgottenIn(m.oracle); !maps.EqualFunc(a, b, time.Time.Equal) {
		m.differs("F is %v, memstore's %v", a, b)
	}
}

// everything is all records, in the order of their IDs.
func (m *model) everything(s counterfoil.Store) []counterfoil.Record {
	m.Helper()
	out := m.pages(s, counterfoil.Query{Page: counterfoil.Page{Limit: 1 + m.rng.IntN(20)}})
	slices.SortFunc(out, func(a, b counterfoil.Record) int { return a.ID.Compare(b.ID) })
	return out
}

func (m *model) pages(s counterfoil.Store, q counterfoil.Query) (out []counterfoil.Record) {
	m.Helper()
	for range 10_000 {
		page, err := s.Scan(m.ctx, q)
		m.ok(err)
		out = append(out, page.Records...)
		if q.Cursor = page.Next; q.Cursor == nil {
			return out
		}
	}
	m.differs("Scan does not come to an end")
	return nil
}

func (m *model) forgottenIn(s counterfoil.Store) counterfoil.Forgotten {
	m.Helper()
	v, err := s.Meta(context.Background(), counterfoil.MetaForgotten)
	if counterfoil.Code(err) == "not-found" {
		return counterfoil.Forgotten{}
	}
	m.ok(err)
	known, err := counterfoil.DecodeForgotten(v.Value)
	m.ok(err)
	return known
}
