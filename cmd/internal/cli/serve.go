package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/cmd/internal/server"
	"github.com/counterfoil/counterfoil/cmd/internal/wire"
)

func (a *app) serveCommand() *cobra.Command {
	var o wire.Options
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the guard: reverse proxy, records API, workers, metrics",
		Long: `Runs the guard in front of the upstream, with the records API, the metrics and
the workers on the admin address. It logs to stderr: text on a terminal, JSON
elsewhere. SIGHUP reads the policy again, for new records only; a policy that is
refused leaves the former in force. SIGTERM and Ctrl-C let requests under way
end first.

It does not start where the configuration would forget keys that the store
holds. --forget names the operations whose keys may be forgotten.`,
		Example: `  counterfoil serve
  counterfoil serve --config /etc/counterfoil/counterfoil.yaml
  counterfoil serve --forget payment_create   # its keys may run again`,
		Args: arguments(0, 0, "no arguments"),
	}
	c.Flags().StringSliceVar(&o.Forget, "forget", nil, "let the keys of this `OPERATION` be forgotten; may be repeated")
	c.Flags().BoolVar(&o.Adopt, "adopt", false, "take over a store directory that was copied from elsewhere; it is not trusted until store trust")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		s := server.New(cfg, server.Options{
			Wire: o, Release: a.Version, Hangup: hangup,
			Logger: server.NewLogger(a.Stderr, isTerminal(a.Stderr)),
		})
		return serveError(cmd.Context(), s.Run(cmd.Context()))
	}
	return c
}

// serveError tells what kept the guard from starting (exit 2: nothing was
// started) from what went wrong later.
func serveError(ctx context.Context, err error) error {
	var broken *net.OpError
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case errors.As(err, &broken) && broken.Op == "accept":
		return err
	}
	return &usageError{err}
}
