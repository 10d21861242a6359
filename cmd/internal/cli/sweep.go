package cli

import (
	"errors"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/cmd/internal/admin"
)

func (a *app) sweepCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sweep",
		Short: "Make one pass of expiry, then exit",
		Long: `Makes one pass over the store: drops responses whose time is over, announces
and deletes records past their time, and spares what a gate or hold keeps.
serve does this by itself; this is for cron.

Exit 1 when the pass stopped with records left over, so that cron reports it.`,
		Example: "  counterfoil sweep",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withService(cmd.Context(), func(s *service) error {
				done := a.progress("sweeping")
				rep, err := s.Sweep(cmd.Context())
				done()
				if perr := a.printSweep(&rep, err); perr != nil {
					return perr
				}
				if err == nil && !rep.Complete {
					err = errors.New("the sweep stopped before its end, and records are left over; run it again")
				}
				return err
			})
		},
	}
}

// printSweep shows what a pass did, also one that failed half-way.
func (a *app) printSweep(rep *admin.SweepResult, err error) error {
	if err != nil && rep.Batches == 0 {
		return nil // it did nothing, and the error says why
	}
	if a.out.json {
		return items(a.out, []admin.SweepResult{*rep})
	}
	rows := [][]cell{
		{plain("examined"), plain(amount(float64(rep.Examined)))},
		{plain("responses dropped"), plain(amount(float64(rep.ResponsesDropped)))},
		{plain("became tombstones"), plain(amount(float64(rep.Tombstoned)))},
		{plain("closed as unknown"), plain(amount(float64(rep.Closed)))},
		{plain("announced"), plain(amount(float64(rep.Announced)))},
		{plain("deleted"), plain(amount(float64(rep.TombstonesDeleted + rep.FailedDeleted)))},
	}
	var gates []string
	for name := range rep.Kept {
		gates = append(gates, name)
	}
	slices.Sort(gates)
	for _, name := range gates {
		rows = append(rows, []cell{plain("kept by " + name), plain(amount(float64(rep.Kept[name])))})
	}
	a.out.columns("", rows)
	return a.out.err
}

// progress shows that long work goes on, on terminals only, until the returned
// function is called. How much there is to do is not known beforehand.
func (a *app) progress(what string) (done func()) {
	if !isTerminal(a.Stderr) {
		return func() {}
	}
	bar := progressbar.NewOptions(-1, progressbar.OptionSetWriter(a.Stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionSpinnerType(14), progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(true))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = bar.Add(1) // a spinner that cannot be drawn harms nobody
			case <-stop:
				_ = bar.Finish()
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
