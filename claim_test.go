package counterfoil_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// reports are everything an owner can say of its attempt.
var reports = map[string]func(context.Context, *counterfoil.Claim) error{
	"dispatch": func(ctx context.Context, c *counterfoil.Claim) error { return c.Dispatch(ctx) },
	"renew":    func(ctx context.Context, c *counterfoil.Claim) error { return c.Renew(ctx) },
	"complete": func(ctx context.Context, c *counterfoil.Claim) error {
		_, err := c.Complete(ctx, succeeded, []byte("response"))
		return err
	},
	"fail": func(ctx context.Context, c *counterfoil.Claim) error { _, err := c.Fail(ctx, "refused"); return err },
	"unknown": func(ctx context.Context, c *counterfoil.Claim) error {
		_, err := c.Unknown(ctx, counterfoil.EvidenceAmbiguous, 502, "bad gateway")
		return err
	},
}

// TestP5LateOwner: once another attempt has opened, the former owner changes
// nothing; that it says to have completed is counted.
func TestP5LateOwner(t *testing.T) {
	losses := map[string]struct {
		rules func(*policy.Operation)
		lose  func(w *world)
	}{
		"the next attempt opened":     {explicit, func(w *world) { w.ask(request("k", 1), proceed) }},
		"the next attempt completed":  {explicit, func(w *world) { w.complete(w.ask(request("k", 1), proceed).Claim) }},
		"it was sent again":           {redispatchWithin(23 * time.Hour), func(w *world) { w.ask(request("k", 1), proceed) }},
		"a new record took the place": {countLate, func(w *world) { w.lapse("k", quiet+retention); w.ask(request("k", 1), proceed) }},
		"the record was deleted":      {explicit, func(w *world) { w.complete(w.ask(request("k", 1), proceed).Claim); pass(retention); w.sweep(0) }},
		"the next became a tombstone": {explicit, func(w *world) { w.complete(w.ask(request("k", 1), proceed).Claim); pass(ttl); w.sweep(0) }},
	}
	for name, l := range losses {
		for call, report := range reports {
			t.Run(name+", "+call, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					c := w.claim("k")
					pass(lease + tick)
					l.lose(w)
					before, _ := w.store.Get(t.Context(), c.ID())
					err := report(t.Context(), c)
					late := errors.Is(err, context.DeadlineExceeded) // its own deadline spoke first
					missing := errors.Is(err, counterfoil.ErrNotFound) && (call == "dispatch" || call == "renew")
					implicit := err == nil && call == "dispatch" && c.Operation().Dispatch != policy.DispatchExplicit
					if !errors.Is(err, counterfoil.ErrFenced) && !late && !missing && !implicit {
						t.Errorf("error %v, want fenced", err)
					}
					after, _ := w.store.Get(t.Context(), c.ID())
					if !reflect.DeepEqual(before.Record, after.Record) {
						t.Errorf("changed %+v to %+v", before.Record, after.Record)
					}
					want := 0
					if call == "complete" {
						want = 1
					}
					if n, _ := w.counts(); n != want {
						t.Errorf("counted %d as contradicted, want %d", n, want)
					}
				}, l.rules)
			})
		}
	}
}

// lapse has the record of key become unknown, and d go by.
func (w *world) lapse(key string, d time.Duration) {
	w.t.Helper()
	id, err := w.e.RecordID("capture", "acct-1", counterfoil.Key(key))
	if err != nil {
		w.t.Fatal(err)
	}
	w.reconcile(id)
	pass(d)
}

// TestWordAfterUnknown: an owner that could not tell may still learn what
// happened, and say so once; nothing has run in between.
func TestWordAfterUnknown(t *testing.T) {
	for call, want := range map[string]counterfoil.State{"complete": counterfoil.Completed, "fail": counterfoil.Failed} {
		for name, plan := range map[string][]fault{"confirmed": nil, "the first unconfirmed": {refuse, refuse}, "the second unconfirmed": {works, refuse}} {
			t.Run(call+", "+name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					c := w.claim("k")
					w.faults.plan("update", plan...)
					for _, word := range []string{"unknown", call} {
						if err := reports[word](t.Context(), c); err != nil && !errors.Is(err, counterfoil.ErrUnconfirmed) {
							t.Fatalf("%s: %v", word, err)
						}
					}
					pass(10 * time.Second)
					w.state(c.ID(), want)
					for _, word := range []string{"unknown", "complete", "fail"} {
						if err := reports[word](t.Context(), c); !errors.Is(err, counterfoil.ErrSettled) {
							t.Errorf("then %s: %v", word, err)
						}
					}
					w.state(c.ID(), want)
					if n, _ := w.counts(); n != 0 || w.e.Settling() != 0 {
						t.Errorf("%d contradicted, %d settling", n, w.e.Settling())
					}
				})
			})
		}
	}
}

// TestP8UnsureCompletion: an outcome that is not confirmed is withheld, and
// settled in the background; waiting duplicates wake up when it is.
func TestP8UnsureCompletion(t *testing.T) {
	states := map[string]counterfoil.State{"complete": counterfoil.Completed, "fail": counterfoil.Failed, "unknown": counterfoil.Unknown}
	for call, state := range states {
		for name, f := range map[string]fault{"refused": refuse, "answer lost": lose, "done late": late, "hangs": hang} {
			t.Run(call+", "+name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					c := w.claim("k")
					waiter := make(chan *counterfoil.Decision, 1)
					go func() {
						d, err := w.e.Begin(t.Context(), request("k", 1))
						if err != nil {
							t.Error(err)
						}
						waiter <- d
					}()
					pass(time.Second)
					w.faults.plan("update", f, f, f)
					err := reports[call](t.Context(), c)
					if !errors.Is(err, counterfoil.ErrUnconfirmed) {
						t.Fatalf("error %v, want unconfirmed", err)
					}
					if _, n := w.counts(); n != 1 {
						t.Errorf("%d unconfirmed, want 1", n)
					}
					pass(10 * time.Second)
					if r := w.get(c.ID()); r.State != state && (state != counterfoil.Failed || r.Attempt != 2) {
						t.Errorf("record %+v, want %s", r, state) // failed: the waiter has gone on
					}
					if n := w.e.Settling(); n != 0 {
						t.Errorf("%d still settling", n)
					}
					want := map[counterfoil.State]counterfoil.Verdict{counterfoil.Completed: replay, counterfoil.Failed: proceed, counterfoil.Unknown: unknown}[state]
					select {
					case d := <-waiter:
						if d.Verdict != want {
							t.Errorf("the waiter was told %s, want %s", d.Verdict, want)
						}
					default:
						t.Error("the waiter still waits")
					}
					if n, _ := w.counts(); n != 0 {
						t.Errorf("counted %d as contradicted: it was the owner's own write", n)
					}
					if len(w.ended) != 1 || w.ended[0].State != state {
						t.Errorf("the trace heard of the end: %+v", w.ended)
					}
				}, func(o *policy.Operation) { o.Wait = 20 * time.Second })
			})
		}
	}
}

// TestP8CompletionWhileStoreIsDown: the outcome is tried until t_quiet, through
// a lapse and through the reconciler at another node; after that the record
// stays unknown, and is never taken for failed.
func TestP8CompletionWhileStoreIsDown(t *testing.T) {
	for _, down := range []time.Duration{lease + 10*time.Second, quiet + time.Minute} {
		inWorld(t, func(t *testing.T, w *world) {
			c := w.claim("k")
			w.faults.all(refuse, "update", "create", "get")
			if _, err := c.Complete(t.Context(), succeeded, []byte("response")); !errors.Is(err, counterfoil.ErrUnconfirmed) {
				t.Fatalf("error %v", err)
			}
			pass(lease + tick)
			elsewhere, err := counterfoil.Open(t.Context(), w.store, w.e.Policy(), counterfoil.Options{})
			if err != nil {
				t.Fatal(err)
			}
			snap, err := w.store.Get(t.Context(), c.ID())
			if err != nil {
				t.Fatal(err)
			}
			if s, err := elsewhere.Reconcile(t.Context(), snap.Record, snap.AsOf); err != nil || s != counterfoil.Unknown {
				t.Fatalf("%s, %v", s, err)
			}
			pass(down - lease)
			w.faults.all(works, "update", "create", "get")
			pass(10 * time.Second)
			if down < quiet {
				w.state(c.ID(), counterfoil.Completed)
				w.ask(request("k", 1), replay)
			} else {
				w.state(c.ID(), counterfoil.Unknown)
				w.ask(request("k", 1), unknown)
			}
			if n := w.e.Settling(); n != 0 {
				t.Errorf("%d still settling", n)
			}
		})
	}
}

// TestP8SettledMeanwhile: while an outcome waits for the store, a person says
// another: theirs stands, and the owner's is counted.
func TestP8SettledMeanwhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		w.faults.all(refuse, "update")
		if _, err := c.Complete(t.Context(), succeeded, nil); !errors.Is(err, counterfoil.ErrUnconfirmed) {
			t.Fatalf("error %v", err)
		}
		w.edit(c.ID(), func(r *counterfoil.Record) {
			r.State, r.Outcome = counterfoil.Completed, counterfoil.Outcome{Class: counterfoil.Declined, Status: 402}
			r.Horizon = time.Now().Add(retention)
		})
		w.faults.all(works, "update")
		pass(10 * time.Second)
		if r := w.get(c.ID()); r.Outcome.Class != counterfoil.Declined || !has(r, counterfoil.EvidenceContradicted) {
			t.Errorf("record %+v", r)
		}
		if n, _ := w.counts(); n != 1 || w.e.Settling() != 0 {
			t.Errorf("%d contradicted, %d settling", n, w.e.Settling())
		}
	})
}

// TestKeepAlive: a claim is renewed while its owner works, through lost answers
// and short outages, up to its deadline and not beyond, and not once it ended.
func TestKeepAlive(t *testing.T) {
	for name, plan := range map[string][]fault{
		"nothing happens": nil, "one call fails": {refuse}, "one answer is lost": {lose}, "one hangs": {hang}, "fails twice": {works, refuse, refuse},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c := w.claim("k")
				c.KeepAlive()
				c.KeepAlive() // once is enough
				w.faults.plan("update", plan...)
				pass(deadline - time.Second)
				w.ask(request("k", 1), inProgress)
				pass(lease + time.Second + tick) // from its last renewal
				w.ask(request("k", 1), unknown)
			})
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		c.KeepAlive()
		pass(25 * time.Second)
		w.complete(c)
		n := w.faults.count("update")
		if n != 3 {
			t.Errorf("%d writes in 25 s of a lease of 30 s and a completion, want 3", n)
		}
		pass(time.Hour)
		if m := w.faults.count("update"); m != n {
			t.Errorf("%d renewals after the end", m-n)
		}
		c.KeepAlive()
		pass(time.Hour)
		if m := w.faults.count("update"); m != n {
			t.Errorf("%d renewals of an ended claim", m-n)
		}
	})
}

// TestDispatchUnconfirmed: on any error nothing may be sent; the owner states
// so, and the key is not spent.
func TestDispatchUnconfirmed(t *testing.T) {
	for name, f := range map[string]fault{"refused": refuse, "answer lost": lose, "hangs": hang} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c := w.claim("k")
				w.faults.plan("update", f)
				if err := c.Dispatch(t.Context()); err == nil {
					t.Fatal("no error")
				}
				if _, err := c.Fail(t.Context(), "not sent"); err != nil {
					t.Fatal(err)
				}
				w.ask(request("k", 1), proceed)
			}, explicit)
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		pass(deadline + tick)
		if err := c.Dispatch(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dispatched after the deadline: %v", err)
		}
		w.complete(c)
		for _, call := range []string{"dispatch", "renew"} {
			if err := reports[call](t.Context(), c); !errors.Is(err, counterfoil.ErrSettled) {
				t.Errorf("%s after the end: %v", call, err)
			}
		}
	}, explicit)
}

// TestGatesFromDispatch: dated gates count from the last dispatch; a handler
// that has an outcome and marked no dispatch counts as dispatched from the
// claim (design.md §3), so that its gates are open too.
func TestGatesFromDispatch(t *testing.T) {
	const open = 2 * retention
	gate := func(o *policy.Operation) { o.Gates = []policy.Gate{{Name: "provider_reference", For: open}} }
	until := func(r counterfoil.Record) time.Time {
		if len(r.Gates) != 1 || r.Gates[0].Name != "provider_reference" {
			return time.Time{}
		}
		return r.Gates[0].Until
	}
	for _, rules := range [][]func(*policy.Operation){{gate}, {gate, explicit}} {
		for _, marks := range []bool{false, true} {
			for _, end := range []string{"complete", "unknown"} {
				t.Run(fmt.Sprintf("explicit %t, marks %t, %s", len(rules) == 2, marks, end), func(t *testing.T) {
					inWorld(t, func(t *testing.T, w *world) {
						c := w.claim("k")
						at := time.Now()
						pass(10 * time.Second)
						if marks {
							if err := c.Dispatch(t.Context()); err != nil {
								t.Fatal(err)
							}
							if len(rules) == 2 {
								at = time.Now()
							}
						}
						if err := reports[end](t.Context(), c); err != nil {
							t.Fatal(err)
						}
						if r := w.get(c.ID()); until(r).Before(at.Add(open)) || r.LastDispatch.Before(at) {
							t.Errorf("gates %+v, last dispatch %s; want open until %s", r.Gates, r.LastDispatch, at.Add(open))
						}
					}, rules...)
				})
			}
		}
	}
}

// TestClaimContext ends at the deadline and not with the caller (C31), and
// carries the caller's values.
func TestClaimContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		type key struct{}
		parent, leave := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		began := time.Now()
		d, err := w.e.Begin(parent, request("k", 1))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := d.Claim.Context(parent)
		defer cancel()
		leave()
		if ctx.Err() != nil || ctx.Value(key{}) != "v" {
			t.Errorf("error %v, value %v", ctx.Err(), ctx.Value(key{}))
		}
		<-ctx.Done()
		if time.Since(began) != deadline || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("ended after %s with %v", time.Since(began), ctx.Err())
		}
	})
}

// TestClaimConcurrentUse: its names may be read while it is renewed.
func TestClaimConcurrentUse(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 50 {
					if err := c.Renew(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
			wg.Go(func() {
				for range 50 {
					if c.Identity() != c.ID().String() || c.Attempt() != 1 || c.Record().ID != c.ID() {
						t.Error("names differ")
					}
				}
			})
		}
		wg.Wait()
		w.complete(c)
	})
}

// TestResponses: what is kept, and what is not.
func TestResponses(t *testing.T) {
	none := time.Duration(0)
	for _, c := range []struct {
		name     string
		replay   *time.Duration
		response []byte
		want     counterfoil.Verdict
	}{
		{"kept", nil, []byte("r"), replay},
		{"empty is a response", nil, []byte{}, replay},
		{"none", nil, nil, already},
		{"the policy keeps none", &none, []byte("r"), already},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				claim := w.claim("k")
				if _, err := claim.Complete(t.Context(), succeeded, c.response); err != nil {
					t.Fatal(err)
				}
				d := w.ask(request("k", 1), c.want)
				if c.want == replay && (d.Response == nil || string(d.Response) != string(c.response)) {
					t.Errorf("response %q", d.Response)
				}
				if d.Record.Outcome != succeeded {
					t.Errorf("outcome %+v", d.Record.Outcome)
				}
			}, func(o *policy.Operation) { o.ReplayFor = c.replay })
		})
	}
}

// TestLongWords: a resource that is too long is left out, a reason cut at a
// character; neither keeps an outcome from being written.
func TestLongWords(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.claim("k")
		out := succeeded
		out.Resource = strings.Repeat("x", counterfoil.MaxResource+1)
		if _, err := c.Complete(t.Context(), out, nil); err != nil {
			t.Fatal(err)
		}
		if r := w.get(c.ID()); r.Outcome.Resource != "" || r.Outcome.Status != 201 {
			t.Errorf("outcome %+v", r.Outcome)
		}
		f := w.claim("f")
		if _, err := f.Fail(t.Context(), "x"+strings.Repeat("ü", counterfoil.MaxReason)); err != nil {
			t.Fatal(err)
		}
		if s := w.get(f.ID()).Evidence[0].Reason; len(s) != counterfoil.MaxReason-1 || !strings.HasSuffix(s, "ü") {
			t.Errorf("reason of %d bytes: %q", len(s), s)
		}
	})
}

// TestDo runs the effect if it may, and reports what came of it.
func TestDo(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name   string
		effect func(context.Context, *counterfoil.Claim) (counterfoil.Result, error)
		state  counterfoil.State
		kind   counterfoil.EvidenceKind
		err    error
	}{
		{"completes", func(context.Context, *counterfoil.Claim) (counterfoil.Result, error) {
			return counterfoil.Result{Outcome: succeeded, Response: []byte("r")}, nil
		}, counterfoil.Completed, 0, nil},
		{"states no effect", func(context.Context, *counterfoil.Claim) (counterfoil.Result, error) {
			return counterfoil.Result{}, fmt.Errorf("no money: %w", counterfoil.ErrNoEffect)
		}, counterfoil.Failed, counterfoil.EvidenceFailed, counterfoil.ErrNoEffect},
		{"an error does not mean that nothing happened (C34)", func(context.Context, *counterfoil.Claim) (counterfoil.Result, error) {
			return counterfoil.Result{}, boom
		}, counterfoil.Unknown, counterfoil.EvidenceAmbiguous, boom},
		{"passes its deadline, renewed until then", func(ctx context.Context, _ *counterfoil.Claim) (counterfoil.Result, error) {
			<-ctx.Done()
			return counterfoil.Result{}, ctx.Err()
		}, counterfoil.Unknown, counterfoil.EvidenceDeadline, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				ctx, leave := context.WithCancel(t.Context())
				d, err := w.e.Do(ctx, request("k", 1), func(ctx context.Context, claim *counterfoil.Claim) (counterfoil.Result, error) {
					leave() // the caller goes away; the effect goes on
					return c.effect(ctx, claim)
				})
				if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
					t.Errorf("error %v, want %v", err, c.err)
				}
				if d.Verdict != proceed || d.Record.State != c.state {
					t.Errorf("%s, record %+v", d.Verdict, d.Record)
				}
				if r := w.state(d.ID, c.state); c.kind != 0 && !has(r, c.kind) {
					t.Errorf("evidence %+v", r.Evidence)
				}
			})
		})
	}
}

// TestDoPanic: the record is unknown, and the panic goes on.
func TestDoPanic(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			_, _ = w.e.Do(t.Context(), request("k", 1), func(context.Context, *counterfoil.Claim) (counterfoil.Result, error) { panic("boom") })
		}()
		d := w.ask(request("k", 1), unknown)
		if !has(d.Record, counterfoil.EvidencePanic) {
			t.Errorf("evidence %+v", d.Record.Evidence)
		}
		if strings.Contains(fmt.Sprint(d.Record.Evidence), "boom") {
			t.Error("what the panic said is kept; it may be a secret")
		}
	})
}

// TestOnce gives the value once made, and says why where there is none.
func TestOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		type charge struct{ ID string }
		runs := 0
		once := func(content byte) (charge, error) {
			return counterfoil.Once(t.Context(), w.e, request("k", content), func(context.Context, *counterfoil.Claim) (charge, error) {
				runs++
				return charge{fmt.Sprint("ch_", runs)}, nil
			})
		}
		for range 3 {
			if v, err := once(1); err != nil || v.ID != "ch_1" {
				t.Fatalf("value %+v, %v", v, err)
			}
		}
		var notRun *counterfoil.NotRunError
		if v, err := once(2); !errors.As(err, &notRun) || notRun.Decision.Verdict != mismatch || v != (charge{}) {
			t.Errorf("value %+v, %v", v, err)
		}
		if strings.Contains(notRun.Error(), "acct-1") {
			t.Errorf("%q names the principal", notRun)
		}
		pass(ttl)
		if _, err := once(1); !errors.As(err, &notRun) || notRun.Decision.Verdict != already {
			t.Errorf("error %v", err)
		}
		if runs != 1 {
			t.Errorf("ran %d times", runs)
		}
		// A value that cannot be kept has had its effect all the same.
		f := func(context.Context, *counterfoil.Claim) (func(), error) { return func() {}, nil }
		if _, err := counterfoil.Once(t.Context(), w.e, request("f", 1), f); err != nil {
			t.Fatal(err)
		}
		w.ask(request("f", 1), already)
	})
}

// TestDoUnconfirmed: the effect ran and the store did not say so: no clean
// answer.
func TestDoUnconfirmed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.faults.plan("update", refuse)
		v, err := counterfoil.Once(t.Context(), w.e, request("k", 1), func(context.Context, *counterfoil.Claim) (int, error) { return 7, nil })
		if !errors.Is(err, counterfoil.ErrUnconfirmed) || v != 0 {
			t.Errorf("value %d, error %v", v, err)
		}
		d, err := w.e.Do(t.Context(), request("l", 1), func(context.Context, *counterfoil.Claim) (counterfoil.Result, error) {
			w.faults.plan("update", refuse)
			return counterfoil.Result{Outcome: succeeded, Response: []byte("r")}, nil
		})
		if !errors.Is(err, counterfoil.ErrUnconfirmed) || d.Response != nil {
			t.Errorf("response %q, error %v", d.Response, err)
		}
		pass(10 * time.Second)
		w.ask(request("k", 1), replay)
		w.ask(request("l", 1), replay)
	})
}
