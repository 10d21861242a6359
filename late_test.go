package counterfoil_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
)

// forgetUpTo has the store forget a record of the operation that was made now.
func (w *world) forgetUpTo(at time.Time) {
	w.t.Helper()
	f := counterfoil.Forgotten{}
	f.Raise(w.e.OperationNumber("capture"), at)
	var rev uint64
	if m, err := w.store.Meta(w.t.Context(), counterfoil.MetaForgotten); err == nil {
		rev = m.Rev
	}
	if _, err := w.store.SetMeta(w.t.Context(), counterfoil.MetaForgotten, rev, f.Encode()); err != nil {
		w.t.Fatal(err)
	}
}

// TestC83LateRefused: past its time a key is refused under late: refuse, with
// its outcome, for good, whether or not a sweep was there (E = 1).
func TestC83LateRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.completed("k")
		pass(retention)
		d := w.ask(request("k", 1), expired)
		if d.Late != counterfoil.WitnessRecord || d.Record.Outcome != succeeded || d.Response != nil {
			t.Errorf("decision %+v", d)
		}
		got, _ := w.crowd(50, func(int) *counterfoil.Request { return request("k", 1) }, w.e)
		if got[expired] != 50 {
			t.Errorf("%v, want 50 refused", got)
		}
	})
}

// TestC83LateCounted: under late: count the first of 50 runs anew, exactly
// once, whether the record is unswept, a tombstone, announced, or an unknown
// whose time is over; the old outcome stays as evidence (E = 2).
func TestC83LateCounted(t *testing.T) {
	stands := map[string]func(w *world) (want counterfoil.Outcome){
		"completed": func(w *world) counterfoil.Outcome { w.completed("k"); pass(retention); return succeeded },
		"tombstone": func(w *world) counterfoil.Outcome {
			w.completed("k")
			pass(ttl)
			w.sweep(0)
			pass(retention - ttl)
			return succeeded
		},
		"announced": func(w *world) counterfoil.Outcome {
			w.completed("k")
			pass(retention)
			w.sweep(time.Hour)
			return succeeded
		},
		"unknown": func(w *world) counterfoil.Outcome {
			w.unknown("k")
			pass(quiet + retention)
			return counterfoil.Outcome{Status: 502}
		},
	}
	for name, stand := range stands {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				want := stand(w)
				other := w.open(w.e.Policy(), counterfoil.Options{})
				got, c := w.crowd(50, func(int) *counterfoil.Request { return request("k", 1) }, w.e, other)
				if got[proceed] != 1 || got[inProgress] != 49 {
					t.Fatalf("%v, want one winner", got)
				}
				r := c.Record()
				if r.Attempt != 1 || !r.CreatedAt.Equal(time.Now()) || r.HasResponse || !r.SettledAt.IsZero() || !r.Horizon.IsZero() {
					t.Errorf("record %+v, want a new one", r)
				}
				if len(r.Evidence) != 1 || r.Evidence[0].Kind != counterfoil.EvidenceSuperseded || r.Evidence[0].Outcome != want {
					t.Errorf("evidence %+v, want the old outcome %+v", r.Evidence, want)
				}
				late := 0
				for _, d := range w.decided {
					if d.Ruling.Late == counterfoil.WitnessRecord {
						late++
					}
				}
				if late != 1 {
					t.Errorf("counted %d as late, want the one that ran", late)
				}
				w.complete(c)
				w.ask(request("k", 1), replay)
			}, countLate)
		})
	}
}

// TestLateWitnesses: an absent key that is older than what was forgotten came
// too late; what dates it is the witness. Born later, it was never seen.
func TestLateWitnesses(t *testing.T) {
	const eps = counterfoil.ClockTolerance
	for _, c := range []struct {
		name      string
		age       time.Duration // of the key's time; 0: undated
		firstSent time.Duration // ago; 0: not said
		late      counterfoil.Witness
	}{
		{"undated", 0, 0, ""},
		{"key older than F", 2 * time.Hour, 0, counterfoil.WitnessKeyTime},
		{"key as old as F, with the tolerance", time.Hour - eps, 0, counterfoil.WitnessKeyTime},
		{"key younger than F", time.Hour - eps - tick, 0, ""},
		{"first sent before F", 0, 2 * time.Hour, counterfoil.WitnessFirstSent},
		{"first sent after F", 0, time.Minute, ""},
		{"old key, said to be sent just now", 2 * time.Hour, time.Minute, counterfoil.WitnessKeyTime},
		{"young key, first sent before F", time.Minute, 2 * time.Hour, counterfoil.WitnessFirstSent},
	} {
		for _, rules := range []func(*policy.Operation){func(*policy.Operation) {}, countLate} {
			t.Run(c.name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					pass(100 * time.Hour)
					now := time.Now()
					w.forgetUpTo(now.Add(-time.Hour))
					key := func(n int) string {
						if c.age == 0 {
							return fmt.Sprint("k", n)
						}
						return uuidv7(now.Add(-c.age), uint16(n))
					}
					req := func(n int) *counterfoil.Request {
						r := request(key(n), 1)
						if c.firstSent != 0 {
							r.FirstSent = now.Add(-c.firstSent)
						}
						return r
					}
					want := proceed
					if c.late != "" && w.e.Policy().Operations[0].Late == policy.LateRefuse {
						want = expired
					}
					d := w.ask(req(1), want)
					if d.Late != c.late {
						t.Errorf("witness %q, want %q", d.Late, c.late)
					}
					if want == expired {
						return
					}
					w.complete(d.Claim)
					w.ask(req(1), replay) // a standing record is judged before any age
					if got, _ := w.crowd(50, func(int) *counterfoil.Request { return req(2) }, w.e); got[proceed] != 1 {
						t.Errorf("%v, want one winner", got)
					}
				}, rules)
			})
		}
	}
}

// TestFutureKeys: a key that says it was made in the future is invalid, but not
// within the tolerance, and not where a record stands.
func TestFutureKeys(t *testing.T) {
	const eps = counterfoil.ClockTolerance
	inWorld(t, func(t *testing.T, w *world) {
		now := time.Now()
		w.ask(request(uuidv7(now.Add(eps), 1), 1), proceed)
		w.ask(request(uuidv7(now.Add(eps+tick), 2), 1), keyInvalid)
		req := request("k", 1)
		req.FirstSent = now.Add(eps + tick)
		w.ask(req, keyInvalid)

		key := uuidv7(now.Add(eps), 1)
		w.e = w.open(w.e.Policy(), counterfoil.Options{})
		w.ask(request(key, 1), inProgress)
	})
}

// TestBirth: what dates a key, and what does not.
func TestBirth(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 123e6, time.UTC)
	v7 := uuidv7(at, 9)
	const ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV" // 2016-07-30T23:54:10.259Z, the example of the ULID text
	ulidAt := time.Date(2016, 7, 30, 23, 54, 10, 259e6, time.UTC)
	for _, c := range []struct {
		name      string
		key       string
		format    policy.KeyFormat
		firstSent time.Time
		want      time.Time
		by        counterfoil.Witness
	}{
		{"uuidv7", v7, policy.KeyAny, time.Time{}, at, counterfoil.WitnessKeyTime},
		{"uuidv7 in capitals", strings.ToUpper(v7), policy.KeyAny, time.Time{}, at, counterfoil.WitnessKeyTime},
		{"uuidv7, first sent later", v7, policy.KeyAny, at.Add(1), at, counterfoil.WitnessKeyTime},
		{"uuidv7, first sent before", v7, policy.KeyAny, at.Add(-1), at.Add(-1), counterfoil.WitnessFirstSent},
		{"RFC 9562's example", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", policy.KeyUUIDv7, time.Time{}, time.UnixMilli(0x017F22E279B0).UTC(), counterfoil.WitnessKeyTime},
		{"version 4", "919108f7-52d1-4320-9bac-f847db4148a8", policy.KeyUUID, time.Time{}, time.Time{}, ""},
		{"another variant", v7[:19] + "c" + v7[20:], policy.KeyAny, time.Time{}, time.Time{}, ""},
		{"not hexadecimal", v7[:35] + "g", policy.KeyAny, time.Time{}, time.Time{}, ""},
		{"a hyphen elsewhere", v7[:7] + "-" + v7[8:], policy.KeyAny, time.Time{}, time.Time{}, ""},
		{"longer", v7 + "0", policy.KeyAny, time.Time{}, time.Time{}, ""},
		{"ulid where the policy says so", ulid, policy.KeyULID, time.Time{}, ulidAt, counterfoil.WitnessKeyTime},
		{"ulid in small letters", strings.ToLower(ulid), policy.KeyULID, time.Time{}, ulidAt, counterfoil.WitnessKeyTime},
		{"ulid elsewhere", ulid, policy.KeyAny, time.Time{}, time.Time{}, ""},
		{"ulid beyond its range", "8" + ulid[1:], policy.KeyULID, time.Time{}, time.Time{}, ""},
		{"ulid with a letter it has not", ulid[:25] + "U", policy.KeyULID, time.Time{}, time.Time{}, ""},
		{"first sent alone", "k", policy.KeyAny, at, at, counterfoil.WitnessFirstSent},
		{"nothing", "k", policy.KeyAny, time.Time{}, time.Time{}, ""},
	} {
		got, by := counterfoil.Key(c.key).Birth(c.format, c.firstSent)
		if !got.Equal(c.want) || by != c.by {
			t.Errorf("%s: born %s by %q, want %s by %q", c.name, got, by, c.want, c.by)
		}
	}
}

// TestP14Distrust: in a store that lost writes nothing that is absent runs,
// except under keys born later; what stands is answered, and reopens nothing.
func TestP14Distrust(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		pass(100 * time.Hour)
		w.completed("done")
		w.unknown("unknown")
		failed := w.claim("failed")
		if _, err := failed.Fail(t.Context(), "refused"); err != nil {
			t.Fatal(err)
		}
		lapsed := w.claim("lapsed")
		pass(lease + tick)
		alive := w.claim("alive")
		early := uuidv7(time.Now(), 1)

		if err := w.e.Distrust(t.Context(), "canary went back"); err != nil {
			t.Fatal(err)
		}
		lost := time.Now()
		if w.e.Trusted() {
			t.Error("still trusted")
		}
		edge := uuidv7(lost.Add(counterfoil.ClockTolerance), 2)
		later := func(n uint16) string { return uuidv7(lost.Add(counterfoil.ClockTolerance+tick), n) }
		pass(10 * time.Second)
		for _, e := range []*counterfoil.Engine{w.e, w.open(w.e.Policy(), counterfoil.Options{})} {
			w.e = e
			w.ask(request("new", 1), unavailable)
			w.ask(request(early, 1), unavailable)
			w.ask(request(edge, 1), unavailable)
			w.ask(request("failed", 1), unavailable)
			w.ask(request("lapsed", 1), unavailable)
			w.ask(request("alive", 1), inProgress)
			w.ask(request("unknown", 1), unknown)
			w.ask(request("done", 1), replay)
			w.ask(request("done", 2), mismatch)
		}
		w.complete(alive) // an owner may still end what it began
		pass(counterfoil.ClockTolerance)
		w.complete(w.ask(request(later(3), 1), proceed).Claim)
		w.ask(request(later(3), 1), replay)
		if r := w.get(lapsed.ID()); r.Rev != 1 {
			t.Errorf("record %+v was written", r)
		}
		// The first loss is the one that counts.
		if err := w.e.Distrust(t.Context(), "again"); err != nil {
			t.Fatal(err)
		}
		if tr, _, err := counterfoil.ReadTrust(t.Context(), w.store); err != nil || !tr.DistrustedAt.Equal(lost) || tr.Reason != "canary went back" {
			t.Errorf("trust %+v, %v", tr, err)
		}
	}, explicit)
}

// TestP14TrustAgain: a person's word ends it; what is older stays witnessed.
func TestP14TrustAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := w.open(w.e.Policy(), counterfoil.Options{})
		if err := w.e.TrustAgain(t.Context(), "ann", "checked"); !errors.Is(err, counterfoil.ErrConflict) {
			t.Errorf("trusted what was trusted: %v", err)
		}
		pass(time.Hour)
		early := uuidv7(time.Now(), 1)
		if err := w.e.Distrust(t.Context(), "restored from a backup"); err != nil {
			t.Fatal(err)
		}
		if err := other.Refresh(t.Context()); err != nil || other.Trusted() {
			t.Errorf("another node trusts it: %v", err)
		}
		for _, word := range [][2]string{{"", "checked"}, {"ann", ""}} {
			if err := w.e.TrustAgain(t.Context(), word[0], word[1]); err == nil || w.e.Trusted() {
				t.Errorf("trusted on the word of %q because %q", word[0], word[1])
			}
		}
		if err := w.e.TrustAgain(t.Context(), "ann", "checked"); err != nil || !w.e.Trusted() {
			t.Fatal(err)
		}
		w.ask(request("new", 1), proceed)
		w.ask(request(early, 1), expired)
		tr, _, err := counterfoil.ReadTrust(t.Context(), w.store)
		if err != nil || tr.Actor != "ann" || tr.Word != "checked" || !tr.TrustedAt.Equal(time.Now()) {
			t.Errorf("trust %+v, %v", tr, err)
		}
	})
}

// TestP14StoreEmptied: a store that lost its charter under a running engine is
// not taken for a new one; the engine says so, and numbers no record with 0.
func TestP14StoreEmptied(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.completed("k")
		w.faults.Store = memstore.New(memstore.Options{Clock: time.Now})
		if err := w.e.Refresh(t.Context()); err == nil {
			t.Error("refreshed from an empty store without a word")
		}
		if d, err := w.e.Begin(t.Context(), request("new", 1)); err == nil && d.Record.Operation == 0 {
			t.Errorf("record %+v has no operation", d.Record)
		}
	})
}

// TestUnreadable: a record whose policy or fingerprint this node cannot read is
// answered as unavailable, by whatever request, and never as absent (C68).
func TestUnreadable(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old := w.e
		newer := w.open(policyOf(2, capture()), counterfoil.Options{})
		w.e = newer
		w.completed("k")
		w.e = old
		w.ask(request("k", 1), unavailable)
		w.ask(request("k", 2), unavailable)
		if err := old.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.ask(request("k", 1), replay)

		id := w.completed("f")
		w.edit(id, func(r *counterfoil.Record) { r.Fingerprint.Version = 3 })
		w.ask(request("f", 1), unavailable)
		w.faults.Store = spoilt{w.store}
		w.ask(request("k", 1), unavailable)
	})
}

type spoilt struct{ counterfoil.Store }

func (spoilt) Create(context.Context, *counterfoil.Draft) (counterfoil.Standing, error) {
	return counterfoil.Standing{}, fmt.Errorf("record version 9: %w", counterfoil.ErrUnreadable)
}

// TestC68FingerprintVersions: a record is compared under the version of the
// algorithm and the rules of the policy that made it.
func TestC68FingerprintVersions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		oldBinary := request("k", 1)
		oldBinary.Fingerprint = func(op *policy.Operation, version uint8) (counterfoil.Fingerprint, error) {
			if version == 0 {
				version = 1
			}
			return digest(1)(op, version)
		}
		w.complete(w.ask(oldBinary, proceed).Claim)
		w.ask(request("k", 1), replay) // the new binary works out version 1 again
		w.ask(request("k", 2), mismatch)

		w.completed("p")
		ignoring := capture(func(o *policy.Operation) { o.Fingerprint.Ignore = []string{"$.sent_at"} })
		if err := w.e.SetPolicy(t.Context(), policyOf(2, ignoring)); err != nil {
			t.Fatal(err)
		}
		w.ask(request("p", 1), replay) // under the rules of policy 1
		w.ask(request("p", 2), mismatch)
		if d := w.ask(request("q", 1), proceed); d.Record.Policy != 2 {
			t.Errorf("record %+v", d.Record)
		}
	})
}

// TestFamily: operations of one family share keys, so that a key used for one
// is taken for the other; what runs under it is never mixed up.
func TestFamily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inFamily := func(name string) policy.Operation {
			return capture(func(o *policy.Operation) {
				o.Name, o.Match, o.Scope.Family = name, []string{"POST /v1/" + name}, "payments"
			})
		}
		alone := inFamily("alone")
		alone.Scope.Family = ""
		w := newWorld(t, policyOf(1, inFamily("capture"), inFamily("refund"), alone), counterfoil.Options{})
		id := w.completed("k")
		refund := request("k", 2)
		refund.Operation = "refund"
		if d := w.ask(refund, mismatch); d.ID != id {
			t.Error("the family does not share its keys")
		}
		// A fingerprint that leaves the operation out makes no difference.
		refund = request("k", 1)
		refund.Operation = "refund"
		w.ask(refund, mismatch)
		other := request("k", 1)
		other.Operation = "alone"
		if d := w.ask(other, proceed); d.ID == id {
			t.Error("an operation outside the family shares its key")
		}
		if got, err := w.e.RecordID("refund", "acct-1", "k"); err != nil || got != id {
			t.Errorf("record id %s, %v", got, err)
		}
	})
}

// TestFamilyForgets: a deleted record of any operation of the family may have
// had this key, so what one forgot keeps old keys out of the others.
func TestFamilyForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := func(name, family string) policy.Operation {
			return capture(func(o *policy.Operation) { o.Name, o.Match, o.Scope.Family = name, nil, family })
		}
		w := newWorld(t, policyOf(1, named("capture", "payments"), named("refund", "payments"), named("alone", "")), counterfoil.Options{})
		pass(100 * time.Hour)
		w.forgetUpTo(time.Now())
		old := func(operation string) *counterfoil.Request {
			r := request(uuidv7(time.Now().Add(-time.Hour), 1), 1)
			r.Operation = operation
			return r
		}
		for _, untrusted := range []bool{false, true} {
			if untrusted {
				if err := w.e.Distrust(t.Context(), "test"); err != nil {
					t.Fatal(err)
				}
				w.ask(old("refund"), unavailable)
				continue
			}
			w.ask(old("capture"), expired)
			w.ask(old("refund"), expired)
			w.ask(old("alone"), proceed)
		}
	})
}
