package counterfoil_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// crowd begins one request n times at once, spread over the engines, and counts
// the verdicts.
func (w *world) crowd(n int, req func(i int) *counterfoil.Request, engines ...*counterfoil.Engine) (map[counterfoil.Verdict]int, *counterfoil.Claim) {
	w.t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := map[counterfoil.Verdict]int{}
	var winner *counterfoil.Claim
	for i := range n {
		wg.Go(func() {
			d, err := engines[i%len(engines)].Begin(w.t.Context(), req(i))
			if err != nil {
				w.t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			got[d.Verdict]++
			if d.Claim != nil {
				winner = d.Claim
			}
		})
	}
	wg.Wait()
	return got, winner
}

// TestP1OneWinner: of many that come at once, at three processes, one proceeds;
// on an absent key, on a failed one, and on one whose claim lapsed in time.
func TestP1OneWinner(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.e.Policy()
		engines := []*counterfoil.Engine{w.e, w.open(p, counterfoil.Options{}), w.open(p, counterfoil.Options{})}
		same := func(int) *counterfoil.Request { return request("k", 1) }
		for attempt := uint32(1); attempt <= 3; attempt++ {
			got, c := w.crowd(50, same, engines...)
			if got[proceed] != 1 || got[inProgress] != 49 {
				t.Fatalf("attempt %d: %v, want one to proceed and 49 in progress", attempt, got)
			}
			if c.Attempt() != attempt {
				t.Fatalf("attempt %d, want %d", c.Attempt(), attempt)
			}
			if attempt == 1 {
				if _, err := c.Fail(t.Context(), "refused"); err != nil {
					t.Fatal(err)
				}
				continue
			}
			pass(lease + tick)
		}
	}, explicit)
}

// TestP1RedispatchProvesNothingOfTheFirst: the second sending came to nothing,
// and says so; the first may still have had its effect. So the record is
// unknown again, and runs no more once the downstream's window is over.
func TestP1RedispatchProvesNothingOfTheFirst(t *testing.T) {
	ends := map[string]func(w *world, c *counterfoil.Claim){
		"the second owner fails": func(w *world, c *counterfoil.Claim) {
			if _, err := c.Fail(w.t.Context(), "429"); err != nil {
				w.t.Fatal(err)
			}
		},
		"the second owner's effect states no effect": nil,
		"the second claim is not confirmed":          nil,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				first := w.unknown("k")
				pass(time.Minute)
				switch name {
				case "the second owner's effect states no effect":
					_, err := w.e.Do(t.Context(), request("k", 1), func(context.Context, *counterfoil.Claim) (counterfoil.Result, error) {
						return counterfoil.Result{}, counterfoil.ErrNoEffect
					})
					if !errors.Is(err, counterfoil.ErrNoEffect) {
						t.Fatal(err)
					}
				case "the second claim is not confirmed":
					w.faults.plan("update", lose)
					if _, err := w.e.Begin(t.Context(), request("k", 1)); !errors.Is(err, counterfoil.ErrUnavailable) {
						t.Fatalf("error %v", err)
					}
					pass(quiet)
				default:
					end(w, w.ask(request("k", 1), proceed).Claim)
				}
				pass(24 * time.Hour)
				if d, err := w.e.Begin(t.Context(), request("k", 1)); err != nil || d.Verdict != unknown {
					t.Errorf("verdict %v, error %v after the window; want unknown: nobody knows what attempt %d did; record %+v",
						d.Verdict, err, first.Attempt(), w.get(first.ID()))
				}
			}, redispatchWithin(23*time.Hour))
		})
	}
}

// TestP4NothingRunsBecauseTimePassed: whatever else happens, an attempt that
// crossed and was not heard of again is the last one.
func TestP4NothingRunsBecauseTimePassed(t *testing.T) {
	for _, o := range []struct {
		name  string
		rules func(*policy.Operation)
	}{{"close", func(*policy.Operation) {}}, {"hold", holdUnknown}, {"redispatch", redispatchWithin(deadline)}} {
		for _, reconciles := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reconciler %t", o.name, reconciles), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					c := w.claim("k")
					pass(lease + tick)
					for range 2000 { // beyond retention under every rule
						if reconciles {
							w.reconcile(c.ID())
						}
						d, err := w.e.Begin(t.Context(), request("k", 1))
						if err != nil {
							t.Fatal(err)
						}
						if d.Verdict != unknown && d.Verdict != expired {
							t.Fatalf("after %s: %s", time.Since(c.Record().CreatedAt), d.Verdict)
						}
						pass(2 * time.Hour)
					}
				}, o.rules)
			})
		}
	}
}

// standingStates makes a record in every state that a key can stand in.
func standingStates() map[string]func(w *world) counterfoil.ID {
	return map[string]func(w *world) counterfoil.ID{
		"in progress": func(w *world) counterfoil.ID { return w.claim("k").ID() },
		"lapsed": func(w *world) counterfoil.ID {
			defer pass(lease + tick)
			return w.claim("k").ID()
		},
		"unknown": func(w *world) counterfoil.ID { return w.unknown("k").ID() },
		"failed": func(w *world) counterfoil.ID {
			c := w.claim("k")
			if _, err := c.Fail(w.t.Context(), "refused"); err != nil {
				w.t.Fatal(err)
			}
			return c.ID()
		},
		"completed": func(w *world) counterfoil.ID { return w.completed("k") },
		"tombstone": func(w *world) counterfoil.ID {
			defer func() { pass(ttl); w.sweep(0) }()
			return w.completed("k")
		},
		"past its time, unswept": func(w *world) counterfoil.ID {
			defer pass(retention)
			return w.completed("k")
		},
		"announced": func(w *world) counterfoil.ID {
			defer func() { pass(retention); w.sweep(time.Hour) }()
			return w.completed("k")
		},
	}
}

// TestP6Mismatch: another request under the same key is told 422 in every
// state, gets no response, and changes nothing.
func TestP6Mismatch(t *testing.T) {
	for name, stand := range standingStates() {
		for _, rules := range []func(*policy.Operation){explicit, countLate, redispatchWithin(23 * time.Hour)} {
			t.Run(name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					id := stand(w)
					before := w.get(id)
					for _, trusted := range []bool{true, false} {
						if !trusted {
							if err := w.e.Distrust(t.Context(), "test"); err != nil {
								t.Fatal(err)
							}
						}
						d := w.ask(request("k", 2), mismatch)
						if d.Response != nil || d.Late != counterfoil.WitnessNone {
							t.Errorf("decision %+v", d)
						}
					}
					if after := w.get(id); !reflect.DeepEqual(before, after) {
						t.Errorf("the record changed from %+v to %+v", before, after)
					}
				}, rules)
			})
		}
	}
}

// TestP7Scopes: one key of two principals is two records; no principal is an
// error, unless the operation has none.
func TestP7Scopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ping := capture(func(o *policy.Operation) {
			o.Name, o.Match, o.Scope.Principal = "ping", nil, policy.Principal{Kind: policy.PrincipalAnonymous}
		})
		w := newWorld(t, policyOf(1, capture(), ping), counterfoil.Options{})
		a := w.completed("k")
		other := request("k", 1)
		other.Principal = "acct-2"
		if d := w.ask(other, proceed); d.ID == a || d.Response != nil {
			t.Error("two principals share a record")
		}
		none := request("k", 1)
		none.Principal = ""
		if _, err := w.e.Begin(t.Context(), none); !errors.Is(err, counterfoil.ErrScopeMissing) {
			t.Errorf("no principal: %v", err)
		}
		none.Operation = "ping"
		w.ask(none, proceed)
		none.Operation = "nonesuch"
		if _, err := w.e.Begin(t.Context(), none); !errors.Is(err, counterfoil.ErrOperationUnknown) {
			t.Errorf("no such operation: %v", err)
		}
		if len(w.refused) != 2 {
			t.Errorf("the trace heard of %v", w.refused)
		}
		// A crafted principal cannot reach into another's scope.
		x, y := request("b:c", 1), request("c", 1)
		x.Principal, y.Principal = "a", "a:b"
		if w.ask(x, proceed).ID == w.ask(y, proceed).ID {
			t.Error("(a, b:c) and (a:b, c) are the same record")
		}
	})
}

// TestKeyRules: a key that breaks a rule reaches no store.
func TestKeyRules(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, key := range []string{"", "a b", "ü", "a\x7f", string(make([]byte, 256))} {
			if _, err := w.e.Begin(t.Context(), request(key, 1)); !errors.Is(err, counterfoil.ErrKeyInvalid) {
				t.Errorf("key %q: %v", key, err)
			}
		}
		if n := w.faults.count("create"); n != 0 {
			t.Errorf("%d store calls", n)
		}
		w.ask(request("k", 1), proceed)
		w.ask(request("K", 1), proceed) // byte by byte
	})
	inWorld(t, func(t *testing.T, w *world) {
		if _, err := w.e.Begin(t.Context(), request("k-1", 1)); !errors.Is(err, counterfoil.ErrKeyInvalid) {
			t.Errorf("error %v", err)
		}
		w.ask(request(uuidv7(time.Now(), 1), 1), proceed)
	}, func(o *policy.Operation) { o.Key.Format = policy.KeyUUIDv7 })
}

// TestP8UnsureClaim: when the store is down or does not answer, nothing is
// attempted; a claim that stands after all is disowned, so that the key is not
// spent, and the retry is the first to run.
func TestP8UnsureClaim(t *testing.T) {
	for name, f := range map[string]fault{"refused": refuse, "answer lost": lose, "done late": late, "hangs": hang} {
		for _, second := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, second attempt %t", name, second), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					want := counterfoil.OpensFirst
					if second {
						c := w.claim("k")
						if _, err := c.Fail(t.Context(), "refused"); err != nil {
							t.Fatal(err)
						}
						want = counterfoil.OpensNext
						w.faults.plan("update", f)
					} else {
						w.faults.plan("create", f)
					}
					began := time.Now()
					_, err := w.e.Begin(t.Context(), request("k", 1))
					if !errors.Is(err, counterfoil.ErrUnavailable) {
						t.Fatalf("error %v, want unavailable", err)
					}
					if d := time.Since(began); d > 2*time.Second {
						t.Errorf("took %s; a store call is bounded by 2 s", d)
					}
					pass(quiet)
					d := w.ask(request("k", 1), proceed)
					if (f == lose || f == late) && !second {
						want = counterfoil.OpensNext
						if !has(d.Record, counterfoil.EvidenceFailed) {
							t.Errorf("record %+v: no word of the claim taken back", d.Record)
						}
					}
					if d.Opens != want {
						t.Errorf("opens %d, want %d", d.Opens, want)
					}
					if n := w.e.Settling(); n != 0 {
						t.Errorf("%d still settling", n)
					}
				})
			})
		}
	}
}

// TestP8StoreDown: every call that a request needs fails in turn; the answer is
// an error, never a guess.
func TestP8StoreDown(t *testing.T) {
	for _, call := range []string{"create", "response"} {
		for _, f := range []fault{refuse, hang} {
			inWorld(t, func(t *testing.T, w *world) {
				w.completed("k")
				w.faults.plan(call, f)
				if d, err := w.e.Begin(t.Context(), request("k", 1)); !errors.Is(err, counterfoil.ErrUnavailable) {
					t.Errorf("%s: %+v, error %v", call, d, err)
				}
				w.ask(request("k", 1), replay)
			})
		}
	}
	for _, call := range []string{"get", "meta"} {
		inWorld(t, func(t *testing.T, w *world) {
			if err := w.e.Distrust(t.Context(), "test"); err != nil {
				t.Fatal(err)
			}
			w.faults.plan(call, refuse)
			if d, err := w.e.Begin(t.Context(), request("k", 1)); !errors.Is(err, counterfoil.ErrUnavailable) {
				t.Errorf("%s: %+v, error %v", call, d, err)
			}
		})
	}
}

// TestP10PolicyShortened: shorter lifetimes are for new records; what exists,
// and what is under way, keeps what it was promised.
func TestP10PolicyShortened(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.completed("done")
		underWay := w.claim("under-way")
		short := capture(func(o *policy.Operation) {
			o.Protect, o.Inputs = 0, policy.Inputs{}
			o.Inputs.ClientRetryBudget.Value = time.Minute
		})
		if err := w.e.SetPolicy(t.Context(), policyOf(2, short)); err != nil {
			t.Fatal(err)
		}
		w.complete(underWay)
		w.completed("new")
		pass(time.Minute)
		w.sweep(0)
		w.ask(request("new", 1), proceed) // undated, and its short time is over
		for _, key := range []string{"done", "under-way"} {
			w.ask(request(key, 1), replay)
		}
		pass(retention - time.Minute - tick)
		w.sweep(0)
		for _, key := range []string{"done", "under-way"} {
			w.ask(request(key, 1), already)
		}
	})
}

// TestP12TerminalOutcome: once the outcome is known, nothing anybody says
// changes it.
func TestP12TerminalOutcome(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		w.complete(c)
		before := w.get(c.ID())
		if _, err := c.Complete(t.Context(), counterfoil.Outcome{Class: counterfoil.Declined, Status: 402}, nil); !errors.Is(err, counterfoil.ErrSettled) {
			t.Errorf("a second Complete: %v", err)
		}
		if _, err := c.Fail(t.Context(), "no"); !errors.Is(err, counterfoil.ErrSettled) {
			t.Errorf("Fail after Complete: %v", err)
		}
		if _, err := c.Unknown(t.Context(), counterfoil.EvidencePanic, 0, ""); !errors.Is(err, counterfoil.ErrSettled) {
			t.Errorf("Unknown after Complete: %v", err)
		}
		for _, res := range []counterfoil.Resolution{
			{}, {Early: true}, {Applied: true, Outcome: succeeded}, {Proof: counterfoil.ProofCancelled},
		} {
			res.Actor, res.Reason = "ann", "why not"
			if _, err := w.e.Resolve(t.Context(), c.ID(), res); !errors.Is(err, counterfoil.ErrSettled) {
				t.Errorf("%+v: %v", res, err)
			}
		}
		pass(retention * 2)
		if s := w.reconcile(c.ID()); s != counterfoil.Completed {
			t.Errorf("reconciled to %s", s)
		}
		if after := w.get(c.ID()); !reflect.DeepEqual(before, after) {
			t.Errorf("the record changed from %+v to %+v", before, after)
		}
	})
}

// TestP13Quota: a principal with too many unresolved records gets no new claim;
// what stands is answered, and nobody else is kept waiting.
func TestP13Quota(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.completed("done")
		failed := w.claim("failed")
		if _, err := failed.Fail(t.Context(), "refused"); err != nil {
			t.Fatal(err)
		}
		w.unknown("a") // held unknowns count
		w.claim("b")
		last := w.claim("c")
		for _, key := range []string{"new", "failed"} {
			if _, err := w.e.Begin(t.Context(), request(key, 1)); !errors.Is(err, counterfoil.ErrOverQuota) {
				t.Errorf("key %s: %v", key, err)
			}
		}
		w.ask(request("done", 1), replay)
		w.ask(request("a", 1), unknown)
		w.ask(request("b", 1), inProgress)
		other := request("new", 1)
		other.Principal = "acct-2"
		w.ask(other, proceed)
		pass(retention / 2)
		w.sweep(0)
		if _, err := w.e.Begin(t.Context(), request("new", 1)); !errors.Is(err, counterfoil.ErrOverQuota) {
			t.Errorf("time made room: %v", err)
		}
		w.complete(last)
		w.ask(request("new", 1), proceed)
	}, func(o *policy.Operation) { o.MaxUnresolved = 3 })
}

// TestWaiters: a duplicate waits for the answer, at this process and at
// another, and is told as soon as it is there.
func TestWaiters(t *testing.T) {
	ends := map[string]struct {
		end  func(*world, *counterfoil.Claim) error
		want counterfoil.Verdict
		last time.Duration // when the waiter has its answer at the latest
	}{
		"completed": {func(w *world, c *counterfoil.Claim) error { w.complete(c); return nil }, replay, time.Second},
		"failed":    {func(w *world, c *counterfoil.Claim) error { _, err := c.Fail(w.t.Context(), "no"); return err }, proceed, time.Second},
		"unknown": {func(w *world, c *counterfoil.Claim) error {
			_, err := c.Unknown(w.t.Context(), counterfoil.EvidenceAmbiguous, 500, "")
			return err
		}, unknown, time.Second},
		"nothing": {func(*world, *counterfoil.Claim) error { return nil }, inProgress, 2 * time.Second},
	}
	for name, end := range ends {
		for _, elsewhere := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, elsewhere %t", name, elsewhere), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					c := w.claim("k")
					asked, slack := w.e, time.Duration(0)
					if elsewhere {
						asked, slack = w.open(w.e.Policy(), counterfoil.Options{}), 100*time.Millisecond
					}
					began := time.Now()
					answers := make(chan *counterfoil.Decision, 1)
					go func() {
						d, err := asked.Begin(t.Context(), request("k", 1))
						if err != nil {
							t.Error(err)
						}
						answers <- d
					}()
					pass(time.Second)
					if err := end.end(w, c); err != nil {
						t.Fatal(err)
					}
					d := <-answers
					if took := time.Since(began); d.Verdict != end.want || took > end.last+slack {
						t.Errorf("%s after %s, want %s after %s", d.Verdict, took, end.want, end.last)
					}
					if d.Verdict == inProgress && (d.RetryAfter < time.Second || d.RetryAfter > 5*time.Second) {
						t.Errorf("retry after %s", d.RetryAfter)
					}
					if d.Claim != nil && time.Until(d.Claim.Deadline()) < deadline-slack {
						t.Errorf("its claim has %s left of %s: waiting is not working", time.Until(d.Claim.Deadline()), deadline)
					}
				}, func(o *policy.Operation) { o.Wait = 2 * time.Second })
			})
		}
	}
}

// TestWaiterGoesAway: neither a caller that leaves nor one that will not wait
// waits.
func TestWaiterGoesAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.claim("k")
		began := time.Now()
		ctx, leave := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer leave()
		if d, err := w.e.Begin(ctx, request("k", 1)); err != nil || d.Verdict != inProgress || time.Since(began) != 300*time.Millisecond {
			t.Errorf("%v, %v after %s", d, err, time.Since(began))
		}
		req := request("k", 1)
		req.NoWait = true
		began = time.Now()
		if w.ask(req, inProgress); time.Since(began) != 0 {
			t.Errorf("waited %s", time.Since(began))
		}
	}, func(o *policy.Operation) { o.Wait = 10 * time.Second })
}

// TestObserved: records made under mode: observe are marked, and not replayed.
func TestObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, policyOf(1, capture()), counterfoil.Options{Observe: true})
		id := w.completed("k")
		if r := w.get(id); !r.Observed || r.HasResponse {
			t.Errorf("record %+v", r)
		}
		w.ask(request("k", 1), already)
		if !w.decided[0].Observed {
			t.Error("the trace does not tell")
		}
	})
}

// TestDecidedAges: every repeat has its age, those that run again among them;
// a first request has none.
func TestDecidedAges(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		pass(time.Second)
		w.ask(request("k", 1), inProgress)
		if _, err := c.Fail(t.Context(), "refused"); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		w.complete(w.ask(request("k", 1), proceed).Claim) // a retry that runs again
		pass(time.Second)
		w.ask(request("k", 1), replay)
		pass(retention)
		w.ask(request("k", 1), proceed) // one that came too late, and is counted
		want := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, retention + 3*time.Second}
		for i, d := range w.decided {
			if d.Age != want[i] || d.Horizon != retention {
				t.Errorf("request %d (%s): age %s, want %s; horizon %s", i+1, d.Ruling.Verdict, d.Age, want[i], d.Horizon)
			}
		}
	}, countLate)
}

// TestCloseWaits for what is being settled, and no longer than it is told to.
func TestCloseWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		w.faults.plan("update", refuse)
		if _, err := c.Complete(t.Context(), succeeded, nil); !errors.Is(err, counterfoil.ErrUnconfirmed) {
			t.Fatalf("error %v", err)
		}
		if err := w.e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.state(c.ID(), counterfoil.Completed)
	})
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		w.faults.all(refuse, "update")
		if _, err := c.Complete(t.Context(), succeeded, nil); !errors.Is(err, counterfoil.ErrUnconfirmed) {
			t.Fatalf("error %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := w.e.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed with %v while settling", err)
		}
		pass(lease)
		w.ask(request("k", 1), unknown)
	})
}

// TestCloseBesideOutcomes: closing while outcomes come in is no race; each is
// settled, or left to lapse.
func TestCloseBesideOutcomes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.faults.plan("update", refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse)
		var wg sync.WaitGroup
		for i := range 20 {
			c := w.claim(fmt.Sprint("k", i))
			wg.Go(func() {
				if _, err := c.Complete(t.Context(), succeeded, nil); err != nil && !errors.Is(err, counterfoil.ErrUnconfirmed) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if err := w.e.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		pass(lease + tick)
		for i := range 20 {
			d, err := w.e.Begin(t.Context(), request(fmt.Sprint("k", i), 1))
			if err != nil || d.Verdict != already && d.Verdict != unknown {
				t.Errorf("key %d: %+v, %v", i, d, err)
			}
		}
	})
}

// TestManyKeysOneEngine: what one key's claim does never touches another's.
func TestManyKeysOneEngine(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var wg sync.WaitGroup
		var ran atomic.Int32
		for i := range 200 {
			for range 3 {
				wg.Go(func() {
					_, err := w.e.Do(t.Context(), request(fmt.Sprint("k", i), 1), func(context.Context, *counterfoil.Claim) (counterfoil.Result, error) {
						ran.Add(1)
						time.Sleep(time.Duration(i) * time.Millisecond)
						return counterfoil.Result{Outcome: succeeded, Response: fmt.Append(nil, i)}, nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		if n := ran.Load(); n != 200 {
			t.Errorf("%d effects for 200 keys", n)
		}
		for i := range 200 {
			if d := w.ask(request(fmt.Sprint("k", i), 1), replay); string(d.Response) != fmt.Sprint(i) {
				t.Errorf("key %d got %q", i, d.Response)
			}
		}
	}, func(o *policy.Operation) { o.Wait = time.Second })
}
