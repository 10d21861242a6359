package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil"
)

// lastFormat is the version of what is kept under [counterfoil.MetaSweep].
//
// History: 1, the first.
const lastFormat = 1

// Last is what the store remembers of its sweeps, by whichever process.
type Last struct {
	// Run is the store's time at the end of the last pass that was completed;
	// zero when none ever was.
	Run time.Time `json:"last_run,omitzero"`
	// Deleted is how many records that pass deleted.
	Deleted int `json:"deleted"`
	// Failures are the passes that failed since.
	Failures int `json:"failures"`
}

type lastNote struct {
	Format int `json:"format"`
	Last
}

// LastRun returns what is known of the last sweep; the zero value when there
// never was one. ErrUnreadable when the note is of another format.
func LastRun(ctx context.Context, s counterfoil.Store) (Last, error) {
	last, _, err := readLast(ctx, s)
	return last, err
}

func readLast(ctx context.Context, s counterfoil.Store) (Last, uint64, error) {
	m, err := s.Meta(ctx, counterfoil.MetaSweep)
	if errors.Is(err, counterfoil.ErrNotFound) {
		return Last{}, 0, nil
	}
	if err != nil {
		return Last{}, 0, fmt.Errorf("last sweep: %w", err)
	}
	var n lastNote
	if err := json.Unmarshal(m.Value, &n); err != nil {
		return Last{}, m.Rev, fmt.Errorf("last sweep: %w: %w", counterfoil.ErrUnreadable, err)
	}
	if n.Format != lastFormat {
		return Last{}, m.Rev, fmt.Errorf("last sweep: %w: format %d; this version knows %d", counterfoil.ErrUnreadable, n.Format, lastFormat)
	}
	return n.Last, m.Rev, nil
}

func (w *Worker) noteSuccess(ctx context.Context, rep *Report) error {
	return w.note(ctx, func(l *Last) {
		// Two sweepers may end in either order: the later pass counts.
		if rep.AsOf.After(l.Run) {
			l.Run, l.Deleted = rep.AsOf.UTC(), rep.Deleted()
		}
		l.Failures = 0
	})
}

func (w *Worker) noteFailure(ctx context.Context) error {
	return w.note(ctx, func(l *Last) { l.Failures++ })
}

// note changes what the store remembers. It does not give up with ctx, which
// may be just what ended the pass.
func (w *Worker) note(ctx context.Context, change func(*Last)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	s := w.engine.Store()
	for range 8 { // another sweeper may note its own pass at the same moment
		last, rev, err := readLast(ctx, s)
		if err != nil && !errors.Is(err, counterfoil.ErrUnreadable) {
			return err
		}
		// An unreadable note is written over: it guards nothing.
		change(&last)
		text, err := json.Marshal(lastNote{lastFormat, last})
		if err != nil {
			return fmt.Errorf("last sweep: %w", err)
		}
		if _, err = s.SetMeta(ctx, counterfoil.MetaSweep, rev, text); !errors.Is(err, counterfoil.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("last sweep: %w: other sweepers keep writing it", counterfoil.ErrConflict)
}
