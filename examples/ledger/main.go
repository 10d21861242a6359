// Ledger moves money between accounts in PostgreSQL, each transfer once, however
// often it is asked for and whenever the process dies.
//
// It shows the two ways in which a claim can stand beside the money: under the
// middleware with CompleteIn (guarded.go), and in one transaction with Store.Do
// (journal.go).
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/migrate"
	"github.com/counterfoil/counterfoil/policyfile"
	"github.com/counterfoil/counterfoil/reconcile"
	"github.com/counterfoil/counterfoil/sweep"
)

//go:embed policy.yaml
var policyText []byte

func main() {
	listen := flag.String("listen", "127.0.0.1:8430", "where to listen")
	database := flag.String("database", "postgres:///ledger", "URL of a PostgreSQL database; its tables are made")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *database); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

// ledger is the service.
type ledger struct {
	pool   *pgxpool.Pool
	store  *pgstore.Store
	engine *counterfoil.Engine
}

func run(ctx context.Context, listen, database string) (err error) {
	if _, err := migrate.Up(ctx, database, migrate.Options{}); err != nil {
		return err
	}
	l := &ledger{}
	if l.pool, err = pgxpool.New(ctx, database); err != nil {
		return err
	}
	defer l.pool.Close()
	if _, err := l.pool.Exec(ctx, tables); err != nil {
		return err
	}
	// AcceptLoss only lets a trial run on a server without fsync: leave it out.
	if l.store, err = pgstore.Open(ctx, database, pgstore.Options{AcceptLoss: os.Getenv("LEDGER_TRIAL") != ""}); err != nil {
		return err
	}
	defer l.store.Close()
	p, err := policyfile.Parse("policy.yaml", policyText)
	if err != nil {
		return err
	}
	if l.engine, err = counterfoil.Open(ctx, l.store, p, counterfoil.Options{}); err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, l.engine.Close(end))
	}()
	guard, err := httpguard.New(l.engine, httpguard.Options{})
	if err != nil {
		return err
	}
	go sweep.New(l.engine, sweep.Options{Grace: time.Minute}).Run(ctx)
	go reconcile.New(l.engine, reconcile.Options{}).Run(ctx)

	mux := http.NewServeMux()
	mux.HandleFunc("POST /transfers", l.guarded)
	mux.HandleFunc("GET /books", l.books)
	outer := http.NewServeMux()
	outer.HandleFunc("POST /journal", l.journal) // claims by itself
	outer.Handle("/", guard.Wrap(mux))
	srv := &http.Server{Addr: listen, Handler: outer, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = srv.Shutdown(end)
	}()
	fmt.Println("listening on", listen)
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// tables are the service's own: accounts, and one entry for each side of a
// transfer. Nothing here keeps a transfer from happening twice but its claim.
const tables = `
CREATE TABLE IF NOT EXISTS account (name text PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0));
CREATE TABLE IF NOT EXISTS entry (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text NOT NULL, account text NOT NULL REFERENCES account, amount bigint NOT NULL);
INSERT INTO account VALUES ('alice', 1000000), ('bob', 1000000) ON CONFLICT DO NOTHING`

// transfer is a request's body.
type transfer struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Amount int64  `json:"amount"`
	Note   string `json:"note"`
}

// move writes a transfer. step is where a test may end the process.
func move(ctx context.Context, tx pgx.Tx, t transfer) error {
	for _, side := range []struct {
		account string
		amount  int64
	}{{t.From, -t.Amount}, {t.To, t.Amount}} {
		step()
		tag, err := tx.Exec(ctx, "UPDATE account SET balance = balance + $2 WHERE name = $1", side.account, side.amount)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("there is no account %q", side.account)
		}
		step()
		if _, err := tx.Exec(ctx, "INSERT INTO entry (note, account, amount) VALUES ($1, $2, $3)", t.Note, side.account, side.amount); err != nil {
			return err
		}
	}
	step()
	return nil
}

// books says whether every balance is what the entries make it.
func (l *ledger) books(w http.ResponseWriter, r *http.Request) {
	var out struct {
		Entries  int64 `json:"entries"`
		Total    int64 `json:"total"`
		Balanced bool  `json:"balanced"`
	}
	err := l.pool.QueryRow(r.Context(), `SELECT (SELECT count(*) FROM entry), (SELECT sum(balance)::bigint FROM account),
		(SELECT bool_and(a.balance = 1000000 + (SELECT coalesce(sum(e.amount), 0) FROM entry e WHERE e.account = a.name)) FROM account a)`).
		Scan(&out.Entries, &out.Total, &out.Balanced)
	if err != nil {
		http.Error(w, "the books cannot be read", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}
