// Package cli is the counterfoil command line (contract.md §1): results go to
// stdout, everything else to stderr, and a run ends in one of three exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/cmd/internal/config"
)

// Exit codes.
const (
	exitFine   = 0
	exitFailed = 1 // the check failed, or the work could not be done
	exitUsage  = 2 // wrong usage or unreadable input
)

// Program is the command line with everything it takes from outside, so that a
// test can run it in its own process.
type Program struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// LookupEnv looks a variable up; nil stands for an empty environment.
	LookupEnv func(string) (string, bool)
	// Version and Commit are what `counterfoil version` prints.
	Version, Commit string
}

// Main runs the process's own command line and returns its exit code. The
// first interrupt asks the work to stop, the second ends the process.
func Main(version, commit string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	p := &Program{os.Stdin, os.Stdout, os.Stderr, os.LookupEnv, version, commit}
	return p.Run(ctx, os.Args[1:])
}

// Run runs one command and returns its exit code.
func (p *Program) Run(ctx context.Context, args []string) int { return newApp(p).run(ctx, args) }

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitFine
	}
	var silent *silentError
	if !errors.As(err, &silent) {
		fmt.Fprintln(a.Stderr, a.errPaint.red("counterfoil:"), err)
		if h := hint(err); h != "" {
			fmt.Fprintln(a.Stderr, h)
		}
	}
	return exitCode(err)
}

// app is one run of the command line.
type app struct {
	*Program
	// configPath and output are the global flags.
	configPath, output string
	out                *printer
	errPaint           paint
	// open finds who answers for the store; a test puts its own here.
	open func(context.Context, *config.Config) (*service, error)
}

func newApp(p *Program) *app {
	if p.LookupEnv == nil {
		p.LookupEnv = func(string) (string, bool) { return "", false }
	}
	a := &app{Program: p, errPaint: newPaint(p.Stderr, p.LookupEnv)}
	a.open = a.openService
	return a
}

// root builds the command tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "counterfoil",
		Short: "Keeps the stub of every request that had an effect, so that a retry never repeats it",
		Long: `Counterfoil keeps the stub of every request that had an effect, for as long as
repeating the effect would do harm. It guards an HTTP service from the outside
(serve), and tends the records that are kept (record, sweep, store, doctor)
under one written-down policy (policy).

Exit codes: 0 fine; 1 the check failed, or the work could not be done; 2 wrong
usage or unreadable input. NO_COLOR switches colours off.`,
		Example: `  counterfoil serve
  counterfoil policy explain payment_create
  counterfoil record list --state unknown`,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          needsSubcommand,
		Args:          cobra.ArbitraryArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.output != "table" && a.output != "json" {
				return usagef("--output %q is not known; write table or json", a.output)
			}
			a.out = &printer{w: a.Stdout, json: a.output == "json", paint: newPaint(a.Stdout, a.LookupEnv)}
			return nil
		},
	}
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	root.PersistentFlags().StringVar(&a.configPath, "config", config.DefaultFile, "configuration `FILE`")
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "table", "how results are printed: table or json")
	root.AddCommand(a.policyCommand(), a.keyCommand(), a.versionCommand())
	root.AddCommand(a.storeCommands()...)

	// cobra's own commands, which come without examples.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("completion")
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Example = "  counterfoil help record resolve"
		case "completion":
			c.Example = "  source <(counterfoil completion bash)"
			for _, shell := range c.Commands() {
				shell.Example = "  counterfoil completion " + shell.Name()
			}
		}
	}
	return root
}

// group is a command that only holds others.
func group(use, short, example string, subcommands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Example: example, RunE: needsSubcommand, Args: cobra.ArbitraryArgs}
	c.AddCommand(subcommands...)
	return c
}

// needsSubcommand answers a group that is called by itself or with a word that
// it does not know; cobra would print the help and say that all is well.
func needsSubcommand(cmd *cobra.Command, args []string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion" {
			names = append(names, c.Name())
		}
	}
	if len(args) == 0 {
		return usagef("%s needs a subcommand: %s", cmd.CommandPath(), strings.Join(names, ", "))
	}
	more := ""
	cmd.SuggestionsMinimumDistance = 2 // as cobra has it where it asks itself
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		more = " (did you mean " + strings.Join(near, " or ") + "?)"
	}
	return usagef("%s knows no %q%s; it knows %s", cmd.CommandPath(), args[0], more, strings.Join(names, ", "))
}

// arguments checks how many arguments a command takes.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least, len(args) > most:
			return usagef("%s takes %s, and got %d arguments; see %s --help", cmd.CommandPath(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}
