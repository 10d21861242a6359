package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/policyfile"
)

func (a *app) policyCommand() *cobra.Command {
	c := group("policy", "Explain, check and compare policies",
		"  counterfoil policy explain\n  counterfoil policy check --policy policy.yaml",
		a.explainCommand(), a.checkCommand(), a.diffCommand(), a.schemaCommand())
	c.Long = `Everything about the lifetimes and rules of policy.yaml. These commands need no
store: --policy FILE alone is enough; otherwise the file named in the
configuration is read.`
	return c
}

// policyFlag adds --policy to a command.
func policyFlag(c *cobra.Command) *string {
	return c.Flags().String("policy", "", "policy `FILE`; default: the one that --config names")
}

// policyPath is the file that the command is about.
func (a *app) policyPath(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	c, err := a.loadConfig()
	if err != nil {
		return "", err
	}
	return c.Policy, nil
}

// loadPolicy reads a policy that must be sound.
func loadPolicy(path string) (*policy.Policy, error) {
	p, err := policyfile.Load(path)
	return p, policyError(path, err)
}

// policyError says what to do about a file that is not there.
func policyError(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return unreadable(&hintedError{err, fmt.Sprintf("write --policy FILE where the policy is not %s", path)})
	}
	return unreadable(err)
}

// checkPolicy reads a policy with everything that is to be said of it; the
// policy is nil when it is refused.
func checkPolicy(path string) (*policy.Policy, []policyfile.Finding, error) {
	// Load also judges the file: who may write it, and where its links lead.
	_, err := policyfile.Load(path)
	var refused *policyfile.Error
	if errors.As(err, &refused) {
		return nil, refused.Findings, nil
	}
	if err != nil {
		return nil, nil, policyError(path, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, unreadable(err)
	}
	p, findings := policyfile.Check(path, text)
	return p, findings, nil
}

func (a *app) diffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Show what changes from one policy to another, for new records and for existing ones",
		Long: `Compares two policies by operation and field, and says whom each change
reaches: records made from now on, and records that stand. Nothing that exists
ever loses retention. Equal policies print nothing.`,
		Example: "  counterfoil policy diff policy.yaml policy-next.yaml",
		Args:    arguments(2, 2, "two policy files, OLD and NEW"),
		RunE: func(_ *cobra.Command, args []string) error {
			old, err := loadPolicy(args[0])
			if err != nil {
				return err
			}
			next, err := loadPolicy(args[1])
			if err != nil {
				return err
			}
			changes := policy.Compare(old, next)
			if a.out.json {
				return items(a.out, changes)
			}
			return a.printChanges(old, next, changes)
		},
	}
}

func (a *app) printChanges(old, next *policy.Policy, changes []policy.Change) error {
	if len(changes) == 0 {
		return a.out.err
	}
	a.out.line(fmt.Sprintf("version %d → %d", old.Version, next.Version))
	none := func(s string) string {
		if s == "" {
			return "–"
		}
		return s
	}
	var rows [][]cell
	for _, c := range changes {
		field := c.Field
		if field == "" {
			field = "(operation)"
		}
		rows = append(rows, []cell{
			plain(c.Operation), plain(field), plain(none(c.Old)), plain(none(c.New)),
			{string(c.ForNew), a.effectStyle(c.ForNew)},
			{string(c.ForExisting), a.effectStyle(c.ForExisting)},
		})
	}
	a.out.table([]string{"operation", "field", "old", "new", "new records", "existing records"}, rows)
	return a.out.err
}

// effectStyle marks what would let a key run again, and what protects less than
// the new policy says.
func (a *app) effectStyle(e policy.Effect) func(string) string {
	switch e {
	case policy.EffectForgets:
		return a.out.paint.red
	case policy.EffectShorter:
		return a.out.paint.yellow
	}
	return nil
}

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the policy file, for editors",
		Long: `Prints the JSON Schema of policy.yaml. Editors with a YAML language server read
it from the first line of a policy:

  # yaml-language-server: $schema=policy.schema.json`,
		Example: "  counterfoil policy schema > policy.schema.json",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			// The schema is JSON already; --output json changes nothing.
			a.out.write(string(policyfile.Schema()))
			return a.out.err
		},
	}
}
