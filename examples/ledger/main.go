// Command ledger moves money between accounts in PostgreSQL and keeps its
// idempotency records in the same database, so that the claim, the money and
// the outcome hang on one commit. Kill it at any moment: the books balance, and
// a retry with the same key gets the first one's outcome.
//
// Two routes do the same in two ways. POST /transfers (transfers.go) is an
// ordinary handler under the guard; POST /journal (journal.go) does everything
// in one transaction. Each file says when to take which.
//
//	createdb ledger
//	go run . -database postgres:///ledger
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, then lets the requests under way finish.
func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("ledger", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:9100", "where to serve HTTP")
	database := flags.String("database", "postgres:///ledger", "connection string; the first start makes the tables, and needs a connection without a pooler between")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := open(ctx, *database, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		// As long as the longest operation may take. What is cut off after that
		// is as safe as what is killed.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	}()
	log.Info("serving", "address", listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
