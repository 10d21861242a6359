package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print version, commit and Go version",
		Example: "  counterfoil version",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Commit  string `json:"commit"`
				Go      string `json:"go"`
			}{a.Version, commitOf(a.Commit), runtime.Version()}
			if a.out.json {
				return items(a.out, []any{v})
			}
			a.out.line("counterfoil", v.Version, "commit", v.Commit, v.Go)
			return a.out.err
		},
	}
}

// commitOf falls back on what the Go tool recorded.
func commitOf(linked string) string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
