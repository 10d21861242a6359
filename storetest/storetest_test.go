package storetest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/storetest"
)

// envMutant tells a child of this test which mutant to run.
const envMutant = "STORETEST_MUTANT"

// TestBites proves that the suite can fail: every mutant is run in a process of
// its own and must be found by the subtest that is named beside it, and by
// Compare where that is marked.
func TestBites(t *testing.T) {
	for i, mu := range mutants {
		t.Run(mu.name, func(t *testing.T) { bites(t, i, mu.test, mu.model) })
	}
	for i, l := range losses {
		t.Run(l.name, func(t *testing.T) { bites(t, len(mutants)+i, l.test, false) })
	}
}

func bites(t *testing.T, n int, test string, model bool) {
	t.Helper()
	run := "^TestMutant$/^suite$"
	if model {
		run = "^TestMutant$"
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+run, "-test.short", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), envMutant+"="+strconv.Itoa(n))
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("nobody noticed:\n%s", out)
	}
	if want := "--- FAIL: TestMutant/suite/" + test + " "; !strings.Contains(string(out), want) {
		t.Errorf("the suite did not say %q:\n%.4000s", want, out)
	}
	if model && !strings.Contains(string(out), "--- FAIL: TestMutant/model") {
		t.Errorf("the model did not notice:\n%.4000s", out)
	}
}

// TestMutant is run by TestBites, in a child.
func TestMutant(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(envMutant))
	if err != nil {
		return // only TestBites, in a child, says which mutant to be
	}
	o := storetest.Options{Open: func(_ testing.TB, clock *storetest.Clock) counterfoil.Store {
		m := &mutant{Store: memstore.New(memstore.Options{Clock: clock.Now}), clock: clock}
		mutants[n].plant(m)
		return m
	}}
	if n >= len(mutants) {
		o = surviving(losses[n-len(mutants)].lose)
	}
	t.Run("suite", func(t *testing.T) { storetest.Run(t, o) })
	for seed := range uint64(5) {
		t.Run(fmt.Sprintf("model%d", seed), func(t *testing.T) { storetest.Compare(t, o, seed, 2000) })
	}
}

// TestSurvivor runs the tests of opening again, and of records that cannot be
// read, over a store that passes them.
func TestSurvivor(t *testing.T) {
	o := surviving(func(*survivor) {})
	storetest.Run(t, o)
	storetest.Compare(t, o, 1, 1000)
}

// losses are what a survivor loses when it is opened again.
var losses = []struct {
	name, test string
	lose       func(s *survivor)
}{
	{"a record is lost", "P2_no_claim_of_many_callers_is_lost", func(s *survivor) {
		page, _ := s.Scan(background, counterfoil.Query{})
		for _, r := range page.Records[:1] {
			s.lost[r.ID] = true
		}
	}},
	{"responses are lost", "P2_P3_what_was_acknowledged_is_there_after_the_store_was_opened_again", func(s *survivor) { s.mute = true }},
	{"unreadable is absent", "an_unreadable_record_is_never_absent", nil},
}

// survivor is a store that outlives being opened again and can be spoilt, so
// that those tests of the suite run here too.
type survivor struct {
	counterfoil.Store
	mu     sync.Mutex // guards spoilt
	spoilt map[counterfoil.ID]bool
	// What was lost when it was opened again: records, all responses.
	lost map[counterfoil.ID]bool
	mute bool
}

func (s *survivor) bad(id counterfoil.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spoilt[id] {
		return counterfoil.ErrUnreadable
	}
	return nil
}

func (s *survivor) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	if err := s.bad(d.Record.ID); err != nil {
		return counterfoil.Standing{}, err
	}
	return s.Store.Create(ctx, d)
}

func (s *survivor) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	if err := s.bad(w.Record.ID); err != nil {
		return counterfoil.Snapshot{}, err
	}
	return s.Store.Update(ctx, w)
}

func (s *survivor) Get(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	if err := s.bad(id); err != nil {
		return counterfoil.Snapshot{}, err
	}
	if s.lost[id] {
		return counterfoil.Snapshot{}, counterfoil.ErrNotFound
	}
	return s.Store.Get(ctx, id)
}

func (s *survivor) Response(ctx context.Context, id counterfoil.ID, rev uint64) ([]byte, error) {
	if s.mute {
		return nil, counterfoil.ErrNotFound
	}
	return s.Store.Response(ctx, id, rev)
}

func (s *survivor) Sweep(ctx context.Context, o counterfoil.SweepOrder) (counterfoil.SweepReport, error) {
	s.mu.Lock()
	spoilt := len(s.spoilt) > 0
	s.mu.Unlock()
	if spoilt {
		return counterfoil.SweepReport{}, counterfoil.ErrUnreadable
	}
	return s.Store.Sweep(ctx, o)
}

// surviving opens survivors. A nil lose is the mutant that takes what it cannot
// read for nothing.
func surviving(lose func(*survivor)) storetest.Options {
	return storetest.Options{
		Open: func(_ testing.TB, clock *storetest.Clock) counterfoil.Store {
			return &survivor{
				Store:  memstore.New(memstore.Options{Clock: clock.Now}),
				spoilt: make(map[counterfoil.ID]bool),
				lost:   make(map[counterfoil.ID]bool),
			}
		},
		Reopen: func(_ testing.TB, s counterfoil.Store, _ *storetest.Clock) counterfoil.Store {
			if lose != nil {
				lose(s.(*survivor))
			}
			return s
		},
		Spoil: func(_ testing.TB, s counterfoil.Store, id counterfoil.ID) {
			v := s.(*survivor)
			v.mu.Lock()
			defer v.mu.Unlock()
			if lose == nil {
				v.lost[id] = true
			} else {
				v.spoilt[id] = true
			}
		},
	}
}
