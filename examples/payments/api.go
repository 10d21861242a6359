package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

// api is a small payment service that knows nothing of idempotency keys.
type api struct {
	ledger *ledger
	// slow is how long every answer takes once its effect has happened.
	slow time.Duration
	// crash ends the process; a test puts something milder here.
	crash func()
}

// Demo-Slow and Demo-Crash let one request go wrong after its effect. They are
// for walks and tests; a real service has its own ways.
const (
	slowHeader  = "Demo-Slow"
	crashHeader = "Demo-Crash"
)

func newAPI(l *ledger, slow time.Duration) *api {
	return &api{ledger: l, slow: slow, crash: func() { os.Exit(3) }}
}

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/payments", a.create)
	mux.HandleFunc("POST /v1/payments/{payment}/capture", a.capture)
	mux.HandleFunc("GET /v1/payments/{payment}", a.show)
	// What a person would look up in the back office.
	mux.HandleFunc("GET /ledger", a.book)
	return mux
}

// order is what a caller sends to have a payment made.
type order struct {
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Reference string `json:"reference"`
}

func (a *api) create(w http.ResponseWriter, r *http.Request) {
	account := r.Header.Get("X-Account-Id")
	var o order
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	if err := d.Decode(&o); err != nil {
		fail(w, http.StatusBadRequest, "the body is no order: "+err.Error())
		return
	}
	if account == "" || o.Amount <= 0 || len(o.Currency) != 3 {
		fail(w, http.StatusBadRequest, "an order needs X-Account-Id, an amount above zero and a currency of three letters")
		return
	}
	e := entry{
		Effect: "charge", Payment: "pay_" + rand.Text()[:10], Account: account,
		Amount: o.Amount, Currency: o.Currency, Note: o.Reference,
	}
	if !a.effect(w, r, e) {
		return
	}
	path := "/v1/payments/" + e.Payment
	w.Header().Set("Location", path)
	// The guard keeps this beside the key, and tells late callers where to look.
	w.Header().Set("Counterfoil-Resource", path)
	answer(w, http.StatusCreated, payment{e.Payment, "charged", e.Amount, e.Currency, e.Note})
}

func (a *api) capture(w http.ResponseWriter, r *http.Request) {
	charge, status, ok := a.lookup(r)
	switch {
	case !ok:
		fail(w, http.StatusNotFound, "there is no such payment")
		return
	case status == "captured":
		fail(w, http.StatusConflict, "the payment is captured already")
		return
	}
	e := charge
	e.Effect = "capture"
	if !a.effect(w, r, e) {
		return
	}
	answer(w, http.StatusOK, payment{e.Payment, "captured", e.Amount, e.Currency, e.Note})
}

// payment is what callers see.
type payment struct {
	Payment   string `json:"payment"`
	Status    string `json:"status"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Reference string `json:"reference,omitempty"`
}

func (a *api) show(w http.ResponseWriter, r *http.Request) {
	e, status, ok := a.lookup(r)
	if !ok {
		fail(w, http.StatusNotFound, "there is no such payment")
		return
	}
	answer(w, http.StatusOK, payment{e.Payment, status, e.Amount, e.Currency, e.Note})
}

// lookup finds the caller's own payment of the path.
func (a *api) lookup(r *http.Request) (charge entry, status string, ok bool) {
	id, account := r.PathValue("payment"), r.Header.Get("X-Account-Id")
	for _, e := range a.ledger.find(func(e entry) bool { return e.Payment == id && e.Account == account }) {
		switch e.Effect {
		case "charge":
			charge, status, ok = e, "charged", true
		case "capture":
			status = "captured"
		}
	}
	return charge, status, ok
}

// book lists the ledger's effects, of one identity where the query names it.
func (a *api) book(w http.ResponseWriter, r *http.Request) {
	identity := r.URL.Query().Get("identity")
	found := a.ledger.find(func(e entry) bool { return identity == "" || e.Identity == identity })
	book := struct {
		Charges  int     `json:"charges"`
		Captures int     `json:"captures"`
		Entries  []entry `json:"entries"`
	}{Entries: found}
	for _, e := range found {
		switch e.Effect {
		case "charge":
			book.Charges++
		case "capture":
			book.Captures++
		}
	}
	answer(w, http.StatusOK, book)
}

// effect moves the money, and then does what the request or the flags ask to
// go wrong. It reports whether an answer is still to be given.
func (a *api) effect(w http.ResponseWriter, r *http.Request, e entry) bool {
	slow, err := slowness(r, a.slow)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return false
	}
	e.Identity, e.At = r.Header.Get("Counterfoil-Identity"), time.Now().UTC()
	if err := a.ledger.post(e); err != nil {
		fail(w, http.StatusInternalServerError, "the ledger could not be written: "+err.Error())
		return false
	}
	// The caller may be gone by now; money that moved stays moved.
	if r.Header.Get(crashHeader) != "" {
		a.crash()
	}
	time.Sleep(slow)
	return true
}

func slowness(r *http.Request, otherwise time.Duration) (time.Duration, error) {
	s := r.Header.Get(slowHeader)
	if s == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > time.Minute {
		return 0, errors.New(slowHeader + " wants a duration up to 1m, such as 3s")
	}
	return d, nil
}

func answer(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, "%s\n", b)
}

func fail(w http.ResponseWriter, status int, why string) {
	answer(w, status, map[string]string{"error": why})
}
