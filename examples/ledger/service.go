package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/migrate"
	"github.com/counterfoil/counterfoil/policyfile"
	"github.com/counterfoil/counterfoil/reconcile"
	"github.com/counterfoil/counterfoil/sweep"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed policy.yaml
var rules []byte

// service is the ledger. It is safe for concurrent use.
type service struct {
	log    *slog.Logger
	pool   *pgxpool.Pool    // the ledger's own connections
	db     pgstore.Beginner // begins transactions on pool
	store  *pgstore.Store   // the records, in the same database, on connections of its own
	engine *counterfoil.Engine
	guard  *httpguard.Guard

	stop       context.CancelFunc
	background sync.WaitGroup
}

// open makes the tables that are not there yet, the ledger's and Counterfoil's,
// and starts what runs beside the requests.
func open(ctx context.Context, database string, log *slog.Logger) (_ *service, err error) {
	s := &service{log: log, stop: func() {}}
	defer func() {
		if err != nil {
			_ = s.close()
		}
	}()
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, err
	}
	// Nothing is prepared, so that PgBouncer may stand between.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	s.db = stepping(s.pool)
	if _, err := s.pool.Exec(ctx, tables); err != nil {
		return nil, fmt.Errorf("make the ledger's tables: %w", err)
	}

	if _, err := migrate.Up(ctx, database, migrate.Options{}); err != nil {
		return nil, err
	}
	if s.store, err = pgstore.Open(ctx, database, pgstore.Options{Logger: log}); err != nil {
		return nil, err
	}
	policy, err := policyfile.Parse("policy.yaml", rules)
	if err != nil {
		return nil, err
	}
	if s.engine, err = counterfoil.Open(ctx, s.store, policy, counterfoil.Options{}); err != nil {
		return nil, err
	}
	if s.guard, err = httpguard.New(s.engine, httpguard.Options{Logger: log}); err != nil {
		return nil, err
	}

	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.background.Go(func() { reconcile.New(s.engine, reconcile.Options{}).Run(background) }) // abandoned claims
	s.background.Go(func() { sweep.New(s.engine, sweep.Options{}).Run(background) })         // what is past its time
	return s, nil
}

// close ends what runs, then the connections it runs on.
func (s *service) close() (err error) {
	s.stop()
	s.background.Wait()
	if s.engine != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = s.engine.Close(ctx)
	}
	if s.store != nil {
		err = errors.Join(err, s.store.Close())
	}
	if s.pool != nil {
		s.pool.Close()
	}
	return err
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /transfers", s.guard.Wrap(http.HandlerFunc(s.transfer)))
	mux.HandleFunc("POST /journal", s.journal) // no guard: it claims by itself
	mux.HandleFunc("GET /transfers/{transfer}", s.showTransfer)
	mux.HandleFunc("GET /accounts/{name}", s.showAccount)
	mux.HandleFunc("GET /books", s.showBooks)
	// What callers may know of the policy, and what became of a key.
	mux.Handle("GET /.well-known/idempotency/", s.guard.Wrap(http.NotFoundHandler()))
	mux.Handle("GET /.well-known/idempotency", s.guard.Wrap(http.NotFoundHandler()))
	return authenticate(mux)
}

// accountHeader holds the account that pays. The policy takes the principal from it.
const accountHeader = "X-Account-Id"

// authenticate says who is calling, on retries too, and overwrites what the
// caller sent in the field. It believes any name: put your own in its place.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del(accountHeader)
		if name, _, ok := r.BasicAuth(); ok {
			r.Header.Set(accountHeader, name)
		}
		step("request arrived")
		next.ServeHTTP(w, r)
		step("answer ready") // recorded, and not yet sent
	})
}

func (s *service) showTransfer(w http.ResponseWriter, r *http.Request) {
	t, err := findTransfer(r.Context(), s.pool, r.PathValue("transfer"), r.Header.Get(accountHeader))
	s.show(w, t, err)
}

func (s *service) showAccount(w http.ResponseWriter, r *http.Request) {
	a, err := findAccount(r.Context(), s.pool, r.PathValue("name"))
	s.show(w, a, err)
}

func (s *service) showBooks(w http.ResponseWriter, r *http.Request) {
	b, err := readBooks(r.Context(), s.pool)
	s.show(w, b, err)
}

// show answers a read.
func (s *service) show(w http.ResponseWriter, body any, err error) {
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		fault(http.StatusNotFound, "there is no such thing").write(w)
	case err != nil:
		s.log.Error("a read failed", "error", err)
		fault(http.StatusServiceUnavailable, "the database could not be read").write(w)
	default:
		answer(http.StatusOK, "", body).write(w)
	}
}

// result is an answer that can be sent, and kept to be sent again.
type result struct {
	status   int
	resource string // where it can be looked up
	body     []byte
}

func answer(status int, resource string, body any) *result {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // plain structs only
	}
	return &result{status, resource, append(b, '\n')}
}

func fault(status int, why string) *result {
	return answer(status, "", map[string]string{"error": why})
}

// outcome is what the record keeps of the answer, for longer than the answer.
func (a *result) outcome() counterfoil.Outcome {
	out := counterfoil.Outcome{Class: counterfoil.Succeeded, Status: a.status, Resource: a.resource}
	if a.status >= 400 {
		out.Class = counterfoil.Declined
	}
	return out
}

func (a *result) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if a.resource != "" {
		w.Header().Set("Location", a.resource)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a caller that went away asks again
}
