package counterfoil_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// completeIn completes c in a transaction of its own, and leaves it open.
func (w *world) completeIn(s *txStore, c *counterfoil.Claim) *tx {
	w.t.Helper()
	dbtx := s.begin()
	if err := c.CompleteIn(w.t.Context(), dbtx, succeeded); err != nil {
		w.t.Fatalf("complete in: %v", err)
	}
	return dbtx
}

// untold fails the test when anything was counted that a person should see.
func (w *world) untold() {
	w.t.Helper()
	if contradicted, unconfirmed := w.counts(); contradicted+unconfirmed != 0 {
		w.t.Errorf("%d contradicted, %d unconfirmed", contradicted, unconfirmed)
	}
}

// TestCompleteInCommitted: the transaction carries the completion, and Complete
// attaches the response to it.
func TestCompleteInCommitted(t *testing.T) {
	reads(t, func(t *testing.T, w *world, s *txStore) {
		c := w.claim("k")
		dbtx := w.completeIn(s, c)
		if w.state(c.ID(), counterfoil.InProgress); w.endings() != 0 {
			t.Error("it is out before the commit")
		}
		w.ask(request("k", 1), inProgress)
		dbtx.commit()
		completed := w.state(c.ID(), counterfoil.Completed)
		if completed.HasResponse || !completed.Horizon.Equal(time.Now().Add(retention)) || completed.Outcome != succeeded {
			t.Errorf("record %+v", completed)
		}
		w.ask(request("k", 1), already)
		pass(time.Second)
		w.complete(c)
		r := w.state(c.ID(), counterfoil.Completed)
		if !r.HasResponse || !r.ReplayUntil.Equal(time.Now().Add(ttl)) || !r.Horizon.Equal(completed.Horizon) || !r.SettledAt.Equal(completed.SettledAt) {
			t.Errorf("record %+v", r)
		}
		if d := w.ask(request("k", 1), replay); string(d.Response) != "response" {
			t.Errorf("replayed %q", d.Response)
		}
		if w.endings() != 1 || w.ended[0].State != counterfoil.Completed {
			t.Errorf("told %+v", w.ended)
		}
		if err := c.CompleteIn(t.Context(), s.begin(), succeeded); !errors.Is(err, counterfoil.ErrSettled) {
			t.Errorf("after the end: %v", err)
		}
		w.untold()
		w.idle()
	})
}

// TestCompleteInRolledBack leaves the claim as if it had never been called.
func TestCompleteInRolledBack(t *testing.T) {
	for call, report := range reports {
		t.Run(call, func(t *testing.T) {
			reads(t, func(t *testing.T, w *world, s *txStore) {
				c := w.claim("k")
				for range 2 {
					w.completeIn(s, c).rollback()
				}
				if err := report(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				want := map[string]counterfoil.State{
					"complete": counterfoil.Completed, "fail": counterfoil.Failed, "unknown": counterfoil.Unknown,
				}[call]
				if want == counterfoil.Absent {
					want = counterfoil.InProgress
				}
				if r := w.state(c.ID(), want); r.Rev != 2 || r.HasResponse != (call == "complete") {
					t.Errorf("record %+v", r)
				}
				w.untold()
				w.idle()
			}, explicit)
		})
	}
}

// TestCompleteInStands: once it is committed, nothing else that is said of the
// attempt changes the record.
func TestCompleteInStands(t *testing.T) {
	other := succeeded
	other.Status = 200
	elsewhere := succeeded
	elsewhere.Resource = "/v1/payments/2"
	for name, c := range map[string]struct {
		report       func(*counterfoil.Claim) (counterfoil.Snapshot, error)
		contradicted int
	}{
		"fail": {func(c *counterfoil.Claim) (counterfoil.Snapshot, error) {
			return c.Fail(context.Background(), "rolled back")
		}, 0},
		"unknown": {func(c *counterfoil.Claim) (counterfoil.Snapshot, error) {
			return c.Unknown(context.Background(), counterfoil.EvidencePanic, 0, "the handler panicked")
		}, 0},
		"another class": {func(c *counterfoil.Claim) (counterfoil.Snapshot, error) {
			return c.Complete(context.Background(), counterfoil.Outcome{Class: counterfoil.Declined, Status: 402}, []byte("declined"))
		}, 1},
		"another status": {func(c *counterfoil.Claim) (counterfoil.Snapshot, error) {
			return c.Complete(context.Background(), other, []byte("other"))
		}, 1},
		"another resource": {func(c *counterfoil.Claim) (counterfoil.Snapshot, error) {
			return c.Complete(context.Background(), elsewhere, []byte("other"))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			reads(t, func(t *testing.T, w *world, s *txStore) {
				claim := w.claim("k")
				w.completeIn(s, claim).commit()
				before := w.state(claim.ID(), counterfoil.Completed)
				snap, err := c.report(claim)
				if !errors.Is(err, counterfoil.ErrSettled) || snap.Record.State != counterfoil.Completed || snap.Record.Outcome != succeeded {
					t.Errorf("%v with %+v", err, snap.Record)
				}
				r := w.state(claim.ID(), counterfoil.Completed)
				if r.Outcome != succeeded || r.HasResponse || has(r, counterfoil.EvidenceContradicted) != (c.contradicted > 0) || c.contradicted == 0 && r.Rev != before.Rev {
					t.Errorf("record %+v", r)
				}
				if n, _ := w.counts(); n != c.contradicted {
					t.Errorf("%d contradicted, want %d", n, c.contradicted)
				}
				w.ask(request("k", 1), already)
				w.idle()
			})
		})
	}
}

// TestCompleteInLateAnswer: an attempt that was called unknown, when it had
// committed, still gets its response kept.
func TestCompleteInLateAnswer(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		c := w.claim("k")
		w.completeIn(s, c).commit()
		if _, err := c.Unknown(t.Context(), counterfoil.EvidenceDeadline, 0, "deadline"); !errors.Is(err, counterfoil.ErrSettled) {
			t.Fatal(err)
		}
		w.complete(c)
		w.ask(request("k", 1), replay)
		w.untold()
	})
}

// TestCompleteInLess: who leaves status or resource out contradicts nobody, and
// what was recorded stays.
func TestCompleteInLess(t *testing.T) {
	bare := counterfoil.Outcome{Class: counterfoil.Succeeded}
	for name, c := range map[string]struct {
		in, told counterfoil.Outcome
		kept     bool
	}{
		"in":   {bare, succeeded, true}, // no status that the response could belie
		"told": {succeeded, bare, false},
		"both": {bare, bare, true},
	} {
		t.Run(name, func(t *testing.T) {
			inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
				claim, dbtx := w.claim("k"), s.begin()
				if err := claim.CompleteIn(t.Context(), dbtx, c.in); err != nil {
					t.Fatal(err)
				}
				dbtx.commit()
				if _, err := claim.Complete(t.Context(), c.told, []byte("response")); err != nil {
					t.Fatal(err)
				}
				if r := w.state(claim.ID(), counterfoil.Completed); r.Outcome != c.in || r.HasResponse != c.kept {
					t.Errorf("record %+v", r)
				}
				w.untold()
			})
		})
	}
}

// TestCompleteInNoResponse: where none is to be kept, nothing more is written.
func TestCompleteInNoResponse(t *testing.T) {
	ends := func(t *testing.T, w *world, s *txStore, response []byte) {
		t.Helper()
		c := w.claim("k")
		w.completeIn(s, c).commit()
		snap, err := c.Complete(t.Context(), succeeded, response)
		if r := w.get(c.ID()); err != nil || snap.Record.Rev != r.Rev || r.Rev != 2 || r.HasResponse {
			t.Errorf("%v, record %+v", err, r)
		}
		w.ask(request("k", 1), already)
	}
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) { ends(t, w, s, nil) })
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, policyOf(1, capture()), counterfoil.Options{Observe: true})
		s := &txStore{Store: w.store}
		w.faults.Store = s
		ends(t, w, s, []byte("response"))
	})
}

// TestCompleteInUnattached: a response that cannot be attached is lost; the
// outcome stands, and the answer may leave.
func TestCompleteInUnattached(t *testing.T) {
	for name, f := range map[string]fault{"refused": refuse, "answer lost": lose, "hangs": hang} {
		t.Run(name, func(t *testing.T) {
			inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
				c := w.claim("k")
				w.completeIn(s, c).commit()
				w.faults.plan("update", f)
				snap, err := c.Complete(t.Context(), succeeded, []byte("response"))
				if err != nil || snap.Record.State != counterfoil.Completed || w.endings() != 1 {
					t.Errorf("%v with %+v", err, snap.Record)
				}
				want := already
				if f == lose {
					want = replay
				}
				w.ask(request("k", 1), want)
				w.untold()
				w.idle()
			})
		})
	}
	t.Run("busy", func(t *testing.T) {
		inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
			c := w.claim("k")
			w.completeIn(s, c).commit()
			s.heldFor(c.ID(), time.Minute)
			if snap, err := c.Complete(t.Context(), succeeded, []byte("response")); err != nil || snap.Record.State != counterfoil.Completed {
				t.Errorf("%v with %+v", err, snap.Record)
			}
		})
	})
	t.Run("written to meanwhile", func(t *testing.T) {
		inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
			c := w.claim("k")
			w.completeIn(s, c).commit()
			w.faults.Store = &meddles{Store: s, once: func() {
				w.edit(c.ID(), func(r *counterfoil.Record) { r.Holds = []counterfoil.Hold{{Actor: "ann"}} })
			}}
			w.complete(c)
			if r := w.get(c.ID()); !r.HasResponse || len(r.Holds) != 1 {
				t.Errorf("record %+v", r)
			}
		})
	})
}

// meddles has something happen before the next update.
type meddles struct {
	counterfoil.Store
	once func()
}

func (m *meddles) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	if f := m.once; f != nil {
		m.once = nil
		f()
	}
	return m.Store.Update(ctx, w)
}

// TestCompleteInUnread: when what stands cannot be read, the answer is
// withheld, and the outcome settled in the background as ever.
func TestCompleteInUnread(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commits %t", commits), func(t *testing.T) {
			inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
				c := w.claim("k")
				dbtx := w.completeIn(s, c)
				if commits {
					dbtx.commit()
				} else {
					dbtx.rollback()
				}
				w.faults.plan("get", refuse)
				if _, err := c.Complete(t.Context(), succeeded, []byte("response")); !errors.Is(err, counterfoil.ErrUnconfirmed) {
					t.Fatalf("error %v", err)
				}
				pass(10 * time.Second)
				w.ask(request("k", 1), replay)
				w.idle()
			})
		})
	}
}

// TestCompleteInOpen: an owner that reports while its transaction is still
// open is not believed before that has ended.
func TestCompleteInOpen(t *testing.T) {
	for call, report := range reports {
		for _, after := range []time.Duration{time.Second, 5 * time.Second} {
			for _, commits := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, ends after %s, commits %t", call, after, commits), func(t *testing.T) {
					reads(t, func(t *testing.T, w *world, s *txStore) {
						c := w.claim("k")
						dbtx := w.completeIn(s, c)
						time.AfterFunc(after, func() {
							if commits {
								dbtx.commit()
							} else {
								dbtx.rollback()
							}
						})
						err := report(t.Context(), c)
						ends := call != "dispatch" && call != "renew"
						pass(10 * time.Second)
						w.idle()
						r := w.get(c.ID())
						switch {
						case after > 2*time.Second && !errors.Is(err, counterfoil.ErrBusy):
							t.Errorf("error %v", err)
						case after > 2*time.Second && errors.Is(err, counterfoil.ErrUnconfirmed) != ends:
							t.Errorf("error %v", err)
						case after < 2*time.Second && commits && !ends && !errors.Is(err, counterfoil.ErrConflict):
							t.Errorf("error %v", err)
						case after < 2*time.Second && commits && ends && call != "complete" && !errors.Is(err, counterfoil.ErrSettled):
							t.Errorf("error %v", err)
						case after < 2*time.Second && (!commits || call == "complete") && err != nil:
							t.Errorf("error %v", err)
						}
						if commits && (r.State != counterfoil.Completed || r.HasResponse != (call == "complete")) {
							t.Errorf("record %+v", r)
						}
						if !commits {
							want := map[string]counterfoil.State{
								"complete": counterfoil.Completed, "fail": counterfoil.Failed, "unknown": counterfoil.Unknown,
							}[call]
							if want == counterfoil.Absent {
								want = counterfoil.InProgress
							}
							if r.State != want {
								t.Errorf("record %+v", r)
							}
						}
						if n, _ := w.counts(); n != 0 {
							t.Errorf("%d contradicted", n)
						}
					}, explicit)
				})
			}
		}
	}
}

// TestCompleteInKeepAlive: a claim whose transaction was rolled back, however
// long that took, still renews; one that was committed stops trying.
func TestCompleteInKeepAlive(t *testing.T) {
	reads(t, func(t *testing.T, w *world, s *txStore) {
		c, done := w.claim("k"), w.claim("done")
		c.KeepAlive()
		done.KeepAlive()
		dbtx, other := w.completeIn(s, c), w.completeIn(s, done)
		pass(21 * time.Second)
		dbtx.rollback()
		other.commit()
		pass(25 * time.Second)
		if r := w.state(c.ID(), counterfoil.InProgress); r.Lapsed(time.Now()) {
			t.Errorf("record %+v", r)
		}
		n := s.busy()
		pass(10 * time.Second)
		if w.get(done.ID()).Rev != 2 || s.busy() != n {
			t.Errorf("record %+v", w.get(done.ID()))
		}
		w.completeIn(s, c).commit() // by the rev as it stands
		w.complete(c)
		w.complete(done)
	})
}

// TestCompleteInStale: what somebody else did to the record meanwhile.
func TestCompleteInStale(t *testing.T) {
	for name, c := range map[string]struct {
		changes      []func(*policy.Operation)
		meanwhile    func(w *world, c *counterfoil.Claim)
		want         error
		state        counterfoil.State
		contradicted int
	}{
		"past the deadline": {nil, func(w *world, _ *counterfoil.Claim) { pass(deadline + quiet) }, nil, counterfoil.Completed, 0},
		"lapsed to unknown": {nil, func(w *world, c *counterfoil.Claim) { pass(lease + tick); w.reconcile(c.ID()) }, nil, counterfoil.Completed, 0},
		"called unknown": {nil, func(w *world, c *counterfoil.Claim) {
			if _, err := c.Unknown(w.t.Context(), counterfoil.EvidenceDeadline, 0, "deadline"); err != nil {
				w.t.Fatal(err)
			}
		}, nil, counterfoil.Completed, 0},
		"renewed, and the answer lost": {nil, func(w *world, c *counterfoil.Claim) {
			w.faults.plan("update", lose)
			if c.Renew(w.t.Context()) == nil {
				w.t.Error("no error")
			}
		}, nil, counterfoil.Completed, 0},
		"a later attempt": {with(explicit), func(w *world, _ *counterfoil.Claim) { pass(lease + tick); w.claim("k") }, counterfoil.ErrFenced, counterfoil.InProgress, 0},
		"closed as unknown": {nil, func(w *world, c *counterfoil.Claim) {
			pass(lease + tick)
			w.reconcile(c.ID())
			w.edit(c.ID(), func(r *counterfoil.Record) {
				r.Gates = []counterfoil.Gate{{Name: "settlement", Until: r.QuietAt.Add(2 * retention)}}
			})
			pass(quiet + retention)
			w.sweep(0)
		}, nil, counterfoil.Tombstone, 0},
		"a person said applied": {nil, func(w *world, c *counterfoil.Claim) {
			pass(lease + tick)
			w.reconcile(c.ID())
			w.resolve(c.ID(), counterfoil.Resolution{Applied: true, Outcome: counterfoil.Outcome{Class: counterfoil.Declined, Status: 402}})
		}, counterfoil.ErrSettled, counterfoil.Completed, 0},
		"a person said absent": {nil, func(w *world, c *counterfoil.Claim) {
			pass(quiet + tick)
			w.reconcile(c.ID())
			w.resolve(c.ID(), counterfoil.Resolution{})
		}, nil, counterfoil.Completed, 1},
		"failed by itself": {nil, func(w *world, c *counterfoil.Claim) {
			if _, err := c.Fail(w.t.Context(), "refused"); err != nil {
				w.t.Fatal(err)
			}
		}, counterfoil.ErrSettled, counterfoil.Failed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			reads(t, func(t *testing.T, w *world, s *txStore) {
				claim := w.claim("k")
				c.meanwhile(w, claim)
				rev := w.get(claim.ID()).Rev
				dbtx := s.begin()
				err := claim.CompleteIn(t.Context(), dbtx, succeeded)
				if c.want == nil && err != nil || !errors.Is(err, c.want) {
					t.Fatalf("error %v, want %v", err, c.want)
				}
				if err == nil {
					dbtx.commit()
					w.complete2(claim)
				} else {
					if len(dbtx.rows) != 0 {
						t.Errorf("wrote %+v", dbtx.rows)
					}
					dbtx.rollback()
				}
				r := w.state(claim.ID(), c.state)
				if c.want != nil && r.Rev != rev {
					t.Errorf("record %+v", r)
				}
				if c.want == nil && r.Outcome != succeeded {
					t.Errorf("record %+v", r)
				}
				if n, _ := w.counts(); n != c.contradicted {
					t.Errorf("%d contradicted, want %d", n, c.contradicted)
				}
				w.idle()
			}, c.changes...)
		})
	}
}

// complete2 ends a claim whose completion is committed.
func (w *world) complete2(c *counterfoil.Claim) {
	w.t.Helper()
	if _, err := c.Complete(w.t.Context(), succeeded, []byte("response")); err != nil {
		w.t.Fatal(err)
	}
}

// TestCompleteInTwice: the same in one transaction is one completion; in two at
// once the second is told that it is busy, and has to roll back.
func TestCompleteInTwice(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		c := w.claim("k")
		dbtx, other := w.completeIn(s, c), s.begin()
		if err := c.CompleteIn(t.Context(), dbtx, succeeded); err != nil {
			t.Errorf("again: %v", err)
		}
		if err := c.CompleteIn(t.Context(), dbtx, counterfoil.Outcome{Class: counterfoil.Declined, Status: 402}); !errors.Is(err, counterfoil.ErrSettled) {
			t.Errorf("another outcome: %v", err)
		}
		began := time.Now()
		if err := c.CompleteIn(t.Context(), other, succeeded); !errors.Is(err, counterfoil.ErrBusy) || time.Since(began) > 2*time.Second+50*time.Millisecond {
			t.Errorf("beside an open one: %v after %s", err, time.Since(began))
		}
		if n := len(dbtx.rows[c.ID()]); n != 1 {
			t.Errorf("%d writes", n)
		}
		dbtx.commit()
		w.complete(c)
		w.untold()
	})
}

// TestCompleteInErrors: an error is the caller's to roll back for; should it
// commit all the same, that is found out.
func TestCompleteInErrors(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		for _, f := range []fault{refuse, lose} {
			c, dbtx := w.claim(fmt.Sprint("k", f)), s.begin()
			bad := &faults{Store: dbtx}
			bad.plan("update", f)
			if err := c.CompleteIn(t.Context(), bad, succeeded); !errors.Is(err, errDown) {
				t.Errorf("error %v", err)
			}
			dbtx.commit()
			if _, err := c.Unknown(t.Context(), counterfoil.EvidenceAmbiguous, 500, ""); errors.Is(err, counterfoil.ErrSettled) != (f == lose) {
				t.Errorf("error %v", err)
			}
			want := map[fault]counterfoil.State{refuse: counterfoil.Unknown, lose: counterfoil.Completed}[f]
			w.state(c.ID(), want)
		}
		// A transaction may go on seeing what it saw: it is asked once more, no oftener.
		moves := &stubborn{Store: s.begin(), err: counterfoil.ErrConflict}
		if err := w.claim("k").CompleteIn(t.Context(), moves, succeeded); !errors.Is(err, counterfoil.ErrUnavailable) || moves.calls != 2 {
			t.Errorf("error %v after %d calls", err, moves.calls)
		}
		w.idle()
	})
}

// TestCompleteInDo: Do ends what its effect completed.
func TestCompleteInDo(t *testing.T) {
	inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
		errAfter := errors.New("rendering failed")
		do := func(key string, commits bool, err error) (*counterfoil.Decision, error) {
			return w.e.Do(t.Context(), request(key, 1), func(ctx context.Context, c *counterfoil.Claim) (counterfoil.Result, error) {
				dbtx := s.begin()
				defer dbtx.rollback()
				if err := c.CompleteIn(ctx, dbtx, succeeded); err != nil {
					return counterfoil.Result{}, err
				}
				if commits {
					dbtx.commit()
				}
				return counterfoil.Result{Outcome: succeeded, Response: []byte("response")}, err
			})
		}
		if d, err := do("committed", true, nil); err != nil || d.Record.State != counterfoil.Completed || !d.Record.HasResponse {
			t.Errorf("%v, %+v", err, d.Record)
		}
		if d, err := do("failed-after", true, errAfter); !errors.Is(err, errAfter) || !errors.Is(err, counterfoil.ErrSettled) || d.Record.State != counterfoil.Completed {
			t.Errorf("%v, %+v", err, d.Record)
		}
		if d, err := do("rolled-back", false, fmt.Errorf("%w: conflict", counterfoil.ErrNoEffect)); !errors.Is(err, counterfoil.ErrNoEffect) || d.Record.State != counterfoil.Failed {
			t.Errorf("%v, %+v", err, d.Record)
		}
		w.ask(request("committed", 1), replay)
		w.ask(request("failed-after", 1), already)
		w.ask(request("rolled-back", 1), proceed)
		w.untold()
	})
}
