package admin

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/reconcile"
	"github.com/counterfoil/counterfoil/sweep"
)

// Local is a Service over an engine of this process. It is safe for concurrent
// use. All fields are needed but Backup.
type Local struct {
	Engine     *counterfoil.Engine
	Sweeper    *sweep.Worker
	Reconciler *reconcile.Worker
	// BackupTo copies the store; nil when the store cannot.
	BackupTo func(ctx context.Context, dir string) error
	// Examine makes doctor's findings.
	Examine func(ctx context.Context) []Finding

	cursors *cursors
}

var _ Service = (*Local)(nil)

// NewLocal completes l.
func NewLocal(l Local) *Local {
	l.cursors = newCursors()
	return &l
}

// readTimeout bounds every question to the store.
const readTimeout = 10 * time.Second

// Records implements [Service].
func (l *Local) Records(ctx context.Context, f Filter) (Page[Record], error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	q := counterfoil.Query{State: f.State}
	if f.Limit < 0 || f.OlderThan < 0 {
		return Page[Record]{}, fmt.Errorf("%w: limit and older_than cannot be negative", ErrInvalid)
	}
	q.Limit = min(f.Limit, MaxLimit)
	if q.Limit == 0 {
		q.Limit = DefaultLimit
	}
	if f.Operation != "" {
		if q.Operation = l.Engine.OperationNumber(f.Operation); q.Operation == 0 {
			return Page[Record]{}, fmt.Errorf("%w: %w: %q", ErrInvalid, counterfoil.ErrOperationUnknown, f.Operation)
		}
	}
	if f.OlderThan > 0 {
		q.CreatedBefore = time.Now().Add(-f.OlderThan)
	}
	var err error
	if q.Cursor, err = l.cursors.open(f); err != nil {
		return Page[Record]{}, err
	}
	got, err := l.Engine.Store().Scan(ctx, q)
	if err != nil {
		return Page[Record]{}, fmt.Errorf("list records: %w", err)
	}
	items := make([]Record, len(got.Records))
	for i := range got.Records {
		items[i] = l.view(counterfoil.Snapshot{Record: got.Records[i], AsOf: got.AsOf})
	}
	return NewPage(items, l.cursors.seal(f, got.Next)), nil
}

func (l *Local) view(snap counterfoil.Snapshot) Record {
	return View(snap, l.Engine.OperationName(snap.Record.Operation))
}

// Record implements [Service].
func (l *Local) Record(ctx context.Context, id counterfoil.ID) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	snap, err := l.Engine.Store().Get(ctx, id)
	if err != nil {
		return Record{}, fmt.Errorf("record %s: %w", id, err)
	}
	return l.view(snap), nil
}

// Resolve implements [Service].
func (l *Local) Resolve(ctx context.Context, id counterfoil.ID, w Word) (Record, error) {
	res, err := w.resolution()
	if err != nil {
		return Record{}, err
	}
	snap, err := l.Engine.Resolve(ctx, id, res)
	if err != nil {
		return Record{}, err
	}
	return l.view(snap), nil
}

// resolution is the word as the engine takes it.
func (w Word) resolution() (counterfoil.Resolution, error) {
	res := counterfoil.Resolution{Early: w.Early, Actor: w.Actor, Reason: w.Reason, IfRev: w.Rev}
	invalid := func(format string, args ...any) (counterfoil.Resolution, error) {
		return counterfoil.Resolution{}, fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
	switch {
	case w.Reason == "":
		return invalid("say why: a reason is kept as evidence")
	case w.Actor == "":
		return invalid("say who: an actor is kept as evidence")
	case len(w.Reason) > counterfoil.MaxReason:
		return invalid("the reason is longer than %d bytes", counterfoil.MaxReason)
	case len(w.Resource) > counterfoil.MaxResource:
		return invalid("the resource is longer than %d bytes", counterfoil.MaxResource)
	case w.Status != 0 && (w.Status < 100 || w.Status > 599):
		return invalid("status %d is none; write 100 to 599", w.Status)
	}
	switch w.Proof {
	case "", "quiet":
		res.Proof = counterfoil.ProofQuiet
	case "cancelled":
		res.Proof = counterfoil.ProofCancelled
	case "deduped":
		res.Proof = counterfoil.ProofDeduped
	default:
		return invalid("proof %q is none; write quiet, cancelled or deduped", w.Proof)
	}
	res.Outcome = counterfoil.Outcome{Status: w.Status, Resource: w.Resource}
	switch w.Outcome {
	case OutcomeSucceeded:
		res.Applied, res.Outcome.Class = true, counterfoil.Succeeded
		if w.Status == 0 {
			res.Outcome.Status = 200
		}
	case OutcomeDeclined:
		res.Applied, res.Outcome.Class = true, counterfoil.Declined
		if w.Status == 0 {
			res.Outcome.Status = 422
		}
	case OutcomeAbsent:
		if w.Status != 0 || w.Resource != "" {
			return invalid("what is absent has no status and no resource")
		}
	default:
		return invalid("outcome %q is none; write succeeded, declined or absent", w.Outcome)
	}
	if res.Applied && (w.Proof != "" || w.Early) {
		return invalid("proof and early are about absence")
	}
	return res, nil
}

// Operations implements [Service].
func (l *Local) Operations(ctx context.Context) (Page[Operation], error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	stats, err := l.Engine.Store().Stats(ctx)
	if err != nil {
		return Page[Operation]{}, fmt.Errorf("count records: %w", err)
	}
	p := l.Engine.Policy()
	items := make([]Operation, len(p.Operations))
	for i := range p.Operations {
		o := &p.Operations[i]
		s := stats.Operations[l.Engine.OperationNumber(o.Name)]
		items[i] = Operation{
			Name: o.Name, PolicyVersion: p.Version, Match: o.Match,
			Principal: o.Scope.Principal.String(), Family: o.Family(), KeyHeader: o.Key.Header, KeyRequired: o.Key.Required,
			TTLSeconds: o.TTL().Seconds(), HorizonSeconds: o.Retention().Seconds(), ReplaySeconds: o.Replay().Seconds(),
			ExpectedRows: o.ExpectedRows(), Records: map[string]int64{}, Overdue: s.Overdue, OldestUnknown: instant(s.OldestUnknown),
		}
		for st := counterfoil.InProgress; st <= counterfoil.Announced; st++ {
			items[i].Records[st.String()] = s.Count(st)
		}
	}
	return NewPage(items, ""), nil
}

// Sweep implements [Service].
func (l *Local) Sweep(ctx context.Context) (SweepResult, error) {
	rep, err := l.Sweeper.Once(ctx)
	return SweepResult{
		Version: Version, Complete: rep.Complete, Batches: rep.Batches, Examined: rep.Examined,
		ResponsesDropped: rep.ResponsesDropped, Tombstoned: rep.Tombstoned, Closed: rep.Closed, Announced: rep.Announced,
		TombstonesDeleted: rep.TombstonesDeleted, FailedDeleted: rep.FailedDeleted, Kept: rep.Kept, AsOf: rep.AsOf,
	}, err
}

// Reconcile implements [Service].
func (l *Local) Reconcile(ctx context.Context) (ReconcileResult, error) {
	rep, err := l.Reconciler.Once(ctx)
	return ReconcileResult{
		Version: Version, Examined: rep.Examined, Unknown: rep.Unknown, Failed: rep.Failed,
		Left: rep.Left, Errors: rep.Errors, AsOf: rep.AsOf,
	}, err
}

// Backup implements [Service].
func (l *Local) Backup(ctx context.Context, dir string) error {
	switch {
	case l.BackupTo == nil:
		return fmt.Errorf("%w: a %s store has no backup", ErrInvalid, l.Engine.Store().Info().Kind)
	case !filepath.IsAbs(dir):
		return fmt.Errorf("%w: the directory must be an absolute path on the machine that has the store", ErrInvalid)
	}
	return l.BackupTo(ctx, filepath.Clean(dir))
}

// Trust implements [Service].
func (l *Local) Trust(ctx context.Context, w TrustWord) error {
	if w.Reason == "" || w.Actor == "" || len(w.Reason) > counterfoil.MaxReason {
		return fmt.Errorf("%w: say who trusts the store again, and why, in at most %d bytes", ErrInvalid, counterfoil.MaxReason)
	}
	return l.Engine.TrustAgain(ctx, w.Actor, w.Reason)
}

// Doctor implements [Service].
func (l *Local) Doctor(ctx context.Context) (Page[Finding], error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return NewPage(l.Examine(ctx), ""), nil
}
