// Package storecopy moves the live records of one store to another: every
// record with its token, times, gates, holds and evidence, the responses that
// are still replayed, the charter, F and the store's trust.
//
// A copy may be stopped at any moment and run again; it goes on where it came
// to. Until it is complete and compared, the target cannot be served from. What
// a half-done copy lacks would look like keys that were never seen, and would
// run a second time; distrusting the target is not enough, since a
// distrusted store still lets keys run that were made after F. So a note that
// no engine takes for a charter stands in the place of the target's charter,
// and the charter itself is the last thing written ([Unfinished]).
//
// Everything goes through [counterfoil.Store], so that any store can be copied
// to any other. Nothing in the source is written.
package storecopy

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil"
)

var (
	// ErrRefused is returned when the target holds what a copy must not write
	// over or mix with: newer records, records that the source does not have,
	// or another charter. Report.Differences names records.
	ErrRefused = errors.New("the target cannot take this copy")
	// ErrSourceChanged is returned when the source was written while it was
	// copied.
	ErrSourceChanged = errors.New("the source changed meanwhile")
	// ErrDiffers is returned when source and target were compared and are not
	// the same; Report.Differences names records.
	ErrDiffers = errors.New("source and target differ")
	// ErrUnfinished is returned for a store that holds half of a copy.
	ErrUnfinished = errors.New("an unfinished copy")
)

// Options of [Run] and [Verify]. The zero value works.
type Options struct {
	// Workers is how many records are under way at once; 0 stands for 128. Stores
	// put concurrent writes into one commit.
	Workers int
	// Page is how many records are read at once; 0 stands for 1,000.
	Page int
	// Progress is called after every page, by one goroutine at a time; it may
	// be nil.
	Progress func(Progress)
}

// Phase is one pass over a store.
type Phase string

// The phases, in their order. A phase that is not needed is left out.
const (
	// PhaseCompare looks whether a target that holds records may take more.
	PhaseCompare Phase = "comparing"
	PhaseCopy    Phase = "copying"
	// PhaseReread reads the source for comparison.
	PhaseReread Phase = "reading the source"
	// PhaseVerify reads the target for comparison.
	PhaseVerify Phase = "verifying"
	// PhaseSearch looks for the records in which the two differ.
	PhaseSearch Phase = "searching differences"
)

// Progress is how far a phase has come. Total is what the source counted at
// the start.
type Progress struct {
	Phase       Phase
	Done, Total int64
}

// Report is what a copy did, and what source and target hold.
type Report struct {
	// Records are those of the source, of which this run made Copied anew and
	// brought Updated up to date; Present stood in the target already.
	Records, Copied, Updated, Present int64
	// Responses is how many responses this run wrote. ResponsesDue were left
	// behind because their replay is over, ResponsesLost because the source
	// can no longer read them: their records answer "already processed".
	Responses, ResponsesDue, ResponsesLost int64
	// Bytes is the size of what this run wrote: records in their stored form,
	// and responses.
	Bytes int64
	// LeftOver are records of the target, past their time, that the source let
	// go between two runs. The target's own sweep lets them go.
	LeftOver int64
	// Refused counts the records that were left as they stand in the target, or
	// that differ; Differences are the first of them.
	Refused     int64
	Differences []Difference
	// Operations are the counts of the source, by operation and state.
	Operations map[counterfoil.OperationNumber]counterfoil.OperationStats
	// Digest is that of all records and their responses, in hexadecimal, the
	// same in any order.
	Digest string
	// Verified: source and target were compared after the last write and are
	// the same.
	Verified bool
	Duration time.Duration
}

// Difference is one record that is not the same in source and target.
type Difference struct {
	ID   counterfoil.ID
	What string
}

// maxDifferences is how many a report names.
const maxDifferences = 20

// Run copies what from holds to to, or goes on with a copy that was stopped,
// and compares the two. Neither may be in use meanwhile.
//
// The error wraps ErrRefused, ErrSourceChanged, ErrDiffers or ErrUnfinished
// where one of these is the reason, and otherwise what a store said; the report
// then says how far it came. After any error but ErrRefused it may be run again.
func Run(ctx context.Context, from, to counterfoil.Store, o Options) (Report, error) {
	r := newRun(from, to, o)
	return r.finish(r.copy(ctx))
}

// Verify compares what from and to hold and writes nothing. The error is as
// of [Run].
func Verify(ctx context.Context, from, to counterfoil.Store, o Options) (Report, error) {
	r := newRun(from, to, o)
	return r.finish(r.compare(ctx))
}

// run is one Run or Verify under way.
type run struct {
	from, to counterfoil.Store
	o        Options
	began    time.Time

	source source
	target target
	// total is what the source counted at the start; cut is its time then: what
	// was due for replay by then is left behind.
	total int64
	cut   time.Time
	// records is the sum over the source, revs one of its records as they
	// stand, with their revs.
	records, revs sum

	mu  sync.Mutex // guards rep
	rep Report
}

func newRun(from, to counterfoil.Store, o Options) *run {
	if o.Workers <= 0 {
		o.Workers = 128
	}
	if o.Page <= 0 {
		o.Page = 1000
	}
	return &run{from: from, to: to, o: o, began: time.Now()}
}

// finish completes the report.
func (r *run) finish(err error) (Report, error) {
	r.rep.Records = r.records.n
	r.rep.Operations = r.records.operations()
	r.rep.Digest = hex.EncodeToString(r.records.digest())
	r.rep.Duration = time.Since(r.began)
	if err != nil {
		err = fmt.Errorf("store copy: %w", err)
	}
	return r.rep, err
}

func (r *run) copy(ctx context.Context) error {
	if err := r.readSource(ctx); err != nil {
		return err
	}
	complete, err := r.readTarget(ctx)
	if err != nil {
		return err
	}
	if complete {
		if err := r.reread(ctx); err != nil {
			return err
		}
		r.rep.Present = r.records.n
		return r.verify(ctx)
	}
	if err := r.latch(ctx); err != nil {
		return err
	}
	if err := r.raiseForgotten(ctx); err != nil {
		return err
	}
	if err := r.pass(ctx, r.from, PhaseCopy, r.record); err != nil {
		return err
	}
	if r.rep.Refused > 0 {
		return fmt.Errorf("%w: %d of its records are newer than the source's, or cannot be ordered, and were left as they stand: the target was used, or the source went back in time; find out which store is right, and copy into an empty one",
			ErrRefused, r.rep.Refused)
	}
	if err := r.verify(ctx); err != nil {
		return err
	}
	return r.release(ctx)
}

func (r *run) compare(ctx context.Context) error {
	if err := r.readSource(ctx); err != nil {
		return err
	}
	if err := Unfinished(ctx, r.to); err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	m, err := r.to.Meta(ctx, counterfoil.MetaCharter)
	if err != nil && !errors.Is(err, counterfoil.ErrNotFound) {
		return fmt.Errorf("the target's charter: %w", err)
	}
	if string(m.Value) != string(r.source.charter.Value) {
		return fmt.Errorf("%w: their charters are not the same; this is not a finished copy, or one of the two was served with another policy since", ErrDiffers)
	}
	if short, err := r.forgottenShort(ctx); err != nil {
		return err
	} else if short {
		return fmt.Errorf("%w: the target does not know how far the source has forgotten; copy again", ErrDiffers)
	}
	if err := r.reread(ctx); err != nil {
		return err
	}
	return r.verify(ctx)
}

// refuse notes a record that is not as it must be.
func (r *run) refuse(id counterfoil.ID, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rep.Refused++
	if len(r.rep.Differences) < maxDifferences {
		r.rep.Differences = append(r.rep.Differences, Difference{id, what})
	}
}

// note changes the report.
func (r *run) note(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.rep)
}
