package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	account  = "acct_42"
	order    = `{"amount":1999,"currency":"EUR","reference":"order-7"}`
	payments = "/v1/payments"
)

// walk is the seven steps.
type walk struct {
	*stage
	out *printer

	first  *answer // of step 1
	killed request // of step 5
	record string  // its record
}

func (w *walk) steps(ctx context.Context) error {
	w.out.line(w.out.paint(bold, "A payment API on "+w.bank+", and Counterfoil in front of it on "+w.url))
	steps := []struct {
		title   string
		run     func(context.Context) error
		charges int // what the ledger must hold afterwards
	}{
		{"A first request runs once.", w.create, 1},
		{"A retry gets the same answer again, and nothing runs.", w.retry, 1},
		{"The same key with another body is refused.", w.otherBody, 1},
		{"Two at once: one runs, the other waits for its answer.", w.twoAtOnce, 2},
		{"The guard is killed in the middle of a charge.", w.killGuard, 3},
		{"A person looks it up, and settles it with one command.", w.settle, 3},
		{"The retry now gets the settled answer.", w.settled, 3},
	}
	for i, s := range steps {
		w.out.step(i+1, s.title)
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		b, err := w.ledger("")
		if err != nil {
			return fmt.Errorf("step %d: ledger: %w", i+1, err)
		}
		w.out.ledger(b.Charges)
		if b.Charges != s.charges {
			return fmt.Errorf("step %d: the ledger holds %d charges, and %d were expected", i+1, b.Charges, s.charges)
		}
	}
	return nil
}

// exchange sends a request and shows it with its answer.
func (w *walk) exchange(ctx context.Context, r request) (*answer, error) {
	w.out.request("", r)
	a, err := w.send(ctx, r)
	if err != nil {
		return nil, err
	}
	w.out.response("", a)
	return a, nil
}

func (w *walk) create(ctx context.Context) (err error) {
	w.first, err = w.exchange(ctx, request{method: "POST", path: payments, account: account, key: "order-7", body: order})
	if err != nil {
		return err
	}
	return w.first.want(http.StatusCreated, "created")
}

func (w *walk) retry(ctx context.Context) error {
	a, err := w.exchange(ctx, request{method: "POST", path: payments, account: account, key: "order-7", body: order})
	if err != nil {
		return err
	}
	if err := errors.Join(a.want(http.StatusCreated, "replayed"), a.replayed(w.first)); err != nil {
		return err
	}
	w.out.line()
	w.out.say("Compared with the first answer: status, fields and all %d bytes of the body are the same.", len(a.body))
	return nil
}

func (w *walk) otherBody(ctx context.Context) error {
	a, err := w.exchange(ctx, request{
		method: "POST", path: payments, account: account, key: "order-7",
		body: `{"amount":9999,"currency":"EUR","reference":"order-7"}`,
	})
	if err != nil {
		return err
	}
	return a.want(http.StatusUnprocessableEntity, "mismatch")
}

func (w *walk) twoAtOnce(ctx context.Context) error {
	r := request{
		method: "POST", path: payments, account: account, key: "order-8",
		body: `{"amount":500,"currency":"EUR","reference":"order-8"}`, slow: 500 * time.Millisecond,
	}
	var answers [2]*answer
	var errs [2]error
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i], errs[i] = w.send(ctx, r) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	one, other := answers[0], answers[1]
	if one.header.Get("Idempotency-Status") != "created" {
		one, other = other, one
	}
	for i, a := range []*answer{one, other} {
		w.out.request(string(rune('A'+i))+": ", r)
		w.out.response(string(rune('A'+i))+": ", a)
	}
	return errors.Join(one.want(http.StatusCreated, "created"), other.want(http.StatusCreated, "replayed"), other.replayed(one))
}

func (w *walk) killGuard(ctx context.Context) error {
	w.killed = request{
		method: "POST", path: payments, account: account, key: "order-9",
		body: `{"amount":4200,"currency":"EUR","reference":"order-9"}`, slow: 3 * time.Second,
	}
	before, err := w.ledger("")
	if err != nil {
		return err
	}
	w.out.request("", w.killed)
	broken := make(chan error, 1)
	go func() {
		_, err := w.send(ctx, w.killed)
		broken <- err
	}()
	err = until(ctx, "the charge", 10*time.Second, w.guard, func() (bool, error) {
		now, err := w.ledger("")
		return now.Charges > before.Charges, err
	})
	if err != nil {
		return err
	}
	w.out.say("The card is charged, and the answer is still on its way.")
	if err := w.guard.kill(); err != nil {
		return err
	}
	w.out.line("  ", w.out.paint(red, "kill -9: the guard is gone."))
	if <-broken == nil {
		return errors.New("the request was answered although the guard was killed")
	}
	w.out.say("The caller gets no answer: the connection broke. Was it charged? It cannot know.")
	if err := w.startGuard(ctx); err != nil {
		return err
	}
	w.out.say("The guard is back, and the caller retries until it hears something else than “in progress”.")

	again := w.killed
	again.slow = 0
	var a *answer
	tries := 0
	err = until(ctx, "the claim of the killed guard to lapse", 15*time.Second, w.guard, func() (bool, error) {
		tries++
		if a, err = w.send(ctx, again); err != nil {
			return false, err
		}
		return a.status != http.StatusConflict, nil
	})
	if err != nil {
		return err
	}
	w.out.request(fmt.Sprintf("try %d: ", tries+1), again)
	w.out.response("", a)
	w.record = a.header.Get("Idempotency-Record")
	w.out.line()
	w.out.say("Neither charged a second time nor forgotten: the guard says that it does not know.")
	return a.want(http.StatusServiceUnavailable, "unknown")
}

// counterfoil runs a command, shows it, and holds it against what it must end
// with and say.
func (w *walk) counterfoil(ctx context.Context, code int, says string, args ...string) error {
	output, got, err := w.command(ctx, args...)
	if err != nil {
		return err
	}
	w.out.command(args, output, got)
	if got != code || !strings.Contains(output, says) {
		return fmt.Errorf("counterfoil %s ended with exit code %d, and %d with %q was expected", strings.Join(args, " "), got, code, says)
	}
	return nil
}

func (w *walk) settle(ctx context.Context) error {
	if err := w.counterfoil(ctx, 0, "quiet at", "record", "show", w.record); err != nil {
		return err
	}
	w.out.line()
	w.out.say("Saying that nothing happened would let the key run again. That is refused while")
	w.out.say("something sent may still arrive: until deadline + settle have passed.")
	if err := w.counterfoil(ctx, 1, "too early", "record", "resolve", w.record, "--absent", "--reason", "I see no charge"); err != nil {
		return err
	}
	b, err := w.ledger(w.record)
	if err != nil {
		return err
	}
	if len(b.Entries) != 1 {
		return fmt.Errorf("the ledger has %d entries for record %s, and 1 was expected", len(b.Entries), w.record)
	}
	paid := payments + "/" + b.Entries[0].Payment
	w.out.line()
	w.out.say("The record's id went up with the request, and the ledger kept it. Looked up there:")
	w.out.say("one %s, %s. So it did happen, and a person may say so at any time.", b.Entries[0].Effect, b.Entries[0].Payment)
	return w.counterfoil(ctx, 0, "found in the ledger", "record", "resolve", w.record, "--applied", "--status", "201",
		"--resource", paid, "--reason", "found in the ledger")
}

func (w *walk) settled(ctx context.Context) error {
	again := w.killed
	again.slow = 0
	a, err := w.exchange(ctx, again)
	if err != nil {
		return err
	}
	return a.want(http.StatusCreated, "already-processed")
}

// whatNext leaves everything running and says what to try.
func (w *walk) whatNext() {
	c := w.options.counterfoil + " --config " + w.config()
	pay := `curl -i ` + w.url + payments + ` -H 'Content-Type: application/json' -H 'X-Account-Id: acct_42' -d '` + order + `'`
	w.out.line()
	w.out.line(w.out.paint(bold, "Both keep running until Ctrl-C. In another terminal, try:"))
	for _, l := range []string{
		pay + ` -H "Idempotency-Key: $(` + w.options.counterfoil + ` key new)"`,
		pay + ` -H 'Idempotency-Key: order-7'`,
		c + " record list",
		c + " record show " + w.record,
		c + " policy explain payment_create",
		"curl -s " + w.url + "/.well-known/idempotency",
		"curl -s " + w.admin + "/metrics | grep -E '^idempotency_(requests|unknown)'",
	} {
		w.out.line("  ", l)
	}
}
