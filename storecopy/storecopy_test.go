package storecopy_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/storecopy"
)

// TestFullSetsEveryField, so that none is forgotten by the copy unnoticed.
func TestFullSetsEveryField(t *testing.T) {
	v := reflect.ValueOf(full(counterfoil.InProgress))
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "Rev" && name != "HasResponse" {
			t.Errorf("%s is not set", name)
		}
	}
}

func TestCopyKeepsEverything(t *testing.T) {
	from, to := fill(t), newStore()
	if _, err := from.SetMeta(ctx, counterfoil.MetaSweep, 0, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	var phases []storecopy.Phase
	rep, err := storecopy.Run(ctx, from, to, storecopy.Options{Page: 3, Progress: func(p storecopy.Progress) {
		if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
			phases = append(phases, p.Phase)
		}
		if p.Done > p.Total || p.Total != 16 {
			t.Errorf("progress %+v", p)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	sameStores(t, from, to)
	if rep.Records != 16 || rep.Copied != 16 || rep.Responses != 3 || rep.ResponsesDue != 1 || rep.Present != 0 || rep.Bytes < 7000 || !rep.Verified || len(rep.Digest) != 64 {
		t.Errorf("report %+v", rep)
	}
	if o := rep.Operations[opPay]; o.Total() != 9 || o.Count(counterfoil.Completed) != 4 {
		t.Errorf("operations %+v", rep.Operations)
	}
	if want := []storecopy.Phase{storecopy.PhaseCopy, storecopy.PhaseReread, storecopy.PhaseVerify}; !slices.Equal(phases, want) {
		t.Errorf("phases %q, want %q", phases, want)
	}
	if _, err := to.Meta(ctx, counterfoil.MetaSweep); !errors.Is(err, counterfoil.ErrNotFound) {
		t.Errorf("the note of the last sweep was copied: %v", err)
	}
	engine(t, to) // may open it
}

func TestAgainChangesNothing(t *testing.T) {
	from, to := fill(t), newStore()
	first := run(t, from, to)
	before := all(t, to)
	again := run(t, from, to)
	if again.Copied != 0 || again.Updated != 0 || again.Present != 16 || again.Digest != first.Digest {
		t.Errorf("second run: %+v", again)
	}
	if after := all(t, to); !reflect.DeepEqual(before, after) {
		t.Error("the second run wrote records")
	}
	rep, err := storecopy.Verify(ctx, from, to, storecopy.Options{})
	if err != nil || !rep.Verified || rep.Digest != first.Digest {
		t.Errorf("verify: %v, %+v", err, rep)
	}
}

// TestInterruptedAnywhere stops a copy at every one of its calls, with the call
// done and not done, and runs it again.
func TestInterruptedAnywhere(t *testing.T) {
	count := &wire{}
	from := fill(t)
	if _, err := storecopy.Run(ctx, far{from, count}, far{newStore(), count}, storecopy.Options{Page: 4, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	for _, lost := range []bool{false, true} {
		for n := 1; n <= count.calls; n++ {
			to := newStore()
			w := &wire{at: n, lost: lost}
			rep, err := storecopy.Run(ctx, far{from, w}, far{to, w}, storecopy.Options{Page: 4, Workers: 1})
			if !errors.Is(err, errBroken) {
				t.Fatalf("stopped at call %d (lost %t): error %v", n, lost, err)
			}
			absentKeyDoesNotRun(t, from, to, fmt.Sprintf("stopped at call %d (lost %t)", n, lost))
			again := run(t, from, to)
			if again.Copied+again.Updated+again.Present != 16 || rep.Copied > 16 {
				t.Errorf("stopped at call %d (lost %t): first %+v, then %+v", n, lost, rep, again)
			}
			sameStores(t, from, to)
			if t.Failed() {
				t.FailNow()
			}
		}
	}
	t.Logf("%d calls", count.calls)
}

// absentKeyDoesNotRun: where the target lacks records of the source, no engine
// opens. A target that nothing has been written to is as good as new.
func absentKeyDoesNotRun(t *testing.T, from, to counterfoil.Store, when string) {
	t.Helper()
	_, err := to.Meta(ctx, counterfoil.MetaCharter)
	if errors.Is(err, counterfoil.ErrNotFound) {
		if n := len(all(t, to)); n > 0 {
			t.Errorf("%s: %d records and no charter", when, n)
		}
		return
	}
	if len(all(t, to)) < len(all(t, from)) {
		if _, err := counterfoil.Open(ctx, to, payments(1), counterfoil.Options{}); !errors.Is(err, counterfoil.ErrUnreadable) {
			t.Errorf("%s: an engine opened on half a copy: %v", when, err)
		}
		if err := storecopy.Unfinished(ctx, to); !errors.Is(err, storecopy.ErrUnfinished) {
			t.Errorf("%s: Unfinished: %v", when, err)
		}
	}
}

// TestInterruptedOverAndOver lets every run come three calls further.
func TestInterruptedOverAndOver(t *testing.T) {
	from, to := fill(t), newStore()
	for n := 10; ; n += 3 {
		w := &wire{at: n, lost: n%2 == 0}
		if _, err := storecopy.Run(ctx, far{from, w}, far{to, w}, storecopy.Options{Page: 4}); err == nil {
			break
		} else if !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
	}
	sameStores(t, from, to)
}

// TestHalfCopiedTargetRunsNothing: neither an engine that opens, nor a key that
// says that it was made after F, nor the trust says that all is well.
func TestHalfCopiedTargetRunsNothing(t *testing.T) {
	from, to := fill(t), newStore()
	early := engine(t, to) // somebody had tried the target out, and left it running
	w := &wire{at: 40}
	if _, err := storecopy.Run(ctx, far{from, w}, far{to, w}, storecopy.Options{Page: 4}); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	if n := len(all(t, to)); n == 0 || n == 16 {
		t.Fatalf("%d records: not half-copied", n)
	}
	if _, err := counterfoil.Open(ctx, to, payments(1), counterfoil.Options{Forget: []string{"pay"}}); !errors.Is(err, counterfoil.ErrUnreadable) {
		t.Errorf("an engine opened: %v", err)
	}
	if err := early.Refresh(ctx); !errors.Is(err, counterfoil.ErrUnreadable) {
		t.Errorf("an engine that was open: %v", err)
	}
	if trust, _, err := counterfoil.ReadTrust(ctx, to); err != nil || trust.Trusted() || trust.Reason == "" {
		t.Errorf("trust %+v, %v", trust, err)
	}
	if _, err := storecopy.Verify(ctx, from, to, storecopy.Options{}); !errors.Is(err, storecopy.ErrUnfinished) {
		t.Errorf("verify: %v", err)
	}
	refused(t, to, newStore(), storecopy.ErrUnfinished, "the source")
	refused(t, fill(t), to, storecopy.ErrRefused, "finish that one")
	run(t, from, to)
	sameStores(t, from, to)
	if err := early.Refresh(ctx); err != nil || !early.Trusted() {
		t.Errorf("after the copy: %v", err)
	}
}

// TestSourceMovedOnBetweenRuns brings what an earlier run copied up to date.
func TestSourceMovedOnBetweenRuns(t *testing.T) {
	token := counterfoil.NewToken()
	moves := map[string]struct {
		before counterfoil.State
		change func(*counterfoil.Record)
	}{
		"renewed":  {counterfoil.InProgress, func(r *counterfoil.Record) { r.LeaseUntil = now.Add(time.Hour) }},
		"unknown":  {counterfoil.InProgress, func(r *counterfoil.Record) { r.State, r.Dispatched = counterfoil.Unknown, true }},
		"resolved": {counterfoil.Unknown, func(r *counterfoil.Record) { r.State, r.SettledAt = counterfoil.Completed, now }},
		"retried": {counterfoil.Failed, func(r *counterfoil.Record) {
			r.State, r.Attempt, r.Token = counterfoil.InProgress, 2, token
		}},
		"contradicted": {counterfoil.Failed, func(r *counterfoil.Record) { r.State = counterfoil.Completed }},
		"entombed":     {counterfoil.Completed, func(r *counterfoil.Record) { r.State, r.Token = counterfoil.Tombstone, counterfoil.Token{} }},
		"announced":    {counterfoil.Tombstone, func(r *counterfoil.Record) { r.State, r.AnnouncedAt = counterfoil.Announced, now }},
		"held": {counterfoil.Announced, func(r *counterfoil.Record) {
			r.State, r.Holds = counterfoil.Tombstone, []counterfoil.Hold{{At: now, Actor: "a", Reason: "r"}}
		}},
		"anew": {counterfoil.Announced, func(r *counterfoil.Record) {
			r.State, r.Token, r.CreatedAt, r.LeaseUntil = counterfoil.InProgress, token, now, now.Add(time.Minute)
		}},
	}
	for _, finished := range []bool{false, true} {
		for name, m := range moves {
			t.Run(fmt.Sprintf("%s, finished %t", name, finished), func(t *testing.T) {
				from, to := newStore(), newStore()
				engine(t, from)
				r := put(t, from, plain("k", m.before), nil)
				if finished {
					run(t, from, to)
				} else {
					// All is copied but the end.
					w := &wire{}
					f := far{to, w}
					w.before = func(int) {
						if len(all(t, to)) == 1 {
							w.at = 1
						}
					}
					if _, err := storecopy.Run(ctx, from, f, storecopy.Options{}); !errors.Is(err, errBroken) {
						t.Fatal(err)
					}
				}
				move(t, from, r, m.change)
				if finished && (name == "renewed" || name == "held" || name == "announced") {
					// Which is the later one cannot be told, and the target may
					// have been served from.
					rep := refused(t, from, to, storecopy.ErrRefused, "nothing was written")
					if rep.Refused != 1 || rep.Differences[0].ID != r.ID {
						t.Errorf("report %+v", rep)
					}
					return
				}
				rep := run(t, from, to)
				if rep.Updated != 1 || rep.Copied != 0 {
					t.Errorf("report %+v", rep)
				}
				sameStores(t, from, to)
			})
		}
	}
}

// TestTargetIsNewer: what was served from is not written over.
func TestTargetIsNewer(t *testing.T) {
	from, to := fill(t), newStore()
	run(t, from, to)
	before := all(t, to)
	id := newID("plain in_progress")
	move(t, to, before[id], func(r *counterfoil.Record) { r.State = counterfoil.Completed })
	before = all(t, to)
	rep := refused(t, from, to, storecopy.ErrRefused, "1 records", "nothing was written", "name an empty target")
	if len(rep.Differences) != 1 || rep.Differences[0].ID != id || !strings.Contains(rep.Differences[0].What, "the target has attempt 1, completed") {
		t.Errorf("differences %+v", rep.Differences)
	}
	if !reflect.DeepEqual(before, all(t, to)) {
		t.Error("the target was written")
	}
	engine(t, to) // is still a store
}

func TestTargetHasRecordsOfItsOwn(t *testing.T) {
	from, to := fill(t), newStore()
	run(t, from, to)
	own := put(t, to, plain("made by serve on the target", counterfoil.InProgress), nil)
	rep := refused(t, from, to, storecopy.ErrRefused)
	if len(rep.Differences) != 1 || rep.Differences[0].ID != own.ID {
		t.Errorf("differences %+v", rep.Differences)
	}
	if _, err := storecopy.Verify(ctx, from, to, storecopy.Options{}); !errors.Is(err, storecopy.ErrDiffers) || !strings.Contains(err.Error(), own.ID.String()) {
		t.Errorf("verify: %v", err)
	}
	engine(t, to)
}

// TestTargetIsUsedMeanwhile: a serve had it open already. Newer records are
// kept, everything else is copied, and the target stays shut.
func TestTargetIsUsedMeanwhile(t *testing.T) {
	for _, what := range []string{"a record of its own", "a later attempt", "another claim of the attempt"} {
		t.Run(what, func(t *testing.T) {
			from, to := fill(t), newStore()
			mine := plain("its own", counterfoil.InProgress)
			reason := storecopy.ErrDiffers
			if what != "a record of its own" {
				mine = all(t, from)[newID("plain completed")]
				mine.Token, reason = counterfoil.NewToken(), storecopy.ErrRefused
			}
			if what == "a later attempt" {
				mine.Attempt = 2
			}
			w := &wire{before: func(n int) {
				if n == 12 {
					put(t, to, mine, nil)
				}
			}}
			rep, err := storecopy.Run(ctx, from, far{to, w}, storecopy.Options{Page: 4, Workers: 1})
			if !errors.Is(err, reason) || rep.Refused != 1 || rep.Differences[0].ID != mine.ID {
				t.Fatalf("%v\n%+v", err, rep)
			}
			if rep.Copied+rep.Refused < 16 {
				t.Errorf("it stopped at the first: %+v", rep)
			}
			if err := storecopy.Unfinished(ctx, to); !errors.Is(err, storecopy.ErrUnfinished) {
				t.Errorf("the target may be served from: %v", err)
			}
		})
	}
}

func TestTargetOfAnotherCharter(t *testing.T) {
	from := fill(t)
	open := func(s counterfoil.Store, version uint32, key string) {
		t.Helper()
		var k counterfoil.IndexKey
		if key != "" {
			var err error
			if k, err = counterfoil.NewIndexKey([]byte(key)); err != nil {
				t.Fatal(err)
			}
		}
		p := payments(version)
		if _, err := counterfoil.Open(ctx, s, p, counterfoil.Options{IndexKey: k}); err != nil {
			t.Fatal(err)
		}
	}
	other := newStore()
	open(other, 1, strings.Repeat("k", 32))
	put(t, other, plain("k", counterfoil.Completed), nil)
	refused(t, from, other, storecopy.ErrRefused, "its index key is another one", "name an empty target")

	newer := newStore()
	open(newer, 2, "")
	put(t, newer, plain("k", counterfoil.Completed), nil)
	refused(t, from, newer, storecopy.ErrRefused, "policy version 2")

	tried := newStore() // and left empty: its charter binds nobody
	open(tried, 2, strings.Repeat("k", 32))
	run(t, from, tried)
	sameStores(t, from, tried)
}

func TestSourceThatChanges(t *testing.T) {
	changes := map[string]func(*testing.T, counterfoil.Store){
		"a new record": func(t *testing.T, s counterfoil.Store) { put(t, s, plain("new", counterfoil.InProgress), nil) },
		"a write that comes to the same": func(t *testing.T, s counterfoil.Store) {
			move(t, s, all(t, s)[newID("plain unknown")], func(*counterfoil.Record) {})
		},
		"trust": func(t *testing.T, s counterfoil.Store) {
			if err := counterfoil.Distrust(ctx, s, "lost"); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			from, to := fill(t), newStore()
			changed := false
			_, err := storecopy.Run(ctx, from, to, storecopy.Options{Page: 4, Progress: func(p storecopy.Progress) {
				if p.Phase == storecopy.PhaseCopy && p.Done == p.Total && !changed {
					change(t, from)
					changed = true
				}
			}})
			if !errors.Is(err, storecopy.ErrSourceChanged) || !strings.Contains(err.Error(), "stop the serve that uses it, and run again") {
				t.Fatal(err)
			}
			absentKeyDoesNotRun(t, from, to, "the source changed")
			run(t, from, to)
			if name != "trust" { // raised F by the store's clock, and is compared by TestTrust
				sameStores(t, from, to)
			}
		})
	}
}

// unreadable lists one record less than it counts.
type unreadable struct{ counterfoil.Store }

func (u unreadable) Scan(ctx context.Context, q counterfoil.Query) (counterfoil.Records, error) {
	page, err := u.Store.Scan(ctx, q)
	page.Records = slices.DeleteFunc(page.Records, func(r counterfoil.Record) bool { return r.ID == newID("answered") })
	return page, err
}

// TestSourceThatCannotReadItsOwn: what is not copied would run again.
func TestSourceThatCannotReadItsOwn(t *testing.T) {
	from, to := fill(t), newStore()
	refused(t, unreadable{from}, to, counterfoil.ErrUnreadable, "counts 16 records and lists 15")
	absentKeyDoesNotRun(t, from, to, "a record is missing")
	run(t, from, to)
}

// mangled damages what is written through it.
type mangled struct{ counterfoil.Store }

func (m mangled) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	if string(w.Response) == "201" {
		c := *w
		c.Response = []byte("500")
		w = &c
	}
	return m.Store.Update(ctx, w)
}

func TestVerifyNamesWhatDiffers(t *testing.T) {
	from, to := fill(t), newStore()
	rep := refused(t, from, mangled{to}, storecopy.ErrDiffers, "their responses differ", newID("answered").String())
	if rep.Refused != 1 || len(rep.Differences) != 1 {
		t.Errorf("report %+v", rep)
	}
	if err := storecopy.Unfinished(ctx, to); err == nil {
		t.Error("the target may be served from")
	}
}

// TestSourceLetGoBetweenRuns: records past their time stay in the target, whose
// own sweep lets them go.
func TestSourceLetGoBetweenRuns(t *testing.T) {
	from, to := newStore(), newStore()
	engine(t, from)
	stays := plain("stays", counterfoil.Completed)
	put(t, from, stays, []byte("201"))
	for _, s := range []counterfoil.State{counterfoil.Failed, counterfoil.Tombstone} {
		r := plain("goes "+s.String(), s)
		r.Horizon = now.Add(-time.Second)
		put(t, from, r, nil)
	}
	run(t, from, to)
	if _, err := from.Sweep(ctx, counterfoil.SweepOrder{}); err != nil {
		t.Fatal(err)
	}
	if rep := run(t, from, to); rep.LeftOver != 2 || rep.Present != 1 {
		t.Errorf("report %+v", rep)
	}
	if _, err := to.Sweep(ctx, counterfoil.SweepOrder{}); err != nil {
		t.Fatal(err)
	}
	sameStores(t, from, to)
}

// lossy has responses that it can no longer read.
type lossy struct{ counterfoil.Store }

func (l lossy) Response(context.Context, counterfoil.ID, uint64) ([]byte, error) {
	return nil, counterfoil.ErrNotFound
}

func TestLostResponsesAreCounted(t *testing.T) {
	from, to := fill(t), newStore()
	if rep := run(t, lossy{from}, to); rep.ResponsesLost != 3 || rep.Responses != 0 || rep.Copied != 16 {
		t.Errorf("report %+v", rep)
	}
}

// thin returns no slice where there are no bytes.
type thin struct{ counterfoil.Store }

func (s thin) Response(ctx context.Context, id counterfoil.ID, rev uint64) ([]byte, error) {
	b, err := s.Store.Response(ctx, id, rev)
	if len(b) == 0 {
		b = nil
	}
	return b, err
}

func TestAnEmptyResponseIsOne(t *testing.T) {
	from, to := fill(t), newStore()
	if rep := run(t, thin{from}, to); rep.Responses != 3 || rep.ResponsesLost != 0 {
		t.Errorf("report %+v", rep)
	}
	sameStores(t, from, to)
}

func TestSameStore(t *testing.T) {
	s := fill(t)
	refused(t, s, s, storecopy.ErrRefused, "same store id")
	refused(t, newStore(), s, storecopy.ErrRefused, "no charter")
}

func TestForgottenIsKeptAndNeverLowered(t *testing.T) {
	from, to := fill(t), newStore()
	forget(t, from, opPay, now.Add(-2*time.Hour))
	run(t, from, to)
	e := engine(t, to)
	begin := func(key counterfoil.Key, born time.Time) counterfoil.Verdict {
		t.Helper()
		d, err := e.Begin(ctx, request(key, born))
		if err != nil {
			t.Fatal(err)
		}
		return d.Verdict
	}
	if v := begin("old", now.Add(-3*time.Hour)); v != counterfoil.VerdictExpired {
		t.Errorf("a key born before F: %s", v)
	}
	if v := begin("young", now.Add(-time.Hour)); v != counterfoil.VerdictProceed {
		t.Errorf("a key born after F: %s", v)
	}

	later := newStore() // has an F of its own, for an operation that it shares
	engine(t, later)
	forget(t, later, opPay, now.Add(-time.Hour))
	forget(t, later, 9, now.Add(-time.Hour))
	run(t, from, later)
	m, err := later.Meta(ctx, counterfoil.MetaForgotten)
	if err != nil {
		t.Fatal(err)
	}
	f, err := counterfoil.DecodeForgotten(m.Value)
	if err != nil || !f[opPay].Equal(now.Add(-time.Hour)) || !f[9].Equal(now.Add(-time.Hour)) {
		t.Errorf("F %v, %v", f, err)
	}
}

func TestTrustFollows(t *testing.T) {
	from, to := fill(t), newStore()
	if err := counterfoil.Distrust(ctx, from, "restored from a backup"); err != nil {
		t.Fatal(err)
	}
	run(t, from, to)
	sameStores(t, from, to)
	if trust, _, err := counterfoil.ReadTrust(ctx, to); err != nil || trust.Reason != "restored from a backup" {
		t.Errorf("trust %+v, %v", trust, err)
	}
	// A person's word on the target stands.
	if err := engine(t, to).TrustAgain(ctx, "ops", "compared"); err != nil {
		t.Fatal(err)
	}
	run(t, from, to)
	if trust, _, err := counterfoil.ReadTrust(ctx, to); err != nil || !trust.Trusted() {
		t.Errorf("trust %+v, %v", trust, err)
	}

	lost := newStore() // an empty target with a doubt of its own
	engine(t, lost)
	if err := counterfoil.Distrust(ctx, lost, "its own loss"); err != nil {
		t.Fatal(err)
	}
	run(t, fill(t), lost)
	if trust, _, err := counterfoil.ReadTrust(ctx, lost); err != nil || trust.Reason != "its own loss" {
		t.Errorf("trust %+v, %v", trust, err)
	}
}

// TestLossWithoutF: a store that lost writes may hold back keys of operations
// for which it shows no F.
func TestLossWithoutF(t *testing.T) {
	from, to := newStore(), newStore()
	e := engine(t, from)
	text := []byte(`{"distrusted_at":"2026-02-28T00:00:00Z","reason":"copied from elsewhere"}`)
	if _, err := from.SetMeta(ctx, counterfoil.MetaTrust, 0, text); err != nil {
		t.Fatal(err)
	}
	if err := e.TrustAgain(ctx, "ops", "compared"); err != nil {
		t.Fatal(err)
	}
	run(t, from, to)
	m, err := to.Meta(ctx, counterfoil.MetaForgotten)
	if err != nil {
		t.Fatal(err)
	}
	trust, _, err := counterfoil.ReadTrust(ctx, from)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := counterfoil.DecodeForgotten(m.Value); err != nil || !f[opPay].Equal(trust.TrustedAt) {
		t.Errorf("F %v, %v; want %s", f, err, trust.TrustedAt)
	}
}

func TestQuotaCountsOnTheTarget(t *testing.T) {
	from, to := newStore(), newStore()
	ask := func(e *counterfoil.Engine, key counterfoil.Key) error {
		_, err := e.Begin(ctx, request(key, time.Time{}))
		return err
	}
	e := engine(t, from)
	for _, key := range []counterfoil.Key{"1", "2", "3"} {
		if err := ask(e, key); err != nil {
			t.Fatal(err)
		}
	}
	run(t, from, to)
	if err := ask(engine(t, to), "4"); !errors.Is(err, counterfoil.ErrOverQuota) {
		t.Errorf("a fourth claim: %v", err)
	}
}

func TestEndsWithItsContext(t *testing.T) {
	from, to := fill(t), newStore()
	ctx, stop := context.WithCancel(ctx)
	_, err := storecopy.Run(ctx, from, to, storecopy.Options{Page: 4, Progress: func(storecopy.Progress) { stop() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	run(t, from, to)
	sameStores(t, from, to)
}

// TestManyWorkers copies many records at once.
func TestManyWorkers(t *testing.T) {
	from, to := newStore(), newStore()
	engine(t, from)
	for i := range 3000 {
		put(t, from, plain(fmt.Sprint(i), counterfoil.Completed), fmt.Append(nil, "answer ", i))
	}
	rep, err := storecopy.Run(ctx, from, to, storecopy.Options{})
	if err != nil || rep.Copied != 3000 || rep.Responses != 3000 {
		t.Fatal(err, rep)
	}
	sameStores(t, from, to)
}
