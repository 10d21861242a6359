// Command quickstart is a Go service with Counterfoil as its middleware. The
// function run stands in the README; a test keeps the two equal.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/pebblestore"
	"github.com/counterfoil/counterfoil/policyfile"
	"github.com/counterfoil/counterfoil/reconcile"
	"github.com/counterfoil/counterfoil/sweep"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, listen); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// README: begin
func run(ctx context.Context, serve func(context.Context, http.Handler) error) error {
	rules, err := policyfile.Load("policy.yaml")
	if err != nil {
		return err
	}
	store, err := pebblestore.Open("data", pebblestore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	engine, err := counterfoil.Open(ctx, store, rules, counterfoil.Options{})
	if err != nil {
		return err
	}
	guard, err := httpguard.New(engine, httpguard.Options{})
	if err != nil {
		return err
	}
	go reconcile.New(engine, reconcile.Options{}).Run(ctx) // abandoned claims become unknown
	go sweep.New(engine, sweep.Options{}).Run(ctx)         // what is past its time goes
	err = serve(ctx, authenticate(guard.Wrap(payments())))
	return errors.Join(err, engine.Close(context.WithoutCancel(ctx)))
}

// README: end

// listen serves until ctx ends.
func listen(ctx context.Context, h http.Handler) error {
	server := &http.Server{Addr: "127.0.0.1:9000", Handler: h, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// authenticate stands outside the guard: it says who is calling, on retries
// too, and sets the field that the policy takes the account from. What the
// caller sent in that field is overwritten.
func authenticate(next http.Handler) http.Handler {
	accounts := map[string]string{"Bearer secret-of-acct-42": "acct_42"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account, ok := accounts[r.Header.Get("Authorization")]
		if !ok {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		r.Header.Set("X-Account-Id", account)
		next.ServeHTTP(w, r)
	})
}

// payments is the service itself: it knows nothing of keys.
func payments() http.Handler {
	mux := http.NewServeMux()
	var charges atomic.Int64
	mux.HandleFunc("POST /v1/payments", func(w http.ResponseWriter, _ *http.Request) {
		n := charges.Add(1)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charge number %d\n", n)
	})
	return mux
}
