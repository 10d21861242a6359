package httpguard_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/policy"
)

// transactions give a store transactions of one update each, as a handler that
// completes its record in its own database has them. While one is open, others
// get ErrBusy for its record and read what is committed.
type transactions struct {
	counterfoil.Store
	mu   sync.Mutex // guards held
	held map[counterfoil.ID]*transaction
}

type transaction struct {
	*transactions
	write *counterfoil.Write
}

func (s *transactions) busy(id counterfoil.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[id] != nil
}

func (s *transactions) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	if s.busy(d.Record.ID) {
		return counterfoil.Standing{}, counterfoil.ErrBusy
	}
	return s.Store.Create(ctx, d)
}

func (s *transactions) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	if s.busy(w.Record.ID) {
		return counterfoil.Snapshot{}, counterfoil.ErrBusy
	}
	return s.Store.Update(ctx, w)
}

func (t *transaction) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	snap, err := t.Store.Get(ctx, w.Record.ID)
	switch {
	case err != nil:
		return counterfoil.Snapshot{}, err
	case snap.Record.Token != w.IfToken:
		return counterfoil.Snapshot{}, counterfoil.ErrFenced
	case snap.Record.Rev != w.IfRev:
		return counterfoil.Snapshot{}, counterfoil.ErrConflict
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held[w.Record.ID] != nil {
		return counterfoil.Snapshot{}, counterfoil.ErrBusy
	}
	t.held[w.Record.ID] = t
	t.write = w
	return counterfoil.Snapshot{Record: w.Record, AsOf: snap.AsOf}, nil
}

// end commits or rolls back; only the first counts.
func (t *transaction) end(commit bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.write == nil {
		return
	}
	if commit {
		if _, err := t.Store.Update(context.Background(), t.write); err != nil {
			panic("what a transaction holds was written by somebody else: " + err.Error())
		}
	}
	delete(t.held, t.write.Record.ID)
	t.write = nil
}

// inTransactions is a fixture whose store has transactions.
func inTransactions(t testing.TB, s setup) (*fixture, func() *transaction) {
	t.Helper()
	f := newFixture(t, s)
	txs := &transactions{Store: f.store.Store, held: map[counterfoil.ID]*transaction{}}
	f.store.Store = txs
	return f, func() *transaction { return &transaction{transactions: txs} }
}

var paid = counterfoil.Outcome{Class: counterfoil.Succeeded, Status: http.StatusCreated, Resource: "/pay/1"}

// A key that a transaction holds is in progress, as far as anybody can tell.
func TestInProgressWithoutRecord(t *testing.T) {
	f := newFixture(t, setup{})
	f.store.set(func(s *faults) { s.create = func() error { return counterfoil.ErrBusy } })
	a := f.post("/pay", "k", "{}")
	a.wants(t, 409, "in-progress", "in-progress")
	id, err := f.engine.RecordID("pay", "acct-1", "k")
	if err != nil {
		t.Fatal(err)
	}
	if p := a.problem(t); p["record"] != id.String() || p["safe_new_key"] != false {
		t.Errorf("%s", a.body)
	}
	if a.header.Get("Idempotency-Record") != id.String() || a.header.Get("Retry-After") != "1" || a.header.Get("Link") == "" {
		t.Errorf("header %v", a.header)
	}
	for _, name := range []string{"Idempotency-Protected-Until", "Idempotency-Replay-Until", "Idempotency-Replayed"} {
		if a.header.Get(name) != "" {
			t.Errorf("%s is %q", name, a.header.Get(name))
		}
	}
	told := f.told()
	if len(told) != 1 || told[0].Kind != httpguard.ResultInProgress || told[0].Age != 0 || told[0].Record != id {
		t.Errorf("told %+v", told)
	}
	if f.pay.count() != 0 || f.engine.Settling() != 0 {
		t.Errorf("%d effects, %d settling", f.pay.count(), f.engine.Settling())
	}
	f.store.set(func(s *faults) { s.create = nil })
	f.post("/pay", "k", "{}").wants(t, 201, "", "created")
}

// held says of every record that it is held.
type held struct{ counterfoil.Store }

func (held) Get(context.Context, counterfoil.ID) (counterfoil.Snapshot, error) {
	return counterfoil.Snapshot{}, counterfoil.ErrBusy
}

func TestLookupBusy(t *testing.T) {
	f := newFixture(t, setup{})
	f.store.Store = held{f.store.Store}
	a := f.send("GET", "/.well-known/idempotency/pay", "k", "")
	a.wants(t, 409, "in-progress", "")
	if a.header.Get("Retry-After") != "1" || a.header.Get("Idempotency-Record") == "" {
		t.Errorf("header %v", a.header)
	}
}

func TestCompleteIn(t *testing.T) {
	answers := func(status int) func(http.ResponseWriter, *httpguard.Attempt) {
		return func(w http.ResponseWriter, _ *httpguard.Attempt) {
			w.Header().Set("Location", "/pay/1")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "answer")
		}
	}
	type told struct {
		status        int
		problem, mark string
	}
	for _, c := range []struct {
		name   string
		commit bool
		then   func(http.ResponseWriter, *httpguard.Attempt)
		first  told
		state  counterfoil.State
		later  told
		body   string // of both
	}{
		{"committed, same status", true, answers(201), told{201, "", "created"}, counterfoil.Completed, told{201, "", "replayed"}, "answer"},
		{"committed, 500", true, answers(500), told{201, "", "already-processed"}, counterfoil.Completed, told{201, "", "already-processed"}, ""},
		{"committed, limiter", true, answers(429), told{201, "", "already-processed"}, counterfoil.Completed, told{201, "", "already-processed"}, ""},
		{"committed, declined", true, answers(402), told{201, "", "already-processed"}, counterfoil.Completed, told{201, "", "already-processed"}, ""},
		{"committed, another success", true, answers(200), told{201, "", "already-processed"}, counterfoil.Completed, told{201, "", "already-processed"}, ""},
		{"committed, says no effect", true, func(w http.ResponseWriter, a *httpguard.Attempt) {
			a.NoEffect("rolled back")
			answers(503)(w, a)
		}, told{201, "", "already-processed"}, counterfoil.Completed, told{201, "", "already-processed"}, ""},
		{"committed, says unknown", true, func(w http.ResponseWriter, a *httpguard.Attempt) {
			a.Unknown("the commit's answer was lost")
			answers(201)(w, a)
		}, told{201, "", "already-processed"}, counterfoil.Completed, told{201, "", "already-processed"}, ""},
		{"committed, upstream unreachable", true, func(w http.ResponseWriter, a *httpguard.Attempt) {
			a.Unreachable(io.EOF)
		}, told{201, "", "already-processed"}, counterfoil.Completed, told{201, "", "already-processed"}, ""},
		{"rolled back, same status", false, answers(201), told{201, "", "created"}, counterfoil.Completed, told{201, "", "replayed"}, "answer"},
		{"rolled back, 500", false, answers(500), told{500, "", "unknown"}, counterfoil.Unknown, told{503, "outcome-unknown", "unknown"}, ""},
		{"rolled back, limiter", false, answers(429), told{429, "", "no-effect"}, counterfoil.Failed, told{429, "", "no-effect"}, ""},
		{"rolled back, says no effect", false, func(w http.ResponseWriter, a *httpguard.Attempt) {
			a.NoEffect("rolled back")
			answers(503)(w, a)
		}, told{503, "", "no-effect"}, counterfoil.Failed, told{503, "", "no-effect"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var begin func() *transaction
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				a, _ := httpguard.FromContext(r.Context())
				tx := begin()
				defer tx.end(false)
				if err := a.CompleteIn(r.Context(), tx, paid); err != nil {
					t.Error(err)
				}
				tx.end(c.commit)
				c.then(w, a)
			})
			f, tx := inTransactions(t, setup{handler: h})
			begin = tx
			first := f.post("/pay", "k", "{}")
			first.wants(t, c.first.status, c.first.problem, c.first.mark)
			rec := f.record("pay", "k")
			if rec.State != c.state || c.commit && rec.Outcome != paid {
				t.Errorf("record %+v", rec)
			}
			if c.state == counterfoil.Completed && (first.header.Get("Location") != "/pay/1" || first.header.Get("Idempotency-Protected-Until") == "") {
				t.Errorf("header %v", first.header)
			}
			later := f.post("/pay", "k", "{}")
			later.wants(t, c.later.status, c.later.problem, c.later.mark)
			if c.body != "" && (first.body != c.body || later.body != c.body) {
				t.Errorf("bodies %q and %q", first.body, later.body)
			}
			if c.first.mark == "already-processed" && strings.Contains(first.body, "answer") {
				t.Errorf("the answer left: %q", first.body)
			}
		})
	}
}

// What the record calls the resource is not contradicted by how the answer
// spells it.
func TestCompleteInResource(t *testing.T) {
	var begin func() *transaction
	f, tx := inTransactions(t, setup{
		policy: func(p *policy.Policy) { p.Operations[0].Resource = "/pay/latest" },
		handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, _ := httpguard.FromContext(r.Context())
			tx := begin()
			out := paid
			out.Resource = "http://" + r.Host + "/pay/7"
			if err := a.CompleteIn(r.Context(), tx, out); err != nil {
				t.Error(err)
			}
			tx.end(true)
			w.WriteHeader(201)
		}),
	})
	begin = tx
	f.post("/pay", "k", "{}").wants(t, 201, "", "created")
	f.post("/pay", "k", "{}").wants(t, 201, "", "replayed")
	if rec := f.record("pay", "k"); rec.Outcome.Resource != "/pay/7" || len(rec.Evidence) != 0 {
		t.Errorf("record %+v", rec)
	}
}

// A handler that panics once it has committed leaves the outcome standing; one
// whose transaction the panic rolled back leaves it unknown.
func TestCompleteInPanic(t *testing.T) {
	for name, c := range map[string]struct {
		commit  bool
		state   counterfoil.State
		status  int
		problem string
		mark    string
	}{
		"committed":   {true, counterfoil.Completed, 201, "", "already-processed"},
		"rolled back": {false, counterfoil.Unknown, 503, "outcome-unknown", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			var begin func() *transaction
			f, tx := inTransactions(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				a, _ := httpguard.FromContext(r.Context())
				tx := begin()
				defer tx.end(false)
				if err := a.CompleteIn(r.Context(), tx, paid); err != nil {
					t.Error(err)
				}
				if c.commit {
					tx.end(true)
				}
				panic("boom")
			})})
			begin = tx
			func() {
				defer func() {
					if v := recover(); v != "boom" {
						t.Errorf("recovered %v", v)
					}
				}()
				f.post("/pay", "k", "{}")
			}()
			if rec := f.record("pay", "k"); rec.State != c.state {
				t.Errorf("record is %s", rec.State)
			}
			f.post("/pay", "k", "{}").wants(t, c.status, c.problem, c.mark)
		})
	}
}

// A handler that passes its deadline after it committed: the caller is told
// what stands, and the late answer is kept. Before it committed nobody knows.
func TestCompleteInDeadline(t *testing.T) {
	type told struct {
		status        int
		problem, mark string
	}
	for _, c := range []struct {
		name   string
		commit time.Duration // after the claim; zero: rolled back at the end
		ends   time.Duration
		status int // of the late answer
		first  told
		at     time.Duration
		later  told
	}{
		{"committed before", time.Second, 90 * time.Second, 201, told{201, "", "already-processed"}, time.Minute, told{201, "", "replayed"}},
		{"committed before, fails late", time.Second, 90 * time.Second, 500, told{201, "", "already-processed"}, time.Minute, told{201, "", "already-processed"}},
		{"commits at the deadline", 61 * time.Second, 90 * time.Second, 201, told{201, "", "already-processed"}, 61 * time.Second, told{201, "", "replayed"}},
		{"commits later", 70 * time.Second, 90 * time.Second, 201, told{504, "outcome-unknown", "unknown"}, 62 * time.Second, told{201, "", "replayed"}},
		{"commits later, fails late", 70 * time.Second, 90 * time.Second, 500, told{504, "outcome-unknown", "unknown"}, 62 * time.Second, told{201, "", "already-processed"}},
		{"rolled back", 0, 61 * time.Second, 500, told{504, "outcome-unknown", "unknown"}, 61 * time.Second, told{503, "outcome-unknown", "unknown"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var begin func() *transaction
				f, tx := inTransactions(t, setup{
					engine: func(o *counterfoil.Options) { o.StoreTimeout = 2 * time.Second },
					handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						a, _ := httpguard.FromContext(r.Context())
						start, tx := time.Now(), begin()
						if err := a.CompleteIn(context.WithoutCancel(r.Context()), tx, paid); err != nil {
							t.Error(err)
						}
						if c.commit > 0 {
							time.Sleep(c.commit)
							tx.end(true)
						}
						time.Sleep(c.ends - time.Since(start))
						tx.end(false)
						// The bubble's clock stands still while somebody waits for
						// the lock that the deadline holds.
						time.Sleep(time.Second)
						w.WriteHeader(c.status)
						_, _ = io.WriteString(w, "late")
					}),
				})
				begin = tx
				w := &stamped{ResponseRecorder: httptest.NewRecorder()}
				start := time.Now()
				f.handler.ServeHTTP(w, request("POST", "/pay", "k", "{}"))
				if took := w.at.Sub(start); took < c.at || took > c.at+50*time.Millisecond {
					t.Errorf("answered after %v, want %v", took, c.at)
				}
				a := &answer{w.Code, w.Result().Header, w.Body.String()}
				a.wants(t, c.first.status, c.first.problem, c.first.mark)
				if a.header.Get("Connection") != "close" || strings.Contains(a.body, "late") {
					t.Errorf("%v, %q", a.header, a.body)
				}
				time.Sleep(20 * time.Second)
				synctest.Wait()
				later := f.post("/pay", "k", "{}")
				later.wants(t, c.later.status, c.later.problem, c.later.mark)
				if c.later.mark == "replayed" && later.body != "late" {
					t.Errorf("replayed %q", later.body)
				}
				if n := f.engine.Settling(); n != 0 {
					t.Errorf("%d settling", n)
				}
			})
		})
	}
}

// A handler that returns before its transaction has ended has nothing to show
// for its answer: it is withheld, and kept for the retry should it commit.
func TestCompleteInLeftOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begin func() *transaction
		f, tx := inTransactions(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, _ := httpguard.FromContext(r.Context())
			tx := begin()
			if err := a.CompleteIn(r.Context(), tx, paid); err != nil {
				t.Error(err)
			}
			time.AfterFunc(5*time.Second, func() { tx.end(true) })
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "answer")
		})})
		begin = tx
		a := f.post("/pay", "k", "{}")
		a.wants(t, 503, "outcome-unknown", "unknown")
		f.post("/pay", "k", "{}").wants(t, 409, "in-progress", "in-progress")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if again := f.post("/pay", "k", "{}"); again.body != "answer" {
			t.Errorf("%d %q", again.status, again.body)
		}
		_ = f.engine.Close(t.Context())
	})
}

// An answer that leaves as it comes is not kept; the outcome stands.
func TestCompleteInPassing(t *testing.T) {
	for _, status := range []int{201, 500} {
		var begin func() *transaction
		f, tx := inTransactions(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, _ := httpguard.FromContext(r.Context())
			tx := begin()
			if err := a.CompleteIn(r.Context(), tx, paid); err != nil {
				t.Error(err)
			}
			tx.end(true)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "stream")
			w.(http.Flusher).Flush()
		})})
		begin = tx
		func() {
			// An answer that the record belies is cut off.
			defer func() {
				if v := recover(); (v == http.ErrAbortHandler) != (status == 500) {
					t.Errorf("status %d: recovered %v", status, v)
				}
			}()
			if a := f.post("/pay", "k", "{}"); a.status != 201 || a.body != "stream" {
				t.Errorf("%d %q", a.status, a.body)
			}
		}()
		f.post("/pay", "k", "{}").wants(t, 201, "", "already-processed")
	}
}

// In observe mode the record is completed the same, and the answer not touched.
func TestCompleteInObserved(t *testing.T) {
	var begin func() *transaction
	f, tx := inTransactions(t, setup{
		options: func(o *httpguard.Options) { o.Observe = true },
		engine:  func(o *counterfoil.Options) { o.Observe = true },
		handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, ok := httpguard.FromContext(r.Context())
			if !ok {
				return
			}
			tx := begin()
			if err := a.CompleteIn(r.Context(), tx, paid); err != nil {
				t.Error(err)
			}
			tx.end(true)
			w.WriteHeader(500)
		}),
	})
	begin = tx
	if a := f.post("/pay", "k", "{}"); a.status != 500 {
		t.Errorf("status %d", a.status)
	}
	if rec := f.record("pay", "k"); rec.State != counterfoil.Completed || !rec.Observed || rec.Outcome != paid {
		t.Errorf("record %+v", rec)
	}
}
