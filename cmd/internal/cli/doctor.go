package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/cmd/internal/admin"
	"github.com/counterfoil/counterfoil/cmd/internal/config"
	"github.com/counterfoil/counterfoil/policy"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the store's settings against what is known to go wrong",
		Long: `Checks the store, its directory and the machine against what is known to lose
records. Exit 1 when there is an error; warnings alone exit 0.`,
		Example: "  counterfoil doctor",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.loadConfig()
			if err != nil {
				return err
			}
			s, err := a.open(cmd.Context(), c)
			if err != nil {
				if exitCode(err) == exitUsage {
					return err // a file that cannot be read says nothing of the store
				}
				return a.printDoctor([]admin.Finding{notOpened(c, err)})
			}
			p, err := s.Doctor(cmd.Context())
			if err = errors.Join(err, s.close()); err != nil {
				return err
			}
			return a.printDoctor(p.Items)
		},
	}
}

// notOpened is the finding that there is nothing to look at.
func notOpened(c *config.Config, err error) admin.Finding {
	f := admin.Finding{
		Severity: string(policy.SeverityError), Code: "store-not-opened", File: c.File, Field: "store",
		Message: err.Error(), Remedy: hint(err),
	}
	if f.Remedy == "" {
		f.Remedy = "see to what the finding says, then ask again"
	}
	return f
}

func (a *app) printDoctor(list []admin.Finding) error {
	faults := 0
	rows := make([][]cell, len(list))
	found := make([]finding, len(list))
	for i, f := range list {
		paint := a.out.paint.yellow
		if f.Severity == string(policy.SeverityError) {
			paint = a.out.paint.red
			faults++
		}
		rows[i] = []cell{{f.Severity, paint}, plain(f.Code), plain(f.Message), plain(f.Remedy)}
		found[i] = finding{policy.Severity(f.Severity), f.Code, f.File, f.Line, f.Field, f.Message, f.Remedy}
	}
	switch {
	case a.out.json:
		if err := items(a.out, found); err != nil {
			return err
		}
	case len(list) == 0:
		a.out.line(a.out.paint.green("nothing found"))
	default:
		a.out.table([]string{"severity", "code", "finding", "remedy"}, rows)
	}
	if faults > 0 {
		return &silentError{exitFailed}
	}
	return a.out.err
}
