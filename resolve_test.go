package counterfoil_test

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// word is a resolution by ann.
func word(res counterfoil.Resolution) counterfoil.Resolution {
	res.Actor, res.Reason = "ann", "asked the provider"
	return res
}

// TestResolveAbsent: absence is proved by having asked after t_quiet, by the
// effect having been cancelled, by its being unable to repeat, or it is an
// operator's word that was early and says so.
func TestResolveAbsent(t *testing.T) {
	for _, c := range []struct {
		name string
		at   time.Duration // since the claim
		res  counterfoil.Resolution
		want counterfoil.Proof // ProofNone: too early
	}{
		{"before t_quiet", quiet - tick, counterfoil.Resolution{}, counterfoil.ProofNone},
		{"before t_quiet, asked and said so", quiet - tick, counterfoil.Resolution{Proof: counterfoil.ProofQuiet}, counterfoil.ProofNone},
		{"before t_quiet, early", quiet - tick, counterfoil.Resolution{Early: true}, counterfoil.ProofEarly},
		{"before t_quiet, cancelled", lease + tick, counterfoil.Resolution{Proof: counterfoil.ProofCancelled}, counterfoil.ProofCancelled},
		{"before t_quiet, deduped", lease + tick, counterfoil.Resolution{Proof: counterfoil.ProofDeduped}, counterfoil.ProofDeduped},
		{"at t_quiet", quiet, counterfoil.Resolution{}, counterfoil.ProofQuiet},
		{"at t_quiet, early need not be said", quiet, counterfoil.Resolution{Early: true}, counterfoil.ProofQuiet},
		{"long after", 1000 * time.Hour, counterfoil.Resolution{}, counterfoil.ProofQuiet},
	} {
		for _, from := range []string{"unknown", "lapsed"} {
			t.Run(c.name+", "+from, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					claim := w.claim("k")
					if from == "unknown" {
						if _, err := claim.Unknown(t.Context(), counterfoil.EvidenceAmbiguous, 502, ""); err != nil {
							t.Fatal(err)
						}
					}
					pass(c.at)
					before := w.get(claim.ID())
					_, err := w.e.Resolve(t.Context(), claim.ID(), word(c.res))
					if c.want == counterfoil.ProofNone {
						if !errors.Is(err, counterfoil.ErrTooEarly) {
							t.Errorf("error %v, want too early", err)
						}
						if after := w.get(claim.ID()); !reflect.DeepEqual(before, after) {
							t.Errorf("changed %+v to %+v", before, after)
						}
						w.ask(request("k", 1), unknown)
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					r := w.state(claim.ID(), counterfoil.Failed)
					last := r.Evidence[len(r.Evidence)-1]
					if r.Proof != c.want || last.Kind != counterfoil.EvidenceResolved || last.Actor != "ann" ||
						last.Reason != "asked the provider" || !last.At.Equal(time.Now()) || last.Outcome.Class != counterfoil.NoEffect {
						t.Errorf("proof %s, evidence %+v", r.Proof, last)
					}
					if len(w.reconciled) != 1 || w.reconciled[0] != counterfoil.Failed {
						t.Errorf("the trace heard of %v", w.reconciled)
					}
					w.ask(request("k", 1), proceed)
				})
			})
		}
	}
}

// TestResolveNeverDispatched: what lapsed before it crossed needs no asking.
func TestResolveNeverDispatched(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		pass(lease + tick)
		if r := w.resolve(c.ID(), counterfoil.Resolution{}); r.State != counterfoil.Failed || r.Proof != counterfoil.ProofNeverDispatched {
			t.Errorf("record %+v", r)
		}
		if err := c.Dispatch(t.Context()); err == nil {
			t.Error("its owner could still cross")
		}
	}, explicit)
}

// TestResolveRefusals: each for its own reason, and none of them writes.
func TestResolveRefusals(t *testing.T) {
	for _, c := range []struct {
		name  string
		stand func(w *world) counterfoil.ID
		res   counterfoil.Resolution
		want  error // nil: any
	}{
		{"no such record", func(*world) counterfoil.ID { return counterfoil.ID{1} }, word(counterfoil.Resolution{}), counterfoil.ErrNotFound},
		{"a live claim", func(w *world) counterfoil.ID { return w.claim("k").ID() }, word(counterfoil.Resolution{Applied: true, Outcome: succeeded}), counterfoil.ErrConflict},
		{"a lease that ends now is alive (C74)", func(w *world) counterfoil.ID { defer pass(lease); return w.claim("k").ID() }, word(counterfoil.Resolution{Early: true}), counterfoil.ErrConflict},
		{"completed", func(w *world) counterfoil.ID { return w.completed("k") }, word(counterfoil.Resolution{}), counterfoil.ErrSettled},
		{"failed", standingStates()["failed"], word(counterfoil.Resolution{Applied: true, Outcome: succeeded}), counterfoil.ErrSettled},
		{"tombstone", standingStates()["tombstone"], word(counterfoil.Resolution{}), counterfoil.ErrSettled},
		{"announced", standingStates()["announced"], word(counterfoil.Resolution{}), counterfoil.ErrSettled},
		{"no actor", standingStates()["unknown"], counterfoil.Resolution{Reason: "why", Early: true}, nil},
		{"no reason", standingStates()["unknown"], counterfoil.Resolution{Actor: "ann", Early: true}, nil},
		{"applied, but how", standingStates()["unknown"], word(counterfoil.Resolution{Applied: true}), nil},
		{"applied, without effect", standingStates()["unknown"], word(counterfoil.Resolution{Applied: true, Outcome: counterfoil.Outcome{Class: counterfoil.NoEffect}}), nil},
		{"a resource too long", standingStates()["unknown"], word(counterfoil.Resolution{Applied: true, Outcome: counterfoil.Outcome{Class: counterfoil.Succeeded, Resource: fmt.Sprintf("%01025d", 1)}}), nil},
		{"another rev than was shown", standingStates()["unknown"], word(counterfoil.Resolution{Early: true, IfRev: 1}), counterfoil.ErrConflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				id := c.stand(w)
				before, _ := w.store.Get(t.Context(), id)
				_, err := w.e.Resolve(t.Context(), id, c.res)
				if err == nil || c.want != nil && !errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				}
				after, _ := w.store.Get(t.Context(), id)
				if !reflect.DeepEqual(before.Record, after.Record) {
					t.Errorf("changed %+v to %+v", before.Record, after.Record)
				}
			})
		})
	}
}

// TestResolveIfRev accepts the rev that was shown.
func TestResolveIfRev(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.unknown("k")
		r := w.resolve(c.ID(), counterfoil.Resolution{Applied: true, Outcome: succeeded, IfRev: w.get(c.ID()).Rev})
		if r.State != counterfoil.Completed {
			t.Errorf("record %+v", r)
		}
	})
}

// TestResolveTwoPeople say opposite things at one moment: one of them is told.
func TestResolveTwoPeople(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 20 {
			c := w.unknown(fmt.Sprint("k", i))
			words := []counterfoil.Resolution{word(counterfoil.Resolution{Applied: true, Outcome: succeeded}), word(counterfoil.Resolution{Early: true})}
			errs := make([]error, len(words))
			var wg sync.WaitGroup
			for j, res := range words {
				wg.Go(func() { _, errs[j] = w.e.Resolve(t.Context(), c.ID(), res) })
			}
			wg.Wait()
			if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), counterfoil.ErrSettled) {
				t.Fatalf("errors %v; want one ErrSettled", errs)
			}
			if r := w.get(c.ID()); (r.State == counterfoil.Completed) != (errs[0] == nil) {
				t.Errorf("record %+v, errors %v", r, errs)
			}
		}
	})
}

// TestResolveClosedNeverReopens: once its own time has come, an unknown outcome
// is filled in and the key stays spent, whether or not a sweep has been there
// to make the tombstone (C83), and whoever says that nothing happened.
func TestResolveClosedNeverReopens(t *testing.T) {
	says := map[string]func(w *world, c *counterfoil.Claim) error{
		"a person": func(w *world, c *counterfoil.Claim) error {
			_, err := w.e.Resolve(w.t.Context(), c.ID(), word(counterfoil.Resolution{}))
			return err
		},
		"the owner": func(w *world, c *counterfoil.Claim) error {
			_, err := c.Fail(w.t.Context(), "never sent")
			return err
		},
	}
	for name, say := range says {
		for _, swept := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, swept %t", name, swept), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					c := w.claim("k")
					pass(lease + tick)
					w.reconcile(c.ID())
					w.edit(c.ID(), func(r *counterfoil.Record) {
						r.Gates = []counterfoil.Gate{{Name: "settlement", Until: r.QuietAt.Add(2 * retention)}}
					})
					pass(quiet + retention)
					if swept {
						w.sweep(0)
					}
					if err := say(w, c); err != nil {
						t.Fatal(err)
					}
					d := w.ask(request("k", 1), already)
					if d.Record.Outcome.Class != counterfoil.NoEffect {
						t.Errorf("record %+v", d.Record)
					}
				})
			})
		}
	}
}

// TestResolveEvidenceFull: people's words are never dropped; when there is no
// room for another it is refused. What the engine noted makes room.
func TestResolveEvidenceFull(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.unknown("k")
		full := func(actor string) {
			w.edit(c.ID(), func(r *counterfoil.Record) {
				r.Evidence = nil
				for i := range counterfoil.MaxEvidence {
					r.Evidence = append(r.Evidence, counterfoil.Evidence{
						Kind: counterfoil.EvidenceAmbiguous, At: time.Now(), Count: 1, Attempt: 1, Actor: actor, Reason: fmt.Sprint(i),
					})
				}
			})
		}
		full("bob")
		if _, err := w.e.Resolve(t.Context(), c.ID(), word(counterfoil.Resolution{Early: true})); !errors.Is(err, counterfoil.ErrEvidenceFull) {
			t.Errorf("error %v", err)
		}
		w.state(c.ID(), counterfoil.Unknown)
		full("")
		if r := w.resolve(c.ID(), counterfoil.Resolution{Early: true}); len(r.Evidence) != counterfoil.MaxEvidence {
			t.Errorf("%d pieces of evidence", len(r.Evidence))
		}
	})
}

// TestResolveHeld: a held record may be settled; absent, it does not run again
// until the hold is lifted.
func TestResolveHeld(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.unknown("k")
		w.edit(c.ID(), func(r *counterfoil.Record) {
			r.Holds = []counterfoil.Hold{{At: time.Now(), Actor: "bob", Reason: "dispute"}}
		})
		pass(quiet)
		w.resolve(c.ID(), counterfoil.Resolution{})
		w.ask(request("k", 1), unavailable)
		pass(retention)
		w.sweep(0)
		w.state(c.ID(), counterfoil.Failed) // nor is it deleted
	})
}

// TestResolveStoreDown and Reconcile: could not find out is an error of its own.
func TestResolveStoreDown(t *testing.T) {
	for _, call := range []string{"get", "update"} {
		for _, f := range []fault{refuse, hang} {
			inWorld(t, func(t *testing.T, w *world) {
				c := w.unknown("k")
				pass(quiet)
				w.faults.plan(call, f)
				if _, err := w.e.Resolve(t.Context(), c.ID(), word(counterfoil.Resolution{})); !errors.Is(err, counterfoil.ErrUnavailable) {
					t.Errorf("%s: error %v", call, err)
				}
				w.state(c.ID(), counterfoil.Unknown)
			})
		}
	}
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		pass(lease + tick)
		snap, err := w.store.Get(t.Context(), c.ID())
		if err != nil {
			t.Fatal(err)
		}
		w.faults.plan("update", refuse)
		if s, err := w.e.Reconcile(t.Context(), snap.Record, snap.AsOf); !errors.Is(err, counterfoil.ErrUnavailable) || s != counterfoil.InProgress {
			t.Errorf("%s, %v", s, err)
		}
	})
}

// TestResolveUnreadable: a record of a policy that this node does not know is
// not settled by its rules.
func TestResolveUnreadable(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old := w.e
		w.e = w.open(policyOf(2, capture()), counterfoil.Options{})
		c := w.unknown("k")
		pass(quiet)
		if _, err := old.Resolve(t.Context(), c.ID(), word(counterfoil.Resolution{})); !errors.Is(err, counterfoil.ErrUnreadable) {
			t.Errorf("error %v", err)
		}
		lapsed := w.claim("l")
		pass(lease + tick)
		if s, err := old.Reconcile(t.Context(), w.get(lapsed.ID()), time.Now()); !errors.Is(err, counterfoil.ErrUnreadable) || s != counterfoil.InProgress {
			t.Errorf("%s, %v", s, err)
		}
	})
}

// TestReconcileLeavesAlone what is not abandoned, or was moved meanwhile.
func TestReconcileLeavesAlone(t *testing.T) {
	for name, stand := range standingStates() {
		inWorld(t, func(t *testing.T, w *world) {
			id := stand(w)
			before := w.get(id)
			w.reconcile(id)
			if after := w.get(id); name != "lapsed" && !reflect.DeepEqual(before, after) {
				t.Errorf("%s: changed %+v to %+v", name, before, after)
			}
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		pass(lease + tick)
		read := w.get(c.ID())
		if err := c.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, err := w.e.Reconcile(t.Context(), read, time.Now()); err != nil || s != counterfoil.InProgress {
			t.Errorf("%s, %v", s, err)
		}
		w.state(c.ID(), counterfoil.InProgress)
		if len(w.reconciled) != 0 {
			t.Errorf("the trace heard of %v", w.reconciled)
		}
	}, func(o *policy.Operation) { o.Deadline = time.Hour })
}
