package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil"
)

// ErrReadOnly is returned when the transaction, or the server, takes no writes:
// a claim cannot be made there. It wraps [counterfoil.ErrUnavailable].
var ErrReadOnly = fmt.Errorf("%w: the transaction is read-only", counterfoil.ErrUnavailable)

// ErrSchema is returned by Open when the tables are missing, or are of another
// version than [SchemaVersion].
var ErrSchema = errors.New("the tables are not those of this version")

// errLate answers a step whose caller's time was over before it was tried, or
// tried again.
var errLate = fmt.Errorf("%w: no answer in time: %w", counterfoil.ErrUnavailable, context.DeadlineExceeded)

var errClosed = fmt.Errorf("pgstore: %w", counterfoil.ErrClosed)
