// Package wire is the one place that names every store: it turns a
// configuration into an open engine with its workers, and into the guarded way
// to the upstream.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/admin"
	"github.com/counterfoil/counterfoil/cmd/internal/config"
	"github.com/counterfoil/counterfoil/cmd/internal/faultpoint"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/pebblestore"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/policyfile"
	"github.com/counterfoil/counterfoil/promtrace"
	"github.com/counterfoil/counterfoil/reconcile"
	"github.com/counterfoil/counterfoil/storecopy"
	"github.com/counterfoil/counterfoil/sweep"
)

// Options of [Open]. The zero value works.
type Options struct {
	Logger *slog.Logger
	// Forget names operations whose keys may be forgotten (--forget).
	Forget []string
	// Accept are dangers taken on by name where no configuration says so.
	Accept []string
	// Adopt opens a directory that was copied from elsewhere (--adopt).
	Adopt bool
}

// Core is an open store with its engine and workers. Nothing runs in it by
// itself but what the store needs; Close releases everything.
type Core struct {
	Config     *config.Config
	Store      counterfoil.Store
	Engine     *counterfoil.Engine
	Metrics    *promtrace.Metrics
	Registry   *prometheus.Registry
	Sweeper    *sweep.Worker
	Reconciler *reconcile.Worker
	// Service answers what people ask and does what they say.
	Service admin.Service

	log *slog.Logger
	key counterfoil.IndexKey
}

// Open reads the policy, opens the store and brings the two together. It
// refuses what would lose protection: a store weaker than the policy demands,
// a configuration that would forget keys ([counterfoil.CharterError]), a
// directory that another process has open.
func Open(ctx context.Context, c *config.Config, o Options) (_ *Core, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p, err := policyfile.Load(c.Policy)
	if err != nil {
		return nil, err
	}
	if err := checkPrincipals(c, p); err != nil {
		return nil, err
	}
	key, err := IndexKey(c)
	if err != nil {
		return nil, err
	}
	store, err := openStore(ctx, c, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, store.Close())
		}
	}()
	if err := checkDurability(c, p, store.Info()); err != nil {
		return nil, err
	}
	core := &Core{Config: c, Store: store, Registry: prometheus.NewRegistry(), log: o.Logger, key: key}
	core.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	warn := func(what string) func(error) {
		return func(err error) { o.Logger.Error(what, "error", err) }
	}
	core.Metrics = promtrace.New(promtrace.Options{
		Registerer: core.Registry, Store: store.Info().Kind, Policy: p, OnError: warn("records could not be counted"),
	})
	if err = storecopy.Unfinished(ctx, store); err != nil {
		return nil, err
	}
	core.Engine, err = counterfoil.Open(ctx, faultpoint.Wrap(store), p, counterfoil.Options{
		IndexKey: key, Trace: core.Metrics.Trace(), Observe: c.Observe, Forget: o.Forget,
	})
	if err != nil {
		return nil, err
	}
	core.Metrics.Watch(core.Engine)
	core.Sweeper = sweep.New(core.Engine, sweep.Options{
		Limit: sweepLimit, Grace: Grace(store.Info()), Trace: core.Metrics.Trace(), OnError: warn("sweep failed"),
	})
	core.Reconciler = reconcile.New(core.Engine, reconcile.Options{Every: reconcileEvery(p), OnError: warn("reconciliation failed")})
	local := admin.Local{Engine: core.Engine, Sweeper: core.Sweeper, Reconciler: core.Reconciler, Examine: core.examine}
	if b, ok := store.(interface {
		Backup(ctx context.Context, dir string) error
	}); ok {
		local.BackupTo = b.Backup
	}
	if s, ok := store.(*pgstore.Store); ok {
		core.Registry.MustRegister(&database{store: s, onError: warn("the database's figures could not be read")})
	}
	core.Service = admin.NewLocal(local)
	return core, nil
}

// sweepLimit is how many records a batch of expiry looks at. Both stores work on
// a view of their own, so that a large batch holds nobody up, and each batch
// waits once for the disk.
const sweepLimit = 200_000

// RefreshEvery is how often serve reads again what other nodes wrote.
const RefreshEvery = 15 * time.Second

// Grace is how long an announced record still answers: three times the interval
// in which every node has read the new F (design.md §7). One process needs none.
func Grace(info counterfoil.Info) time.Duration {
	if info.SingleProcess {
		return 0
	}
	return 3 * RefreshEvery
}

// Close waits, until ctx ends, for outcomes that are still being settled, and
// closes the store.
func (c *Core) Close(ctx context.Context) error {
	return errors.Join(c.Engine.Close(ctx), c.Store.Close())
}

func openStore(ctx context.Context, c *config.Config, o Options) (counterfoil.Store, error) {
	switch c.Store.Kind {
	case config.StoreMemory:
		return memstore.New(memstore.Options{}), nil
	case config.StorePebble:
		return pebblestore.Open(c.Store.Dir, pebblestore.Options{Logger: o.Logger, Adopt: o.Adopt})
	case config.StorePostgres:
		s, err := OpenPostgres(ctx, c, o.Logger)
		if err != nil {
			return nil, err // not a nil *Store in an interface
		}
		return s, nil
	}
	return nil, fmt.Errorf("store %s: this version knows only pebble:, postgres: and memory: stores", c.Store)
}

// OpenPostgres opens the store of a configuration as what it is.
func OpenPostgres(ctx context.Context, c *config.Config, log *slog.Logger) (*pgstore.Store, error) {
	return pgstore.Open(ctx, c.Store.URL, pgstore.Options{
		Schema: c.Store.Schema, Logger: log, AcceptLoss: slices.Contains(c.Accept, policy.AcceptMayLoseClaims),
	})
}

// reconcileEvery is the shortest cadence that an operation declares, and never
// more than 15 s: until a pass, an abandoned claim stands as in progress in
// listings and metrics.
func reconcileEvery(p *policy.Policy) time.Duration {
	every := 15 * time.Second
	for i := range p.Operations {
		if d := p.Operations[i].Inputs.ReconciliationCadence.Total(); d > 0 {
			every = min(every, d)
		}
	}
	return max(every, time.Second)
}

// IndexKey reads index_key_file; without one digests are made without a key.
func IndexKey(c *config.Config) (counterfoil.IndexKey, error) {
	if c.IndexKeyFile == "" {
		return counterfoil.IndexKey{}, nil
	}
	f, err := os.Open(c.IndexKeyFile)
	if err != nil {
		return counterfoil.IndexKey{}, fmt.Errorf("index_key_file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return counterfoil.IndexKey{}, fmt.Errorf("index_key_file: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o007 != 0 {
		return counterfoil.IndexKey{}, fmt.Errorf("index_key_file: %s is not a regular file that is kept from others (mode %04o); chmod 600 it", c.IndexKeyFile, info.Mode().Perm())
	}
	secret, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return counterfoil.IndexKey{}, fmt.Errorf("index_key_file: %w", err)
	}
	key, err := counterfoil.NewIndexKey(secret)
	if err != nil {
		return counterfoil.IndexKey{}, fmt.Errorf("index_key_file: %s: %w", c.IndexKeyFile, err)
	}
	return key, nil
}

// checkDurability refuses a store that may lose what an operation must keep,
// unless the operator took that on by name.
func checkDurability(c *config.Config, p *policy.Policy, info counterfoil.Info) error {
	if slices.Contains(c.Accept, policy.AcceptMayLoseClaims) {
		return nil
	}
	var short []string
	for i := range p.Operations {
		op := &p.Operations[i]
		if !info.Durability.Meets(op.Durability) && !slices.Contains(op.Accept, policy.AcceptMayLoseClaims) {
			short = append(short, fmt.Sprintf("%s demands class %s", op.Name, op.Durability))
		}
	}
	if len(short) == 0 {
		return nil
	}
	return fmt.Errorf("store %s has durability class %s, and %s; use a stronger store, or write accept: [%s]",
		c.Store, info.Durability, strings.Join(short, ", "), policy.AcceptMayLoseClaims)
}

// checkPrincipals refuses a policy that asks whom the configuration does not
// name.
func checkPrincipals(c *config.Config, p *policy.Policy) error {
	for i := range p.Operations {
		op := &p.Operations[i]
		if op.Scope.Principal.Kind == policy.PrincipalAuthRequest && c.AuthRequest == nil {
			return fmt.Errorf("%s: operations.%s.scope.principal is auth_request, and counterfoil.yaml does not say whom to ask; write auth_request: {url: …}", c.Policy, op.Name)
		}
	}
	return nil
}
