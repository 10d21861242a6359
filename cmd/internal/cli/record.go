package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/admin"
	"github.com/counterfoil/counterfoil/policy"
)

func (a *app) recordCommand() *cobra.Command {
	return group("record", "Find records, see why they are still here, and settle unknown outcomes",
		"  counterfoil record list --state unknown\n  counterfoil record show 5f3a9c0d1e2b4a6788990011223344556677aabb",
		a.recordShowCommand(), a.recordListCommand(), a.recordResolveCommand())
}

func (a *app) recordShowCommand() *cobra.Command {
	var operation, principal, key string
	c := &cobra.Command{
		Use:   "show [ID]",
		Short: "Show one record, its evidence, and in words why it is still here and when it may go",
		Long: `Shows one record: by the id that answers carry in Idempotency-Record, or by
operation, principal and key, from which the id is worked out.`,
		Example: `  counterfoil record show 5f3a9c0d1e2b4a6788990011223344556677aabb
  counterfoil record show --operation payment_create --principal acct_42 --key order-7`,
		Args: arguments(0, 1, "one record id"),
	}
	c.Flags().StringVar(&operation, "operation", "", "`NAME` of the operation in the policy")
	c.Flags().StringVar(&principal, "principal", "", "the `ACCOUNT` that the key belongs to")
	c.Flags().StringVar(&key, "key", "", "the idempotency `KEY`")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		named := operation != "" || principal != "" || key != ""
		switch {
		case len(args) == 1 && named, len(args) == 0 && !named:
			return usagef("say which record: its id, or all of --operation, --principal and --key")
		case named && (operation == "" || principal == "" || key == ""):
			return usagef("a record is found by all three: --operation, --principal and --key")
		}
		var id counterfoil.ID
		var err error
		if named {
			id, err = a.recordID(operation, counterfoil.Principal(principal), key)
		} else {
			id, err = parseID(args[0])
		}
		if err != nil {
			return err
		}
		return a.withService(cmd.Context(), func(s *service) error {
			r, err := s.Record(cmd.Context(), id)
			if err != nil {
				return err
			}
			return a.showRecord(&r)
		})
	}
	return c
}

func parseID(s string) (counterfoil.ID, error) {
	id, err := counterfoil.ParseID(s)
	if err != nil {
		return id, usagef("%w", err)
	}
	return id, nil
}

func (a *app) recordListCommand() *cobra.Command {
	var f admin.Filter
	var state, older string
	c := &cobra.Command{
		Use:   "list",
		Short: "List records, a page at a time",
		Long: `Lists records in the store's own order, a page at a time. Where there are more,
the cursor of the next page goes to stderr, and into the JSON form; it is good
while the serve that gave it runs. Without one, write a larger --limit.`,
		Example: `  counterfoil record list --state unknown --older-than 15m
  counterfoil record list --operation payment_create --limit 200 --output json`,
		Args: arguments(0, 0, "no arguments"),
	}
	c.Flags().StringVar(&f.Operation, "operation", "", "only records of this `OPERATION`")
	c.Flags().StringVar(&state, "state", "", "only records in this `STATE`: in_progress, unknown, failed, completed, tombstone, announced")
	c.Flags().StringVar(&older, "older-than", "", "only records made at least so `LONG` ago: 90s, 15m, 4h, 30d")
	c.Flags().IntVar(&f.Limit, "limit", admin.DefaultLimit, fmt.Sprintf("how many at most, up to %d", maxList))
	c.Flags().StringVar(&f.Cursor, "cursor", "", "go on where the page before ended")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if state != "" {
			if f.State, err = counterfoil.ParseState(state); err != nil {
				return usagef("--state: %w", err)
			}
		}
		if older != "" {
			if f.OlderThan, err = policy.ParseDuration(older); err != nil {
				return usagef("--older-than: %w", err)
			}
		}
		if f.Limit < 1 || f.Limit > maxList {
			return usagef("--limit %d is out of range; write 1 to %d, and go on with --cursor", f.Limit, maxList)
		}
		return a.withService(cmd.Context(), func(s *service) error {
			p, err := listUpTo(cmd.Context(), s, f)
			if err != nil {
				return err
			}
			switch {
			case p.NextCursor != "" && s.direct:
				p.NextCursor = "" // it ends with this process
				fmt.Fprintf(a.Stderr, "there are more; write a larger --limit than %d\n", f.Limit)
			case p.NextCursor != "":
				fmt.Fprintf(a.Stderr, "there are more: --cursor %s\n", p.NextCursor)
			}
			if a.out.json {
				return page(a.out, p)
			}
			a.listRecords(p.Items)
			return a.out.err
		})
	}
	return c
}

// maxList bounds what one command lists.
const maxList = 100_000

// listUpTo puts the pages together that f.Limit takes.
func listUpTo(ctx context.Context, s admin.Service, f admin.Filter) (admin.Page[admin.Record], error) {
	var all []admin.Record
	for want := f.Limit; ; {
		f.Limit = min(want-len(all), admin.MaxLimit)
		p, err := s.Records(ctx, f)
		if err != nil {
			return p, err
		}
		all, f.Cursor = append(all, p.Items...), p.NextCursor
		if len(all) >= want || f.Cursor == "" {
			return admin.NewPage(all, f.Cursor), nil
		}
	}
}

func (a *app) listRecords(list []admin.Record) {
	if len(list) == 0 {
		fmt.Fprintln(a.Stderr, "no such records")
		return
	}
	rows := make([][]cell, len(list))
	for i := range list {
		r := &list[i]
		rows[i] = []cell{
			plain(r.ID.String()), plain(r.Operation),
			{r.State, a.stateStyle(r.State)},
			plain(outcomeInWords(r.Outcome)),
			plain(age(r.AgeSeconds)), plain(mayGo(r)),
		}
	}
	a.out.table([]string{"id", "operation", "state", "outcome", "age", "may go"}, rows)
}

func (a *app) stateStyle(state string) func(string) string {
	switch state {
	case counterfoil.Unknown.String():
		return a.out.paint.red
	case counterfoil.InProgress.String():
		return a.out.paint.yellow
	case counterfoil.Completed.String():
		return a.out.paint.green
	}
	return nil
}

// age is a number of seconds to the two units that a person reads.
func age(s float64) string {
	d := time.Duration(s * float64(time.Second))
	for _, unit := range []time.Duration{policy.Day, time.Hour, time.Minute} {
		if d >= 2*unit {
			d = d.Truncate(unit)
			break
		}
	}
	return policy.FormatDuration(d.Truncate(time.Second))
}

// mayGo is when a record may be deleted, as far as anybody can say.
func mayGo(r *admin.Record) string {
	if r.MayGoAt == nil {
		return "not before it is settled"
	}
	return instant(*r.MayGoAt)
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func outcomeInWords(o *admin.Outcome) string {
	if o == nil {
		return "–"
	}
	s := o.Class
	if o.Status != 0 {
		s = fmt.Sprintf("%s %d", s, o.Status)
	}
	return s
}

// showRecord prints one record for people.
func (a *app) showRecord(r *admin.Record) error {
	if a.out.json {
		return items(a.out, []admin.Record{*r})
	}
	paint := a.stateStyle(r.State)
	if paint == nil {
		paint = a.out.paint.bold
	}
	a.out.line(fmt.Sprintf("%s  %s  %s", r.ID, r.Operation, paint(r.State)))
	a.out.line()
	for _, line := range wrap(r.Why, 78) {
		a.out.line("  " + line)
	}
	a.out.line()

	var rows [][]cell
	row := func(name, value string) { rows = append(rows, []cell{plain(name), plain(value)}) }
	when := func(name string, t *time.Time) {
		if t != nil {
			row(name, instant(*t))
		}
	}
	if r.Outcome != nil {
		row("outcome", outcomeInWords(r.Outcome))
		if r.Outcome.Resource != "" {
			row("resource", r.Outcome.Resource)
		}
	}
	if r.Proof != "" {
		row("proof", r.Proof)
	}
	if r.Reference != "" {
		row("reference", r.Reference)
	}
	row("may go", mayGo(r))
	row("created", fmt.Sprintf("%s, %s ago", instant(r.CreatedAt), age(r.AgeSeconds)))
	row("attempt", fmt.Sprint(r.Attempt))
	when("claimed", r.ClaimedAt)
	when("lease until", r.LeaseUntil)
	when("dispatched", r.LastDispatchAt)
	when("quiet at", r.QuietAt)
	when("settled", r.SettledAt)
	when("replay until", r.ReplayUntil)
	when("horizon", r.HorizonAt)
	when("announced", r.AnnouncedAt)
	for _, g := range r.Gates {
		row("gate "+g.Name, "open until "+instant(g.Until))
	}
	for _, h := range r.Holds {
		row("held", fmt.Sprintf("%s by %s: %s", instant(h.At), h.Actor, h.Reason))
	}
	row("policy", fmt.Sprintf("version %d", r.PolicyVersion))
	for _, flag := range []struct {
		name string
		set  bool
		what string
	}{
		{"observed", r.Observed, "made under mode: observe; it is never replayed"},
		{"erased", r.Erased, "its content was erased on request"},
	} {
		if flag.set {
			row(flag.name, flag.what)
		}
	}
	a.out.columns("  ", rows)
	a.showEvidence(r.Evidence)
	return a.out.err
}

func (a *app) showEvidence(list []admin.Evidence) {
	if len(list) == 0 {
		return
	}
	a.out.line()
	a.out.line("  " + a.out.paint.bold("evidence"))
	rows := make([][]cell, len(list))
	for i, e := range list {
		what := fmt.Sprintf("attempt %d", e.Attempt)
		if e.Count > 1 {
			what += fmt.Sprintf(", %d times", e.Count)
		}
		if e.Outcome != nil {
			what += ", " + strings.TrimSpace(outcomeInWords(e.Outcome)+" "+e.Outcome.Resource)
		}
		if e.Actor != "" {
			what += ", by " + e.Actor
		}
		if e.Reason != "" {
			what += ": " + e.Reason
		}
		rows[i] = []cell{plain(instant(e.At)), plain(e.Kind), plain(what)}
	}
	a.out.columns("  ", rows)
}

// wrap breaks text at spaces into lines of at most width characters, but for
// words that are longer.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
