// Command chi guards a chi router: the guard is plain middleware.
//
//	go run .
//	curl -si localhost:8080/payments -H 'X-Account-Id: acct-1' -H 'Idempotency-Key: k-1' -d 'amount=100'   # twice
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

func main() {
	h, err := service(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "localhost:8080", Handler: h, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// service is the whole of it: a policy, an engine over a store, the guard.
func service(ctx context.Context) (http.Handler, error) {
	pay := policy.NewOperation("payment")
	pay.Match = []string{"POST /payments"}
	pay.Scope.Principal = policy.Principal{Kind: policy.PrincipalHeader, Header: "X-Account-Id"}
	pay.Inputs.ClientRetryBudget.Value = 4 * time.Hour
	pay.Inputs.SafetyMargin.Value = 20 * time.Hour
	p := &policy.Policy{Version: 1, Operations: []policy.Operation{pay}} // a real service reads policy.yaml

	// A real service opens a durable store; memory forgets everything.
	engine, err := counterfoil.Open(ctx, memstore.New(memstore.Options{}), p, counterfoil.Options{})
	if err != nil {
		return nil, err
	}
	guard, err := httpguard.New(engine, httpguard.Options{})
	if err != nil {
		return nil, err
	}

	var charges atomic.Int64
	r := chi.NewRouter()
	r.Use(middleware.RequestID)
	r.Use(middleware.Compress(5)) // outside, so that the kept answer is plain whatever a retry accepts
	// Authentication goes here, before the guard: a replay must be authorised too.
	r.Use(guard.Wrap)
	r.Post("/payments", func(w http.ResponseWriter, _ *http.Request) {
		n := charges.Add(1)
		w.Header().Set("Location", fmt.Sprintf("/payments/%d", n))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charge %d", n)
	})
	return r, nil
}
