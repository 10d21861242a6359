package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// commands are those of contract.md §1 that this version builds, and what
// cobra brings along. A command that is not built is not there at all.
var commands = []string{
	"counterfoil completion bash", "counterfoil completion fish", "counterfoil completion powershell", "counterfoil completion zsh",
	"counterfoil doctor", "counterfoil help", "counterfoil key new",
	"counterfoil policy check", "counterfoil policy diff", "counterfoil policy explain", "counterfoil policy schema",
	"counterfoil record list", "counterfoil record resolve", "counterfoil record show",
	"counterfoil serve", "counterfoil store backup", "counterfoil store copy", "counterfoil store migrate", "counterfoil store pg-cron install", "counterfoil store pg-cron remove", "counterfoil store pg-cron status", "counterfoil store trust", "counterfoil sweep", "counterfoil version",
}

func walkCommands(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		walkCommands(sub, visit)
	}
}

func TestExactlyTheBuiltCommandsExist(t *testing.T) {
	var got []string
	walkCommands(newApp(&Program{}).root(), func(c *cobra.Command) {
		if !c.HasSubCommands() {
			got = append(got, c.CommandPath())
		}
	})
	slices.Sort(got)
	if !slices.Equal(got, commands) {
		t.Errorf("commands:\n got %q\nwant %q", got, commands)
	}
}

func TestEveryHelpHasAnExample(t *testing.T) {
	walkCommands(newApp(&Program{}).root(), func(c *cobra.Command) {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		if c.Name() == "help" {
			args = []string{"help", "help"}
		}
		r := run(t, args...).want(t, 0)
		if !strings.Contains(r.stdout, "Examples:\n  ") || !strings.Contains(r.stdout, "counterfoil") {
			t.Errorf("%s --help has no example:\n%s", c.CommandPath(), r.stdout)
		}
		if r.stderr != "" {
			t.Errorf("%s --help writes to stderr: %s", c.CommandPath(), r.stderr)
		}
	})
}

func TestWrongUsageExitsWith2AndSaysWhatToWrite(t *testing.T) {
	const id = "5f3a9c0d1e2b4a6788990011223344556677aabb"
	tests := []struct {
		args string
		says string
	}{
		{"", "needs a subcommand: doctor, key,"},
		{"polcy", `did you mean policy?`},
		{"policy", "needs a subcommand: check, diff, explain, schema"},
		{"policy simulate", `knows no "simulate"`},
		{"version --bogus", "unknown flag: --bogus; see counterfoil version --help"},
		{"version extra", "takes no arguments"},
		{"version --output yaml", "write table or json"},
		{"key new --count 0", "write 1 to 1000000"},
		{"policy diff testdata/policy.yaml", "takes two policy files"},
		{"policy explain --svg -o json --policy testdata/policy.yaml", "take --output json out"},
		{"policy explain capture --policy testdata/policy.yaml", "it has payment_capture, refund"},
		{"policy explain --policy testdata/none.yaml", "write --policy FILE"},
		{"policy explain --policy testdata/bad.yaml", `testdata/bad.yaml:8:`},
		{"policy check --policy testdata/none.yaml", "no such file"},
		{"policy check", "upstream: http://127.0.0.1:9000"},
		{"record list", "there is no configuration at counterfoil.yaml"},
		{"record list --config elsewhere.yaml", "there is no configuration at elsewhere.yaml"},
		{"record list --state lost", "want one of"},
		{"record list --older-than 15", "has no unit"},
		{"record list --limit 100001", "write 1 to 100000"},
		{"record show", "say which record"},
		{"record show xyz", "want 40 hexadecimal digits"},
		{"record show --operation o --key k", "found by all three"},
		{"record show " + id + " --key k", "say which record"},
		{"record resolve " + id + " --reason r", "--applied or --absent"},
		{"record resolve " + id + " --applied --absent --reason r", "--applied or --absent"},
		{"record resolve " + id + " --applied", "say why with --reason"},
		{"record resolve " + id + " --applied --reason " + strings.Repeat("r", 513), "at most 512"},
		{"record resolve " + id + " --applied --early --reason r", "are about absence"},
		{"record resolve " + id + " --applied --status 99 --reason r", "write 100 to 599"},
		{"record resolve " + id + " --applied --outcome fine --reason r", "write succeeded or declined"},
		{"record resolve " + id + " --absent --status 201 --reason r", "take them out, or write --applied"},
		{"record resolve " + id + " --absent --proof quiet --reason r", "write cancelled or deduped"},
		{"store trust", "say why with --reason"},
		{"store backup", "takes the directory"},
		{"store copy", "say which store with --from"},
		{"store copy --from pebble:a", "say which store with --to"},
		{"store copy --from pebble:none --to mysql://u:secret@db/x", "--to: it is not the address of a store; write pebble:./data"},
		{"store copy --from memory: --to pebble:a", "--from: a memory store lives only inside a running serve"},
		{"store copy --from pebble:a --to memory:", "--to: a memory store lives only inside a running serve"},
		{"store copy --from pebble:./a --to pebble:b/../a", "are the same store"},
		{"store copy --from pebble:none --to pebble:a", "no store there: none is not the directory of a store"},
		{"store copy a b", "takes no arguments, but --from and --to"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			r := run(t, strings.Fields(tt.args)...).want(t, 2)
			if !strings.Contains(r.stderr, tt.says) || !strings.HasPrefix(r.stderr, "counterfoil: ") {
				t.Errorf("stderr lacks %q: %s", tt.says, r.stderr)
			}
			if r.stdout != "" {
				t.Errorf("an error went to stdout: %s", r.stdout)
			}
		})
	}
}

func TestKeysAreNewUUIDv7(t *testing.T) {
	seen := map[string]bool{}
	for _, line := range strings.Fields(run(t, "key", "new", "--count", "50").want(t, 0).stdout) {
		id, err := uuid.Parse(line)
		if err != nil || id.Version() != 7 || seen[line] {
			t.Errorf("key %q: version %d, seen before %t, %v", line, id.Version(), seen[line], err)
		}
		seen[line] = true
	}
	if len(seen) != 50 {
		t.Errorf("%d keys, want 50", len(seen))
	}
	if got := run(t, "key", "new", "--output", "json").want(t, 0).items(t); len(got) != 1 || got[0]["key"] == "" {
		t.Errorf("JSON: %v", got)
	}
}

func TestVersion(t *testing.T) {
	if got := run(t, "version").want(t, 0).stdout; !strings.HasPrefix(got, "counterfoil 1.2.3 commit abc go1.") {
		t.Errorf("version: %s", got)
	}
	if got := run(t, "version", "-o", "json").want(t, 0).items(t); got[0]["commit"] != "abc" || got[0]["version"] != "1.2.3" {
		t.Errorf("JSON: %v", got)
	}
}

func TestCompletionIsForTheShell(t *testing.T) {
	if got := run(t, "completion", "bash").want(t, 0).stdout; !strings.Contains(got, "complete -o default -F __start_counterfoil counterfoil") {
		t.Errorf("completion: %.200s", got)
	}
}

func TestColoursFollowTerminalAndNoColor(t *testing.T) {
	if p := (paint{}); p.red("x") != "x" {
		t.Error("no colour was asked for")
	}
	if p := (paint{true}); p.red("x") == "x" || p.red("") != "" {
		t.Error("colour was asked for")
	}
	// A buffer is no terminal, whatever the environment says.
	if newPaint(&strings.Builder{}, func(string) (string, bool) { return "", false }).on {
		t.Error("colours on something that is no terminal")
	}
}

func TestTablesAlignCellsThatAreColoured(t *testing.T) {
	var b strings.Builder
	p := &printer{w: &b, paint: paint{true}}
	p.table([]string{"a", "b"}, [][]cell{{{"größer", p.paint.red}, plain("x")}, {plain("y"), plain("z")}})
	lines := strings.Split(b.String(), "\n")
	if want := "y       z"; lines[2] != want {
		t.Errorf("third line %q, want %q", lines[2], want)
	}
	if want := p.paint.red("größer") + "  x"; lines[1] != want {
		t.Errorf("second line %q, want %q", lines[1], want)
	}
}
