package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/admin"
)

func (a *app) recordResolveCommand() *cobra.Command {
	var w admin.Word
	var applied, absent bool
	c := &cobra.Command{
		Use:   "resolve ID",
		Short: "Settle a record whose outcome is unknown, by a person's word",
		Long: `Settles a record whose outcome nobody knows. Look the effect up downstream
first: the record's id went there as Counterfoil-Identity.

  --applied   it happened; duplicates get --status and --resource from now on.
  --absent    it did not, and the same key may run again. That is believed once
              nothing sent can still take effect (quiet_at of record show), or
              with --proof: cancelled (voided downstream) or deduped (downstream
              drops repeats of the same identity).

Who said so, and why, is kept in the record's evidence.`,
		Example: `  counterfoil record resolve 5f3a9c0d1e2b4a6788990011223344556677aabb \
    --applied --status 201 --resource /v1/payments/pay_1 --reason "found in the ledger"
  counterfoil record resolve 5f3a9c0d1e2b4a6788990011223344556677aabb \
    --absent --reason "not in the bank's file of today"`,
		Args: arguments(1, 1, "one record id"),
	}
	f := c.Flags()
	f.BoolVar(&applied, "applied", false, "the effect happened")
	f.BoolVar(&absent, "absent", false, "the effect did not happen")
	f.IntVar(&w.Status, "status", 0, "with --applied: the `STATUS` that duplicates get; default: 200, or 422 when declined")
	f.StringVar(&w.Outcome, "outcome", admin.OutcomeSucceeded, "with --applied: succeeded or declined")
	f.StringVar(&w.Resource, "resource", "", "with --applied: the `PATH` where the caller may look the result up")
	f.StringVar(&w.Proof, "proof", "", "with --absent: cancelled or deduped")
	f.BoolVar(&w.Early, "early", false, "with --absent: say so although something sent may still arrive; the reason is kept")
	f.StringVar(&w.Reason, "reason", "", "why; kept as evidence (required)")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := parseID(args[0])
		if err != nil {
			return err
		}
		if err := checkWord(&w, applied, absent, f.Changed); err != nil {
			return err
		}
		return a.withService(cmd.Context(), func(s *service) error {
			w.Actor = s.actor
			r, err := s.Resolve(cmd.Context(), id, w)
			if err != nil {
				return resolveHint(err)
			}
			return a.showRecord(&r)
		})
	}
	return c
}

// checkWord refuses flags that contradict each other, before anything is
// opened.
func checkWord(w *admin.Word, applied, absent bool, given func(string) bool) error {
	if applied == absent {
		return usagef("say what happened: --applied or --absent")
	}
	if strings.TrimSpace(w.Reason) == "" {
		return usagef("say why with --reason; it is kept as evidence")
	}
	if len(w.Reason) > counterfoil.MaxReason {
		return usagef("--reason is %d bytes long; at most %d are kept", len(w.Reason), counterfoil.MaxReason)
	}
	if applied {
		switch {
		case w.Outcome != admin.OutcomeSucceeded && w.Outcome != admin.OutcomeDeclined:
			return usagef("--outcome %q is not known; write succeeded or declined", w.Outcome)
		case w.Proof != "" || w.Early:
			return usagef("--proof and --early are about absence; take them out, or write --absent")
		case given("status") && (w.Status < 100 || w.Status > 599):
			return usagef("--status %d is no HTTP status; write 100 to 599", w.Status)
		}
		return nil
	}
	switch {
	case given("outcome") || given("status") || given("resource"):
		return usagef("what did not happen has no --outcome, --status or --resource; take them out, or write --applied")
	case w.Proof != "" && w.Proof != "cancelled" && w.Proof != "deduped":
		return usagef("--proof %q is not known; write cancelled or deduped, or leave it out", w.Proof)
	}
	w.Outcome = admin.OutcomeAbsent
	return nil
}

// resolveHint says what a person can do about a refusal.
func resolveHint(err error) error {
	switch {
	case errors.Is(err, counterfoil.ErrTooEarly):
		return &hintedError{err, "Or give a proof that holds at once: --proof cancelled (voided downstream), or --proof deduped (downstream drops repeats)."}
	case errors.Is(err, counterfoil.ErrSettled):
		return &hintedError{err, "A known outcome never changes. See it with: counterfoil record show ID"}
	}
	return err
}
