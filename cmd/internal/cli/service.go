package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/admin"
	"github.com/counterfoil/counterfoil/cmd/internal/config"
	"github.com/counterfoil/counterfoil/cmd/internal/wire"
	"github.com/counterfoil/counterfoil/httpguard"
)

// service is what a command asks: a running serve, or the store itself.
type service struct {
	admin.Service
	// direct: the store was opened by this command, and is closed after it.
	direct bool
	// actor is who is kept in evidence where the store was opened directly; a
	// running serve takes the name of the token instead.
	actor string
	// tokens is why no token could be read, if so.
	tokens error
	close  func() error
}

// withService runs do against whoever has the store open: the admin listener
// is asked first, and the store opened only if nobody answers there, since a
// store has one process.
func (a *app) withService(ctx context.Context, do func(*service) error) error {
	c, err := a.loadConfig()
	if err != nil {
		return err
	}
	s, err := a.open(ctx, c)
	if err != nil {
		return err
	}
	err = s.explainUnauthorized(do(s))
	if cerr := s.close(); err == nil {
		err = cerr
	}
	return err
}

func (a *app) openService(ctx context.Context, c *config.Config) (*service, error) {
	// A token may be needed, and is not always readable; the server says so.
	tokens, terr := admin.ReadTokens(c.AdminTokensFile)
	_, token := tokens.First()
	client := admin.NewClient(c.Admin, token)
	switch err := client.Ping(ctx); {
	case err == nil:
		return &service{Service: client, tokens: terr, close: func() error { return nil }}, nil
	case !errors.Is(err, admin.ErrNobody):
		return nil, fmt.Errorf("admin listener %s: %w", c.Admin, err)
	}
	if c.Store.Kind == config.StoreMemory {
		return nil, &hintedError{
			fmt.Errorf("nobody answers on %s (admin:), and a memory store lives only inside a running serve", c.Admin),
			"Start counterfoil serve, or write store: pebble:./data.",
		}
	}
	return a.openDirect(ctx, c)
}

// explainUnauthorized says why no token was sent, where that is the reason.
func (s *service) explainUnauthorized(err error) error {
	switch {
	case !errors.Is(err, admin.ErrUnauthorized) || s.tokens == nil:
		return err
	case errors.Is(s.tokens, fs.ErrNotExist):
		return &hintedError{err, "There is no such file here (" + s.tokens.Error() + "); run this where serve runs, or write admin_tokens_file."}
	}
	return &hintedError{err, "None was sent: " + s.tokens.Error() + "."}
}

// openDirect opens the store itself, for as long as the command runs.
func (a *app) openDirect(ctx context.Context, c *config.Config) (*service, error) {
	if c.Store.Kind == config.StorePebble {
		// Opening would make one, and a command that only looks must not.
		if _, err := os.Stat(c.Store.Dir); errors.Is(err, fs.ErrNotExist) {
			return nil, &hintedError{
				fmt.Errorf("nobody answers on %s (admin:), and there is no store at %s", c.Admin, c.Store.Dir),
				"counterfoil serve makes it; or write the store: of the serve that is meant.",
			}
		}
	}
	quiet := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	core, err := wire.Open(ctx, c, wire.Options{Logger: quiet})
	if err != nil {
		return nil, err
	}
	return &service{Service: core.Service, direct: true, actor: operatorName(), close: func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return core.Close(ctx)
	}}, nil
}

// closeTimeout bounds what a command waits for at its end.
const closeTimeout = 10 * time.Second

// recordID works out where the record of a key stands, from the files that
// serve reads too.
func (a *app) recordID(operation string, principal counterfoil.Principal, value string) (counterfoil.ID, error) {
	key, err := httpguard.ParseKey(value)
	if err != nil {
		return counterfoil.ID{}, usagef("--key: %w", err)
	}
	c, err := a.loadConfig()
	if err != nil {
		return counterfoil.ID{}, err
	}
	p, err := loadPolicy(c.Policy)
	if err != nil {
		return counterfoil.ID{}, err
	}
	op := p.Operation(operation)
	if op == nil {
		return counterfoil.ID{}, usagef("%s has no operation %q; it has %s", c.Policy, operation, operationNames(p))
	}
	index, err := wire.IndexKey(c)
	if err != nil {
		return counterfoil.ID{}, unreadable(err)
	}
	return index.ID(principal, op.Family(), key), nil
}

// operatorName is the person at this machine.
func operatorName() string {
	u, err := user.Current()
	if err != nil || u.Username == "" {
		return "unknown"
	}
	return u.Username
}
