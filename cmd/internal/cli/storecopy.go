package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/config"
	"github.com/counterfoil/counterfoil/cmd/internal/wire"
	"github.com/counterfoil/counterfoil/storecopy"
)

func (a *app) storeCopyCommand() *cobra.Command {
	var from, to string
	var verifyOnly bool
	c := &cobra.Command{
		Use:   "copy --from ADDRESS --to ADDRESS",
		Short: "Move all records to another store",
		Long: `Copies what one store holds to another: records in every state with their
tokens, times, gates, holds and evidence, the responses that are still replayed,
the charter, and how far each operation has forgotten. Then it reads both and
compares counts and digests. Nothing in the source is changed.

Stop serve first: neither store may be in use. The copy may be stopped at any
moment; run it again and it goes on. Until it is complete, serve refuses to
start on the target. It never writes over records that are newer than the
source's.

Addresses are written as store: in counterfoil.yaml.

Exit 1 when the copy is not complete or the stores differ.`,
		Example: `  counterfoil store copy --from pebble:./data --to postgres://counterfoil@db/counterfoil
  counterfoil store copy --from pebble:./data --to pebble:/mnt/large/data
  counterfoil store copy --from pebble:./data --to pebble:/mnt/large/data --verify-only`,
		Args: arguments(0, 0, "no arguments, but --from and --to"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkAddresses(from, to, verifyOnly); err != nil {
				return err
			}
			return a.storeCopy(cmd.Context(), from, to, verifyOnly)
		},
	}
	c.Flags().StringVar(&from, "from", "", "the store to copy, an `ADDRESS` (required)")
	c.Flags().StringVar(&to, "to", "", "the store to copy to, an `ADDRESS`; made if it is a directory that is not there (required)")
	c.Flags().BoolVar(&verifyOnly, "verify-only", false, "compare the two and write nothing")
	return c
}

// checkAddresses refuses what can be seen before a store is opened.
func checkAddresses(from, to string, verifyOnly bool) error {
	var stores [2]config.Store
	for i, f := range []struct{ flag, address string }{{"--from", from}, {"--to", to}} {
		if f.address == "" {
			return usagef("say which store with %s; write an address such as pebble:./data", f.flag)
		}
		s, err := config.ParseStore(f.address)
		if err != nil {
			return usagef("%s: %w", f.flag, err)
		}
		if s.Kind == config.StoreMemory {
			return usagef("%s: a memory store lives only inside a running serve; name a store that outlives it", f.flag)
		}
		stores[i] = s
	}
	if sameStore(stores[0], stores[1]) {
		return usagef("--from and --to are the same store; name another one to copy to")
	}
	if err := wire.Exists(stores[0]); err != nil {
		return usagef("--from: %w; name the store: of the serve that made the records", err)
	}
	if !verifyOnly {
		return nil
	}
	if err := wire.Exists(stores[1]); err != nil {
		return usagef("--to: %w; copy first, without --verify-only", err)
	}
	return nil
}

// sameStore reports that both addresses are spelled the same, or lead to the
// same directory.
func sameStore(a, b config.Store) bool {
	if a == b {
		return true
	}
	if a.Kind != config.StorePebble || b.Kind != config.StorePebble {
		return false
	}
	x, xerr := filepath.Abs(a.Dir)
	y, yerr := filepath.Abs(b.Dir)
	if xerr == nil && yerr == nil && x == y {
		return true
	}
	i, ierr := os.Stat(a.Dir)
	j, jerr := os.Stat(b.Dir)
	return ierr == nil && jerr == nil && os.SameFile(i, j)
}

func (a *app) storeCopy(ctx context.Context, from, to string, verifyOnly bool) (err error) {
	o := wire.Options{Logger: slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	source, err := wire.OpenStore(ctx, from, o)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := wire.OpenStore(ctx, to, o)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()

	do := storecopy.Run
	if verifyOnly {
		do = storecopy.Verify
	}
	show, done := a.copyProgress()
	rep, err := do(ctx, source, target, storecopy.Options{Progress: show})
	done()
	// Names are for the eye; the copy does not depend on them.
	names := map[counterfoil.OperationNumber]string{}
	if c, _, cerr := counterfoil.ReadCharter(context.WithoutCancel(ctx), source); cerr == nil {
		for _, op := range c.Operations {
			names[op.Number] = op.Name
		}
	}
	if perr := a.printCopy(newCopyResult(&rep, source.Info(), target.Info(), names)); perr != nil {
		return errors.Join(err, perr)
	}
	return copyHint(err, verifyOnly)
}

// copyHint says how to go on after an error that does not say it itself.
func copyHint(err error, verifyOnly bool) error {
	said := err == nil || verifyOnly
	for _, is := range []error{storecopy.ErrRefused, storecopy.ErrSourceChanged, storecopy.ErrDiffers, storecopy.ErrUnfinished, counterfoil.ErrUnreadable} {
		said = said || errors.Is(err, is)
	}
	if said {
		return err
	}
	return &hintedError{err, "Run the same command again: it goes on where it stopped. Until it is complete, serve refuses to start on the target."}
}

// copyResult is the JSON form of what a copy did.
type copyResult struct {
	From              copyStore      `json:"from"`
	To                copyStore      `json:"to"`
	Verified          bool           `json:"verified"`
	Records           int64          `json:"records"`
	Copied            int64          `json:"copied"`
	Updated           int64          `json:"updated"`
	Present           int64          `json:"present"`
	LeftOver          int64          `json:"left_over"`
	Refused           int64          `json:"refused"`
	Responses         int64          `json:"responses"`
	ResponsesDue      int64          `json:"responses_due"`
	ResponsesLost     int64          `json:"responses_lost"`
	Bytes             int64          `json:"bytes"`
	DurationInSeconds float64        `json:"duration_seconds"`
	Digest            string         `json:"digest"`
	Operations        []copyCount    `json:"operations"`
	Differences       []copyMismatch `json:"differences"`
}

// copyStore names a store without its address, which may hold a password.
type copyStore struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

type copyCount struct {
	Operation string `json:"operation"`
	State     string `json:"state"`
	Records   int64  `json:"records"`
}

type copyMismatch struct {
	ID      string `json:"id"`
	Message string `json:"message"`
}

func newCopyResult(rep *storecopy.Report, from, to counterfoil.Info, names map[counterfoil.OperationNumber]string) *copyResult {
	r := &copyResult{
		From: copyStore{from.Kind, from.ID}, To: copyStore{to.Kind, to.ID}, Verified: rep.Verified,
		Records: rep.Records, Copied: rep.Copied, Updated: rep.Updated, Present: rep.Present, LeftOver: rep.LeftOver, Refused: rep.Refused,
		Responses: rep.Responses, ResponsesDue: rep.ResponsesDue, ResponsesLost: rep.ResponsesLost,
		Bytes: rep.Bytes, DurationInSeconds: rep.Duration.Seconds(), Digest: rep.Digest,
		Operations: []copyCount{}, Differences: []copyMismatch{},
	}
	for _, number := range slices.Sorted(maps.Keys(rep.Operations)) {
		o := rep.Operations[number]
		name := names[number]
		if name == "" {
			name = fmt.Sprintf("operation %d", number)
		}
		for state, n := range o.Records {
			if n > 0 {
				r.Operations = append(r.Operations, copyCount{name, counterfoil.State(state).String(), n})
			}
		}
	}
	for _, d := range rep.Differences {
		r.Differences = append(r.Differences, copyMismatch{d.ID.String(), d.What})
	}
	return r
}

// printCopy shows what a copy did, also one that stopped.
func (a *app) printCopy(r *copyResult) error {
	if r.Records == 0 && r.Refused == 0 && !r.Verified {
		return nil // it did nothing, and the error says why
	}
	if a.out.json {
		return items(a.out, []*copyResult{r})
	}
	rows := [][]cell{{plain("records"), plain(amount(float64(r.Records)))}}
	for _, row := range []struct {
		name   string
		n      int64
		always bool
	}{
		{"copied", r.Copied, !r.Verified || r.Present < r.Records},
		{"brought up to date", r.Updated, false},
		{"already there", r.Present, false},
		{"responses copied", r.Responses, r.Copied > 0},
		{"responses not copied, replay is over", r.ResponsesDue, false},
		{"responses that cannot be read", r.ResponsesLost, false},
		{"past their time, left over in the target", r.LeftOver, false},
		{"not the same", r.Refused, false},
	} {
		if row.n > 0 || row.always {
			rows = append(rows, []cell{plain(row.name), plain(amount(float64(row.n)))})
		}
	}
	if r.Bytes > 0 {
		rows = append(rows, []cell{plain("written"), plain(bytesInWords(float64(r.Bytes)))})
	}
	rows = append(rows, []cell{plain("took"), plain(time.Duration(r.DurationInSeconds * float64(time.Second)).Round(time.Millisecond).String())})
	a.out.columns("", rows)
	if len(r.Operations) > 0 {
		a.out.line()
		rows = nil
		for _, o := range r.Operations {
			rows = append(rows, []cell{plain(o.Operation), plain(o.State), plain(amount(float64(o.Records)))})
		}
		a.out.table([]string{"operation", "state", "records"}, rows)
	}
	if len(r.Differences) > 0 {
		a.out.line()
		rows = nil
		for _, d := range r.Differences {
			rows = append(rows, []cell{plain(d.ID), plain(d.Message)})
		}
		a.out.table([]string{"record", "what is not the same"}, rows)
	}
	if r.Verified {
		a.out.line()
		a.out.line(fmt.Sprintf("both stores hold %s, digest %s", a.out.paint.green("the same"), r.Digest))
	}
	return a.out.err
}

// copyProgress draws a bar for each phase, on terminals only.
func (a *app) copyProgress() (show func(storecopy.Progress), done func()) {
	if !isTerminal(a.Stderr) {
		return nil, func() {}
	}
	var bar *progressbar.ProgressBar
	var phase storecopy.Phase
	done = func() {
		if bar != nil {
			_ = bar.Finish() // a bar that cannot be drawn harms nobody
		}
	}
	return func(p storecopy.Progress) {
		total := max(p.Total, p.Done)
		if bar == nil || p.Phase != phase {
			done()
			phase = p.Phase
			bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(a.Stderr), progressbar.OptionSetDescription(string(phase)),
				progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
		}
		bar.ChangeMax64(total)
		_ = bar.Set64(p.Done)
	}, done
}
