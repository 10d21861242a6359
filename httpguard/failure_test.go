package httpguard_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/policy"
)

// P8 and C40: the store down before the claim.
func TestP8StoreDownBeforeTheClaim(t *testing.T) {
	f := newFixture(t, setup{})
	f.store.set(func(s *faults) { s.create = func() error { return errDown } })
	a := f.post("/pay", "c40", "{}")
	a.wants(t, 503, "store-unavailable", "")
	if a.header.Get("Retry-After") == "" || a.header.Get("Idempotency-Record") == "" || f.pay.count() != 0 {
		t.Errorf("%v, %d effects", a.header, f.pay.count())
	}
	if got := f.kinds(); got != "store_error" {
		t.Errorf("counted as %q", got)
	}
	f.store.set(func(s *faults) { s.create = nil })
	f.post("/pay", "c40", "{}").wants(t, 201, "", "created")
}

// P8 and C40: the store hangs, and the bound is the store's, not the caller's.
func TestP8StoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{})
		hang := make(chan struct{})
		f.store.set(func(s *faults) {
			s.create = func() error {
				select {
				case <-hang:
				case <-time.After(time.Second): // the context that memstore would see
				}
				return context.DeadlineExceeded
			}
		})
		start := time.Now()
		f.post("/pay", "k", "{}").wants(t, 503, "store-unavailable", "")
		if took := time.Since(start); took > 2*time.Second || f.pay.count() != 0 {
			t.Errorf("took %v, %d effects", took, f.pay.count())
		}
		close(hang)
		f.store.set(func(s *faults) { s.create = nil })
		_ = f.engine.Close(t.Context())
	})
}

// P3, P8: the store goes between claim and completion. The answer is withheld,
// and replayed once the outcome is settled after all.
func TestP3CompletionUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{})
		f.store.set(func(s *faults) { s.before = func(*counterfoil.Write) error { return errDown } })
		a := f.post("/pay", "k", "{}")
		a.wants(t, 503, "outcome-unknown", "unknown")
		if strings.Contains(a.body, `"n"`) || a.header.Get("Location") != "" || a.header.Get("Retry-After") == "" {
			t.Errorf("the answer is not withheld: %v %s", a.header, a.body)
		}
		if f.pay.count() != 1 {
			t.Errorf("%d effects", f.pay.count())
		}
		f.post("/pay", "k", "{}").wants(t, 409, "in-progress", "in-progress")
		f.store.set(func(s *faults) { s.before = nil })
		time.Sleep(5 * time.Second) // of the bubble
		synctest.Wait()
		a = f.post("/pay", "k", "{}")
		a.wants(t, 201, "", "replayed")
		if a.body != `{"n":1}` || f.pay.count() != 1 {
			t.Errorf("%s, %d effects", a.body, f.pay.count())
		}
		_ = f.engine.Close(t.Context())
	})
}

// The answer of the completion is lost: the guard finds its own write.
func TestP3CompletionAnswerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{})
		f.store.set(func(s *faults) { s.after = func(*counterfoil.Write) error { return errDown } })
		f.post("/pay", "k", "{}").wants(t, 503, "outcome-unknown", "unknown")
		f.store.set(func(s *faults) { s.after = nil })
		f.post("/pay", "k", "{}").wants(t, 201, "", "replayed")
		_ = f.engine.Close(t.Context())
	})
}

func TestResponseCannotBeRead(t *testing.T) {
	f := newFixture(t, setup{})
	f.post("/pay", "k", "{}")
	f.store.set(func(s *faults) { s.response = func() error { return errDown } })
	f.post("/pay", "k", "{}").wants(t, 503, "store-unavailable", "")
}

// The record was settled by somebody else while the handler ran: their outcome
// stands, and ours is withheld (P12).
func TestP12StandingOutcomeIsAnswered(t *testing.T) {
	h := newGate(answering(201, "Location", "/pay/1"))
	f := newFixture(t, setup{handler: h})
	first := make(chan *answer)
	go func() { first <- f.post("/pay", "k", "{}") }()
	<-h.entered
	rec := f.record("pay", "k")
	next := rec.Clone()
	next.State, next.Outcome = counterfoil.Completed, counterfoil.Outcome{Class: counterfoil.Declined, Status: 402}
	if _, err := f.store.Update(t.Context(), &counterfoil.Write{
		Record: next, IfRev: rec.Rev, IfToken: rec.Token,
		Stamps: counterfoil.Stamps{SettledAt: counterfoil.In(0), Horizon: counterfoil.In(time.Hour)},
	}); err != nil {
		t.Fatal(err)
	}
	close(h.open)
	a := <-first
	a.wants(t, 402, "already-processed", "already-processed")
	if a.header.Get("Location") != "" || f.record("pay", "k").Outcome.Status != 402 {
		t.Errorf("%s", a.body)
	}
}

func TestB12Panic(t *testing.T) {
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic("boom")
	})})
	func() {
		defer func() {
			if v := recover(); v != "boom" {
				t.Errorf("recovered %v", v)
			}
		}()
		f.post("/pay", "k", "{}")
	}()
	rec := f.record("pay", "k")
	if rec.State != counterfoil.Unknown || rec.Evidence[0].Kind != counterfoil.EvidencePanic {
		t.Errorf("record is %v, %+v", rec.State, rec.Evidence)
	}
	f.post("/pay", "k", "{}").wants(t, 503, "outcome-unknown", "unknown")
	if got := f.kinds(); got != "unknown unknown" {
		t.Errorf("counted as %q", got)
	}
}

// sleeper waits until its deadline, and then as long as it likes.
func sleeper(past time.Duration, then http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		time.Sleep(past)
		then(w, r)
	})
}

func TestDeadline(t *testing.T) {
	for _, c := range []struct {
		name  string
		past  time.Duration
		then  http.HandlerFunc
		later string // what a retry is told once the handler returned
		state counterfoil.State
	}{
		{"says nothing", time.Second, func(http.ResponseWriter, *http.Request) {}, "unknown", counterfoil.Unknown},
		{"succeeds late", time.Second, with(nil, 201, "late"), "replayed", counterfoil.Completed},
		{"fails late", time.Second, with(nil, 500, "late"), "unknown", counterfoil.Unknown},
		{"declines late", time.Second, with(nil, 400, "late"), "unknown", counterfoil.Unknown},
		{"time is up", 0, with(nil, 503, "late"), "unknown", counterfoil.Unknown},
		{"says none late", time.Second, with(header("Counterfoil-Outcome", "none"), 503), "no-effect", counterfoil.Failed},
		{"says no effect late", time.Second, func(w http.ResponseWriter, r *http.Request) {
			a, _ := httpguard.FromContext(r.Context())
			a.NoEffect("it was rolled back")
		}, "no-effect", counterfoil.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, setup{handler: sleeper(c.past, func(w http.ResponseWriter, r *http.Request) {
					if r.Context().Err() != context.DeadlineExceeded {
						t.Errorf("context: %v", r.Context().Err())
					}
					c.then(w, r)
					if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
						t.Error("the connection can still be had")
					}
				})})
				w := &stamped{ResponseRecorder: httptest.NewRecorder()}
				start := time.Now()
				f.handler.ServeHTTP(w, request("POST", "/pay", "k", "{}"))
				if w.at.Sub(start) != time.Minute {
					t.Errorf("answered after %v", w.at.Sub(start))
				}
				a := &answer{w.Code, w.Result().Header, w.Body.String()}
				a.wants(t, 504, "outcome-unknown", "unknown")
				if a.header.Get("Link") == "" || a.header.Get("Connection") != "close" {
					t.Errorf("header %v", a.header)
				}
				rec := f.record("pay", "k")
				if rec.State != c.state {
					t.Errorf("record is %v, want %v", rec.State, c.state)
				}
				if got := f.kinds(); got != "unknown" {
					t.Errorf("counted as %q", got)
				}
			})
		})
	}
}

// While the handler is still running past its deadline, a retry is told that
// nobody knows.
func TestDeadlineRetryMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{handler: sleeper(time.Minute, with(nil, 201, "late"))})
		first := make(chan *answer)
		go func() { first <- f.post("/pay", "k", "{}") }()
		time.Sleep(61 * time.Second)
		f.post("/pay", "k", "{}").wants(t, 503, "outcome-unknown", "unknown")
		(<-first).wants(t, 504, "outcome-unknown", "unknown")
		a := f.post("/pay", "k", "{}")
		a.wants(t, 201, "", "replayed")
		if a.body != "late" {
			t.Errorf("body %q", a.body)
		}
	})
}

// stamped notes when the status was written.
type stamped struct {
	*httptest.ResponseRecorder
	at time.Time
}

func (s *stamped) WriteHeader(status int) {
	s.at = time.Now()
	s.ResponseRecorder.WriteHeader(status)
}

// C27: the lease is renewed while the handler runs.
func TestC27LeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{
			policy: func(p *policy.Policy) { p.Operations[0].Lease = 2 * time.Second },
			handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(6500 * time.Millisecond)
				w.WriteHeader(201)
			}),
		})
		first := make(chan *answer)
		go func() { first <- f.post("/pay", "c27", "{}") }()
		for range 3 {
			time.Sleep(2 * time.Second)
			f.post("/pay", "c27", "{}").wants(t, 409, "in-progress", "in-progress")
		}
		(<-first).wants(t, 201, "", "created")
		f.post("/pay", "c27", "{}").wants(t, 201, "", "replayed")
	})
}

func TestStoreNotTrusted(t *testing.T) {
	f := newFixture(t, setup{})
	if err := counterfoil.Distrust(t.Context(), f.store, "test"); err != nil {
		t.Fatal(err)
	}
	if err := f.engine.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.post("/pay", "k", "{}").wants(t, 503, "store-unavailable", "")
	f.send("GET", "/.well-known/idempotency/pay", "k", "").wants(t, 503, "store-unavailable", "")
}

// P15: the log carries record ids only.
func TestP15Logs(t *testing.T) {
	var log bytes.Buffer
	const secret = "canary-55ab"
	f := newFixture(t, setup{
		handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, _ := httpguard.FromContext(r.Context())
			a.Broken(errors.New("connection reset"))
		}),
		options: func(o *httpguard.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) },
	})
	f.post("/pay", secret+"k", secret, "X-Account", "", "X-Account", secret)
	f.store.set(func(s *faults) { s.create = func() error { return errDown } })
	f.post("/pay", secret+"k2", secret, "X-Account", "", "X-Account", secret)
	if strings.Contains(log.String(), secret) {
		t.Errorf("the log has it: %s", &log)
	}
	if !strings.Contains(log.String(), "record=") || !strings.Contains(log.String(), "connection reset") {
		t.Errorf("log: %s", &log)
	}
}

// The deadline's goroutine and the handler's meet on one answer.
func TestDeadlineWhileWriting(t *testing.T) {
	f := newFixture(t, setup{
		policy: func(p *policy.Policy) {
			p.Operations[0].Deadline, p.Operations[0].Lease = 20*time.Millisecond, 10*time.Millisecond
		},
		handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				w.Header().Set("X-A", "1")
				_, _ = w.Write([]byte("x"))
			}
			w.Header().Set("X-B", "1")
			_, _ = w.Write([]byte("y"))
		}),
	})
	// Whether it wrote more than is held, or was stopped before, is chance.
	a := f.post("/pay", "k", "{}")
	if a.status != 504 && a.status != 200 {
		t.Errorf("status %d", a.status)
	}
	if rec := f.record("pay", "k"); rec.State != counterfoil.Completed {
		t.Errorf("record is %v", rec.State)
	}
}
