package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/policyfile"
)

// finding is what check and doctor report (contract.md §1).
type finding struct {
	Severity policy.Severity `json:"severity"`
	Code     string          `json:"code"`
	File     string          `json:"file"`
	Line     int             `json:"line"`
	Field    string          `json:"field"`
	Message  string          `json:"message"`
	Remedy   string          `json:"remedy"`
}

func (a *app) checkCommand() *cobra.Command {
	var previous string
	c := &cobra.Command{
		Use:   "check",
		Short: "Fail when a policy contradicts itself, or what its predecessor promised",
		Long: `Reads a policy and lists everything in which it contradicts itself. With
--previous it is also held against the version that is in force: keys that
would be forgotten, version numbers that do not grow.

Exit 1 when there is an error; warnings alone exit 0. A file that cannot be
read as a policy at all exits 2.`,
		Example: `  counterfoil policy check --policy policy.yaml
  counterfoil policy check --previous policy-in-force.yaml`,
		Args: arguments(0, 0, "no arguments"),
	}
	file := policyFlag(c)
	c.Flags().StringVar(&previous, "previous", "", "the policy `FILE` that is in force")
	c.RunE = func(*cobra.Command, []string) error {
		path, err := a.policyPath(*file)
		if err != nil {
			return err
		}
		p, findings, err := checkPolicy(path)
		if err != nil {
			return err
		}
		if previous != "" && p != nil {
			old, err := loadPolicy(previous)
			if err != nil {
				return fmt.Errorf("--previous: %w", err)
			}
			more, err := succession(path, old, p)
			if err != nil {
				return err
			}
			findings = append(findings, more...)
		}
		return a.printCheck(path, p, findings)
	}
	return c
}

// succession holds p against the policy that was in force, and finds the lines
// of what is wrong.
func succession(path string, old, p *policy.Policy) ([]policyfile.Finding, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, unreadable(err)
	}
	var out []policyfile.Finding
	for _, f := range policy.CheckSuccessor(old, p) {
		line, column := locate(&doc, f)
		out = append(out, policyfile.Finding{
			Severity: f.Severity, Code: f.Code, File: path, Line: line, Column: column,
			Field: f.Path(), Message: f.Message, Remedy: f.Remedy,
		})
	}
	return out, nil
}

// locate is the place of a finding in the file, or of the nearest thing around
// it that is written down.
func locate(doc *yaml.Node, f policy.Finding) (line, column int) {
	path := strings.Split(f.Field, ".")
	if f.Operation != "" {
		path = append([]string{"operations", f.Operation}, path...)
	}
	line, column = 1, 1
	at := doc
	if len(at.Content) > 0 {
		at = at.Content[0] // the document's own mapping
	}
	for _, name := range path {
		i := slices.IndexFunc(at.Content, func(n *yaml.Node) bool { return n.Value == name })
		if at.Kind != yaml.MappingNode || i < 0 || i%2 != 0 {
			break
		}
		line, column = at.Content[i].Line, at.Content[i].Column
		at = at.Content[i+1]
	}
	return line, column
}

// unreadableCodes are faults after which nothing of the file is understood.
var unreadableCodes = []policy.Code{
	policyfile.CodeFileUnsafe, policyfile.CodeTooLarge, policyfile.CodeEncoding,
	policyfile.CodeSyntax, policyfile.CodeSecondDocument,
}

func (a *app) printCheck(path string, p *policy.Policy, findings []policyfile.Finding) error {
	code, warnings, faults := exitFine, 0, 0
	list := make([]finding, len(findings))
	for i, f := range findings {
		list[i] = finding{f.Severity, string(f.Code), f.File, f.Line, f.Field, f.Message, f.Remedy}
		if f.Severity == policy.SeverityWarning {
			warnings++
			continue
		}
		faults++
		code = max(code, exitFailed)
		if slices.Contains(unreadableCodes, f.Code) {
			code = exitUsage
		}
	}
	if a.out.json {
		if err := items(a.out, list); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			paint := a.out.paint.red
			if f.Severity == policy.SeverityWarning {
				paint = a.out.paint.yellow
			}
			a.out.line(markSeverity(f.String(), paint))
		}
		verdict := a.out.paint.red("refused")
		about := ""
		if code == exitFine {
			verdict = a.out.paint.green("fine")
		}
		if p != nil {
			about = fmt.Sprintf("version %d, %s, ", p.Version, count(len(p.Operations), "operation"))
		}
		a.out.line(fmt.Sprintf("%s: %s: %s%s, %s", path, verdict, about, count(faults, "error"), count(warnings, "warning")))
	}
	if code != exitFine {
		return &silentError{code}
	}
	return a.out.err
}

// markSeverity colours the place that a finding begins with.
func markSeverity(s string, paint func(string) string) string {
	place, rest, ok := strings.Cut(s, ": ")
	if !ok {
		return s
	}
	return paint(place+":") + " " + rest
}

// count is "1 error", "2 errors".
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
