package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/config"
)

// OpenStore opens the store at an address, without engine and workers, and
// makes it if there is none. The address is as counterfoil.yaml spells it; the
// caller closes the store.
func OpenStore(ctx context.Context, address string, o Options) (counterfoil.Store, error) {
	s, err := config.ParseStore(address)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return openStore(ctx, &config.Config{Store: s, Accept: o.Accept}, o)
}

// ErrNoStore is returned by [Exists] for an address at which there is no store.
var ErrNoStore = errors.New("no store there")

// Exists returns an error that wraps ErrNoStore where opening the address would
// make a store. It answers nil for stores behind a server, which are found
// missing when they are opened.
func Exists(s config.Store) error {
	if s.Kind != config.StorePebble {
		return nil
	}
	// FORMAT is written when a store is made (docs/store-pebble.md).
	_, err := os.Stat(filepath.Join(s.Dir, "FORMAT"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is not the directory of a store", ErrNoStore, s.Dir)
	}
	return err
}
