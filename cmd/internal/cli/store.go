package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/cmd/internal/admin"
)

// storeCommands need the store: the records API first, else the store itself.
func (a *app) storeCommands() []*cobra.Command {
	return []*cobra.Command{a.serveCommand(), a.recordCommand(), a.sweepCommand(), a.doctorCommand(), a.storeCommand()}
}

func (a *app) storeCommand() *cobra.Command {
	backup := &cobra.Command{
		Use:   "backup DIR",
		Short: "Write a consistent copy of the store to a new directory",
		Long: `Writes a consistent copy of the store to a directory that must not exist yet.
It may run beside serve; the copy is then written by that process.`,
		Example: "  counterfoil store backup /var/backups/counterfoil/$(date +%F)",
		Args:    arguments(1, 1, "the directory to write"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return usagef("%w", err)
			}
			return a.withService(cmd.Context(), func(s *service) error {
				done := a.progress("copying")
				err := s.Backup(cmd.Context(), dir)
				done()
				if err != nil {
					return err
				}
				if a.out.json {
					return items(a.out, []map[string]string{{"directory": dir}})
				}
				a.out.line(dir)
				return a.out.err
			})
		},
	}
	var reason string
	trust := &cobra.Command{
		Use:   "trust",
		Short: "Trust the store again after it lost writes",
		Long: `Ends the distrust of a store that went back in time (a restored copy, a lost
disk). Until then nothing runs that the store does not know, except under keys
that were made later. Find out first what was lost.`,
		Example: `  counterfoil store trust --reason "restored Monday's copy; all charges since compared with the bank's file"`,
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if reason == "" {
				return usagef("say why with --reason; it is kept in the store")
			}
			return a.withService(cmd.Context(), func(s *service) error {
				if err := s.Trust(cmd.Context(), admin.TrustWord{Reason: reason, Actor: s.actor}); err != nil {
					return err
				}
				if a.out.json {
					return items(a.out, []map[string]any{{"trusted": true}})
				}
				a.out.line(fmt.Sprintf("the store is %s again", a.out.paint.green("trusted")))
				return a.out.err
			})
		},
	}
	trust.Flags().StringVar(&reason, "reason", "", "why; kept in the store (required)")
	return group("store", "Back the store up, move its records to another, or trust it again",
		"  counterfoil store backup /var/backups/counterfoil/today", a.migrateCommand(), backup, a.storeCopyCommand(), a.pgCronCommand(), trust)
}
