// Command payments is a small payment API with a real ledger. It charges as
// often as it is told to: what keeps a retry from charging twice is the guard
// in front of it (counterfoil.yaml and policy.yaml in this directory).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
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
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("payments", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:9000", "address to listen on; port 0 picks a free one")
	path := flags.String("ledger", "ledger.jsonl", "file that every charge and capture is appended to")
	slow := flags.Duration("slow", 0, "how long an answer takes after its effect; per request: header "+slowHeader)
	if err := flags.Parse(args); err != nil {
		return err
	}
	book, err := openLedger(*path)
	if err != nil {
		return err
	}
	defer book.close()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: newAPI(book, *slow).handler(), ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		stopped <- srv.Shutdown(ctx)
	}()
	// The walk reads this line to learn the port.
	fmt.Printf("payments listens on http://%s\n", l.Addr())
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
