package wire

import (
	"context"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/admin"
	"github.com/counterfoil/counterfoil/pebblestore"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/sweep"
)

// Ready reports why no request should be sent here: the store does not answer,
// is not trusted, or its charter no longer agrees with the policy in force.
func (c *Core) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	trust, _, err := counterfoil.ReadTrust(ctx, c.Store)
	if err != nil {
		return fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
	}
	if !trust.Trusted() {
		return fmt.Errorf("%w since %s: %s", counterfoil.ErrUntrusted, trust.DistrustedAt.Format(time.RFC3339), trust.Reason)
	}
	charter, _, err := counterfoil.ReadCharter(ctx, c.Store)
	if err != nil {
		return fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
	}
	return c.agrees(charter)
}

const readyTimeout = 2 * time.Second

// agrees holds the policy in force against the charter as it stands now:
// another process may have changed it since this one started.
func (c *Core) agrees(charter *counterfoil.Charter) error {
	if charter.IndexKeyCheck != c.key.Check() {
		return fmt.Errorf("%w: the index key is another one", counterfoil.ErrCharter)
	}
	kept := map[string]counterfoil.CharterOperation{}
	for _, o := range charter.Operations {
		kept[o.Name] = o
		for _, former := range o.Former {
			kept[former] = o
		}
	}
	p := c.Engine.Policy()
	for i := range p.Operations {
		op := &p.Operations[i]
		k, ok := kept[op.Name]
		if !ok || k.Principal != op.Scope.Principal.String() || k.Family != op.Family() || k.KeyHeader != op.Key.Header {
			return fmt.Errorf("%w: operation %s was changed by another process", counterfoil.ErrCharter, op.Name)
		}
	}
	return nil
}

// sweepStale is how old the last sweep may be before doctor complains: five
// times its interval, and the pause after a start.
const sweepStale = 10 * time.Minute

// examine makes doctor's findings about an open store.
func (c *Core) examine(ctx context.Context) []admin.Finding {
	var found []admin.Finding
	add := func(severity policy.Severity, code, field, message, remedy string) {
		found = append(found, admin.Finding{Severity: string(severity), Code: code, Field: field, File: c.Config.File, Message: message, Remedy: remedy})
	}
	info := c.Store.Info()
	if s, ok := c.Store.(*pebblestore.Store); ok {
		for _, f := range s.Doctor(ctx) {
			if f.Severity != pebblestore.OK {
				found = append(found, admin.Finding{Severity: string(f.Severity), Code: f.Code, Field: "store", File: c.Config.File, Message: f.Message, Remedy: f.Remedy})
			}
		}
	}
	if s, ok := c.Store.(*pgstore.Store); ok {
		list, err := s.Doctor(ctx)
		if err != nil {
			add(policy.SeverityError, counterfoil.Code(err), "store", err.Error(), "look at the database's log")
		}
		for _, f := range list {
			if f.Severity != pgstore.OK {
				found = append(found, admin.Finding{Severity: string(f.Severity), Code: f.Code, Field: "store", File: c.Config.File, Message: f.Message, Remedy: f.Remedy})
			}
		}
	}
	if err := c.Ready(ctx); err != nil {
		add(policy.SeverityError, counterfoil.Code(err), "store", err.Error(), readyRemedy(err))
	}
	if info.SingleProcess {
		add(policy.SeverityWarning, "single-process", "store", fmt.Sprintf("a %s store protects the requests of one process only", info.Kind),
			"run one counterfoil in front of the service; behind a load balancer a retry may reach another one and run again")
	}
	if info.Durability == policy.DurabilityC {
		add(policy.SeverityWarning, policy.AcceptMayLoseClaims, "store", fmt.Sprintf("a %s store forgets every key when the process ends", info.Kind), "write store: pebble:./data")
	}
	if c.Config.IndexKeyFile == "" {
		add(policy.SeverityWarning, "index-key-missing", "index_key_file", "digests are made without a key, so whoever reads the store can test guesses of keys and principals",
			"before the first record is made, write index_key_file: index.key, a file of 32 random bytes; later it would forget every key")
	}
	if c.Config.Observe {
		add(policy.SeverityWarning, "observing", "mode", "nothing is guarded: every request is let through", "write mode: enforce when the figures look right")
	}
	switch last, err := sweep.LastRun(ctx, c.Store); {
	case err != nil:
		add(policy.SeverityWarning, "sweep-unknown", "", "when a sweep last ran cannot be read: "+err.Error(), "run counterfoil sweep")
	case last.Run.IsZero():
		add(policy.SeverityWarning, "sweep-never", "", "no sweep ever completed, so nothing is let go", "leave counterfoil serve running, or run counterfoil sweep from cron")
	case time.Since(last.Run) > sweepStale:
		add(policy.SeverityError, "sweep-stale", "", "the last sweep that completed was at "+last.Run.Format(time.RFC3339)+fmt.Sprintf(", and %d failed since", last.Failures),
			"look for \"sweep failed\" in the log; run counterfoil sweep")
	}
	if !c.Engine.MaySweep() {
		add(policy.SeverityWarning, "policy-old", "policy", fmt.Sprintf("this process runs policy version %d and the store has seen a newer one, so it does not sweep", c.Engine.Policy().Version), "deploy the newer policy here")
	}
	return found
}

func readyRemedy(err error) string {
	switch counterfoil.Code(err) {
	case "store-untrusted":
		return "find out what was lost, then say so: counterfoil store trust --reason …"
	case "charter":
		return "restart with the configuration that the store was made with"
	}
	return "look at the store's disk and at the log"
}
