package httpguard_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
)

// A service guards its payments: the second request with the same key is
// answered from the record, and the charge is made once.
func Example() {
	capture := policy.NewOperation("payment_capture")
	capture.Match = []string{"POST /v1/payments/{payment}/capture"}
	capture.Scope.Principal = policy.Principal{Kind: policy.PrincipalHeader, Header: "X-Account-Id"}
	capture.Inputs.ClientRetryBudget.Value = 4 * time.Hour
	capture.Inputs.SafetyMargin.Value = 20 * time.Hour
	p := &policy.Policy{Version: 1, Operations: []policy.Operation{capture}} // from policyfile.Load in a real service

	engine, err := counterfoil.Open(context.Background(), memstore.New(memstore.Options{}), p, counterfoil.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	guard, err := httpguard.New(engine, httpguard.Options{
		// The account comes from what your authentication has verified.
		Principal: func(r *http.Request, _ *policy.Operation) (counterfoil.Principal, error) {
			return counterfoil.Principal(r.Header.Get("X-Account-Id")), nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	charges := 0
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/payments/{payment}/capture", func(w http.ResponseWriter, r *http.Request) {
		charges++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "captured %s, charge %d", r.PathValue("payment"), charges)
	})
	srv := httptest.NewServer(guard.Wrap(mux)) // http.ListenAndServe(addr, authenticate(guard.Wrap(mux)))
	defer srv.Close()

	for _, body := range []string{`{"amount": 100}`, `{"amount": 100}`, `{"amount": 999}`} {
		r, _ := http.NewRequest("POST", srv.URL+"/v1/payments/p1/capture", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Account-Id", "acct-1")
		r.Header.Set("Idempotency-Key", "k-1")
		res, err := srv.Client().Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode >= 400 {
			b = []byte("refused")
		}
		fmt.Printf("%d %s: %s\n", res.StatusCode, res.Header.Get("Idempotency-Status"), b)
	}
	// Output:
	// 201 created: captured p1, charge 1
	// 201 replayed: captured p1, charge 1
	// 422 mismatch: refused
}

// A handler that knows that nothing happened says so, whatever status it gives:
// the same key may then run again.
func ExampleAttempt_NoEffect() {
	handler := func(w http.ResponseWriter, r *http.Request) {
		if attempt, ok := httpguard.FromContext(r.Context()); ok {
			attempt.NoEffect("the limiter refused before anything was sent")
		}
		http.Error(w, "try later", http.StatusServiceUnavailable)
	}
	_ = handler
}
