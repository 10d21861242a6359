// Command walk starts the payment API with Counterfoil in front of it, sends
// seven requests, and shows each with its answer as a person wants to read it.
// In the middle of a charge it kills the guard.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// options are where things are.
type options struct {
	counterfoil, payments, policy string
	// once ends the walk after its last step.
	once bool
}

func main() {
	// SIGPIPE too: whoever reads the output may stop, and the programs must end.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	var o options
	flag.StringVar(&o.counterfoil, "counterfoil", "bin/counterfoil", "the guard's program")
	flag.StringVar(&o.payments, "payments", "bin/payments", "the payment API's program")
	flag.StringVar(&o.policy, "policy", "examples/payments/policy.yaml", "the policy")
	flag.Parse()
	o.once = os.Getenv("WALK_ONCE") == "1" || !isTerminal(os.Stdin)
	out := &printer{w: os.Stdout, colour: isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	err := run(ctx, o, out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "walk:", err)
	}
	if ctx.Err() == nil && err != nil {
		os.Exit(1)
	}
}

// isTerminal reports whether f is a terminal, as far as the standard library
// can tell: a character device other than the null device.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// run sets the stage, walks, and waits for the end.
func run(ctx context.Context, o options, out *printer) (err error) {
	s, err := newStage(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := s.close(); err == nil {
			err = cerr
		}
	}()
	w := &walk{stage: s, out: out}
	if err := w.steps(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, s.guard.tail())
	}
	if o.once {
		return nil
	}
	w.whatNext()
	<-ctx.Done()
	return nil
}
