package counterfoil

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// FingerprintFunc digests the request under the rules of op and the given
// version of the algorithm; version 0 stands for the newest. A standing record
// is compared under the policy and version that made it (cases.md C68). An
// error for an old version makes the record unreadable, never absent.
type FingerprintFunc func(op *policy.Operation, version uint8) (Fingerprint, error)

// Request is one arrival at a guarded operation.
type Request struct {
	Operation   string
	Principal   Principal
	Key         Key
	Fingerprint FingerprintFunc
	// FirstSent is when the caller says it first sent this request; zero when
	// it does not say.
	FirstSent time.Time
	// NoWait answers in progress at once, whatever the policy's wait.
	NoWait bool
}

// Decision is the answer to a Request.
type Decision struct {
	Ruling
	ID ID
	// Operation holds the rules of today's policy.
	Operation *policy.Operation
	// Record is the standing record, or the one just claimed; its State is
	// Absent where there is none, and where a transaction that has not ended
	// holds the key, so that nobody can tell (VerdictInProgress then).
	Record Record
	AsOf   time.Time
	// Response is set on VerdictReplay.
	Response []byte
	// Claim is set on VerdictProceed, and nowhere else. The caller must end it.
	Claim *Claim
	// repeatOf is when the record was made that this claim opened again, or took
	// the place of.
	repeatOf time.Time
	// RetryAfter is when it makes sense to ask again; zero: nothing will look.
	RetryAfter time.Duration
}

// Options of [Open]. The zero value works.
type Options struct {
	IndexKey IndexKey
	Trace    *Trace
	// StoreTimeout bounds every store call of a request; 0 stands for 2 s.
	StoreTimeout time.Duration
	// Observe marks the records made (mode: observe).
	Observe bool
	// Forget names operations whose keys may be forgotten because their scope,
	// family, header or the index key changed.
	Forget []string
}

// Engine decides and claims. It is safe for concurrent use.
type Engine struct {
	store Store
	o     Options
	rules atomic.Pointer[rules]
	trust atomic.Pointer[Trust]

	reload sync.Mutex // held while rules or trust are replaced

	flights flights

	stop     context.Context
	cancel   context.CancelFunc
	ending   sync.Mutex // guards closing, and wg against Add beside Wait
	closing  bool
	wg       sync.WaitGroup
	unsettle atomic.Int64 // background settlements under way
}

// rules is one consistent view of policy and charter.
type rules struct {
	policy  *policy.Policy
	charter *Charter
	numbers map[string]OperationNumber
	// kin are the other operations of each operation's family.
	kin     map[string][]OperationNumber
	history map[uint32]*policy.Policy
}

func newRules(p *policy.Policy, c *Charter) *rules {
	r := &rules{
		policy: p, charter: c, numbers: map[string]OperationNumber{},
		kin: map[string][]OperationNumber{}, history: map[uint32]*policy.Policy{},
	}
	for i := range p.Operations {
		// A node that runs an older policy knows the operation by a former name.
		name := p.Operations[i].Name
		o := c.known(name)
		if o == nil {
			continue
		}
		r.numbers[name] = o.Number
		for _, k := range c.Operations {
			if k.Number != o.Number && k.Family == o.Family {
				r.kin[name] = append(r.kin[name], k.Number)
			}
		}
	}
	for _, v := range c.Policies {
		// A version that cannot be read stays out: records made under it are
		// answered as unreadable.
		if old, err := policy.ParseText(v.Text); err == nil {
			r.history[v.Version] = old
		}
	}
	r.history[p.Version] = p
	return r
}

// made returns the operation as the policy that made rec has it, or nil.
func (r *rules) made(rec *Record) *policy.Operation {
	p := r.history[rec.Policy]
	o := r.charter.number(rec.Operation)
	if p == nil || o == nil {
		return nil
	}
	if op := p.Operation(o.Name); op != nil {
		return op
	}
	for _, name := range o.Former {
		if op := p.Operation(name); op != nil {
			return op
		}
	}
	return nil
}

// Open brings store and policy together and returns an engine. It refuses,
// with a [CharterError] that says what would be forgotten, when they disagree.
// The engine does not close the store.
func Open(ctx context.Context, s Store, p *policy.Policy, o Options) (*Engine, error) {
	if o.StoreTimeout <= 0 {
		o.StoreTimeout = 2 * time.Second
	}
	c, err := agreeCharter(ctx, s, p, o.IndexKey, o.Forget)
	if err != nil {
		return nil, err
	}
	e := &Engine{store: s, o: o}
	e.stop, e.cancel = context.WithCancel(context.Background())
	e.rules.Store(newRules(p, c))
	if err := e.Refresh(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Close waits for outcomes that are still being settled in the background,
// until ctx ends; what is not settled by then stays in progress, and becomes
// unknown when its lease lapses.
func (e *Engine) Close(ctx context.Context) error {
	e.ending.Lock()
	e.closing = true
	e.ending.Unlock()
	done := make(chan struct{})
	go func() { e.wg.Wait(); close(done) }()
	select {
	case <-done:
		e.cancel()
		return nil
	case <-ctx.Done():
		n := e.Settling()
		e.cancel()
		<-done
		return fmt.Errorf("%d outcomes could not be written to the store in time; their records become unknown when the lease lapses: %w", n, ctx.Err())
	}
}

// Policy is the policy in force.
func (e *Engine) Policy() *policy.Policy { return e.rules.Load().policy }

// Store is the store beneath.
func (e *Engine) Store() Store { return e.store }

// Trusted reports whether absence in the store proves anything.
func (e *Engine) Trusted() bool { return e.trust.Load().Trusted() }

// Settling is how many outcomes are being settled in the background.
func (e *Engine) Settling() int64 { return e.unsettle.Load() }

// OperationName is the name of a record's operation; "" when the charter does
// not know the number.
func (e *Engine) OperationName(n OperationNumber) string {
	if o := e.rules.Load().charter.number(n); o != nil {
		return o.Name
	}
	return ""
}

// OperationNumber is the charter's number of a name; 0 when there is none.
func (e *Engine) OperationNumber(name string) OperationNumber {
	return e.rules.Load().numbers[name]
}

// RecordID works out where the record of a request stands.
func (e *Engine) RecordID(operation string, p Principal, k Key) (ID, error) {
	op := e.Policy().Operation(operation)
	if op == nil {
		return ID{}, fmt.Errorf("%w: %q", ErrOperationUnknown, operation)
	}
	return e.o.IndexKey.ID(p, op.Family(), k), nil
}

// SetPolicy puts a new policy in force for new records; existing ones keep
// theirs. The charter is held against it as in Open.
func (e *Engine) SetPolicy(ctx context.Context, p *policy.Policy) error {
	e.reload.Lock()
	defer e.reload.Unlock()
	c, err := agreeCharter(ctx, e.store, p, e.o.IndexKey, nil)
	if err != nil {
		return err
	}
	e.rules.Store(newRules(p, c))
	return nil
}

// Refresh reads again what other nodes and people may have written: the
// charter and the store's trust.
func (e *Engine) Refresh(ctx context.Context) error {
	e.reload.Lock()
	defer e.reload.Unlock()
	t, _, err := ReadTrust(ctx, e.store)
	if err != nil {
		return err
	}
	c, _, err := ReadCharter(ctx, e.store)
	if err != nil {
		return err
	}
	if had := e.rules.Load().charter; len(c.Policies) < len(had.Policies) || len(c.Operations) < len(had.Operations) {
		return fmt.Errorf("refresh: %w: the store forgot its charter; it went back in time, or is another store", ErrUntrusted)
	}
	e.trust.Store(&t)
	e.rules.Store(newRules(e.Policy(), c))
	return nil
}

// MaySweep reports whether this node's policy is the newest the store has
// seen; one that runs an older version does not sweep (design.md §5).
func (e *Engine) MaySweep() bool {
	r := e.rules.Load()
	return r.policy.Version >= r.charter.Newest()
}

// Begin decides on a request and, where it may proceed, claims it: the claim
// is durable before Begin returns. Expected answers are verdicts; an error
// (ErrKeyInvalid, ErrScopeMissing, ErrOperationUnknown, ErrOverQuota, or one
// that wraps ErrUnavailable) means that nothing may be attempted.
func (e *Engine) Begin(ctx context.Context, req *Request) (*Decision, error) {
	return e.answer(ctx, req, e.book())
}

// answer is Begin on the records of bk.
func (e *Engine) answer(ctx context.Context, req *Request, bk book) (*Decision, error) {
	d, err := e.begin(ctx, req, bk)
	if err != nil {
		e.o.Trace.refused(req.Operation, err)
		return nil, err
	}
	ev := Decided{Operation: req.Operation, ID: d.ID, Ruling: d.Ruling, Observed: e.o.Observe, Horizon: d.Operation.Retention()}
	if d.Claim == nil && d.Record.State != Absent {
		ev.Age = max(d.AsOf.Sub(d.Record.CreatedAt), 0)
	}
	if !d.repeatOf.IsZero() {
		ev.Age = max(d.AsOf.Sub(d.repeatOf), 0)
	}
	e.o.Trace.decided(ev)
	return d, nil
}

func (e *Engine) begin(ctx context.Context, req *Request, bk book) (*Decision, error) {
	r := e.rules.Load()
	op := r.policy.Operation(req.Operation)
	if op == nil {
		return nil, fmt.Errorf("%w: %q", ErrOperationUnknown, req.Operation)
	}
	if req.Principal == "" && op.Scope.Principal.Kind != policy.PrincipalAnonymous {
		return nil, fmt.Errorf("%w: operation %s takes it from %s", ErrScopeMissing, op.Name, op.Scope.Principal)
	}
	if err := req.Key.Validate(); err != nil {
		return nil, err
	}
	if err := req.Key.ValidateFormat(op.Key.Format); err != nil {
		return nil, err
	}
	fp, err := req.Fingerprint(op, 0)
	if err != nil {
		return nil, fmt.Errorf("fingerprint: %w", err)
	}
	b := beginning{
		book: bk, r: r, op: op, req: req, fp: fp,
		id:      e.o.IndexKey.ID(req.Principal, op.Family(), req.Key),
		trusted: e.Trusted(),
		start:   time.Now(),
	}
	b.born, b.bornBy = req.Key.Birth(op.Key.Format, req.FirstSent)
	return b.decide(ctx)
}

// beginning is one Begin under way.
type beginning struct {
	book
	r       *rules
	op      *policy.Operation
	req     *Request
	fp      Fingerprint
	id      ID
	trusted bool
	start   time.Time
	born    time.Time
	bornBy  Witness
}

// maxTries bounds how often one Begin decides again because a record moved
// under it.
const maxTries = 16

func (b *beginning) decide(ctx context.Context) (*Decision, error) {
	began := b.start
	for tries := 0; tries < maxTries; {
		b.start = time.Now() // what a claim's deadline counts from
		d, err := b.once(ctx)
		switch {
		case errors.Is(err, ErrConflict), errors.Is(err, ErrFenced), errors.Is(err, ErrNotFound):
			tries++
			continue // somebody else was first: decide again on what stands now
		case err != nil:
			return nil, err
		case d.Verdict != VerdictInProgress || b.req.NoWait || b.e.o.Observe || b.tx != nil:
			return d, nil
		}
		left := b.op.Wait - time.Since(began)
		if left <= 0 || !b.wait(ctx, left, d.Record.State == Absent) {
			return d, nil
		}
	}
	return nil, fmt.Errorf("%w: record %s keeps changing", ErrUnavailable, b.id)
}

// once decides on what stands at one instant.
func (b *beginning) once(ctx context.Context) (*Decision, error) {
	// Where absence alone does not let the key proceed, look before inserting.
	if !b.trusted || b.born.After(time.Now().Add(ClockTolerance)) {
		snap, err := b.get(ctx)
		switch {
		case err == nil:
			return b.judge(ctx, snap)
		case errors.Is(err, ErrBusy):
			return b.busy(), nil
		case !errors.Is(err, ErrNotFound):
			return nil, err
		}
		return b.absentBut(ctx)
	}
	return b.claimFirst(ctx, false)
}

// absentBut rules on an absent key with F read from the store.
func (b *beginning) absentBut(ctx context.Context) (*Decision, error) {
	cctx, own := b.bound(ctx)
	defer own.cancel()
	f, _, err := readForgotten(cctx, b.store)
	if err != nil {
		return nil, unavailable(err)
	}
	facts := b.absentFacts(f.latest(b.r.numbers[b.op.Name], b.r.kin[b.op.Name]))
	ruling := Decide(&facts)
	if ruling.Verdict != VerdictProceed {
		return b.decision(ruling, Snapshot{AsOf: facts.Now}), nil
	}
	d, err := b.claimFirst(ctx, ruling.Late != WitnessNone)
	if err == nil && d.Verdict == VerdictProceed {
		d.Late = ruling.Late
	}
	return d, err
}

func (b *beginning) absentFacts(forgotten time.Time) Facts {
	return Facts{
		Now: time.Now(), Trusted: b.trusted, Born: b.born, BornBy: b.bornBy,
		Forgotten: forgotten, Ghosts: GhostsOff, Late: b.op.Late,
	}
}

// claimFirst inserts attempt 1, or judges what stands. With late the key was
// already found to be older than F and may run all the same.
func (b *beginning) claimFirst(ctx context.Context, late bool) (*Decision, error) {
	rec := Record{
		ID: b.id, Principal: b.e.o.IndexKey.Principal(b.req.Principal), Operation: b.r.numbers[b.op.Name],
		State: InProgress, Attempt: 1, Token: NewToken(), Fingerprint: b.fp, Policy: b.r.policy.Version,
		Dispatched: b.op.Dispatch != policy.DispatchExplicit, Observed: b.e.o.Observe,
	}
	draft := Draft{Record: rec, Stamps: claimStamps(b.op, rec.Dispatched, true), MaxOpen: b.op.MaxUnresolved}
	if !b.born.IsZero() && !late {
		draft.Born, draft.Kin = Instant(b.born.Add(-ClockTolerance)), b.r.kin[b.op.Name]
	}
	cctx, own := b.bound(ctx)
	defer own.cancel()
	start := time.Now()
	st, err := b.store.Create(cctx, &draft)
	b.e.o.Trace.storeCall("claim", start, err)
	switch {
	case errors.Is(err, ErrUnreadable):
		return b.decision(Decide(&Facts{Unreadable: true}), Snapshot{}), nil
	case errors.Is(err, ErrBusy):
		return b.busy(), nil
	case err != nil:
		b.disown(b.op, rec, start)
		return nil, unavailable(err)
	case st.OverQuota:
		return nil, fmt.Errorf("%w: %d for this principal", ErrOverQuota, b.op.MaxUnresolved)
	case st.Created && st.Record.State == InProgress && st.Record.Attempt == rec.Attempt && st.Record.Token == rec.Token:
		// Created alone would not do: what an earlier try of the store's own made
		// may have been moved on since. Then it stands like any other.
		facts := b.absentFacts(time.Time{})
		if late {
			facts.Late = policy.LateCount
		}
		return b.proceed(Decide(&facts), b.op, st.Snapshot), nil
	case !st.Forgotten.IsZero():
		facts := b.absentFacts(st.Forgotten)
		ruling := Decide(&facts)
		if ruling.Verdict != VerdictProceed {
			return b.decision(ruling, Snapshot{AsOf: facts.Now}), nil
		}
		d, err := b.claimFirst(ctx, true)
		if err == nil && d.Verdict == VerdictProceed {
			d.Ruling = ruling
		}
		return d, err
	}
	return b.judge(ctx, st.Snapshot)
}

// judge rules on a standing record.
func (b *beginning) judge(ctx context.Context, snap Snapshot) (*Decision, error) {
	rec := &snap.Record
	facts := Facts{
		Standing: rec, Now: snap.AsOf, Trusted: b.trusted,
		Born: b.born, BornBy: b.bornBy, Late: b.op.Late,
	}
	made := b.r.made(rec)
	if made == nil {
		facts.Unreadable = true
		return b.decision(Decide(&facts), snap), nil
	}
	same, err := b.same(made, rec)
	// One key of a family is one intent, of one operation.
	same = same && rec.Operation == b.r.numbers[b.op.Name]
	facts.Same, facts.Unreadable = same, err != nil
	facts.Late, facts.Deadline, facts.Settle = made.Late, made.Deadline, made.Settle
	if made.OnUnknown.Rule == policy.UnknownRedispatch {
		facts.RedispatchWithin = made.OnUnknown.Within
	}
	var response []byte
	if same && rec.State == Completed && rec.HasResponse && snap.AsOf.Before(rec.ReplayUntil) {
		if response, err = b.response(ctx, rec); err != nil {
			return nil, err
		}
		facts.ResponseReadable = response != nil
	}
	ruling := Decide(&facts)
	if ruling.Verdict == VerdictProceed {
		return b.reopen(ctx, ruling, made, snap)
	}
	d := b.decision(ruling, snap)
	switch ruling.Verdict {
	case VerdictReplay:
		d.Response = response
	case VerdictInProgress:
		d.RetryAfter = min(max(rec.LeaseUntil.Sub(snap.AsOf), time.Second), 5*time.Second)
	}
	return d, nil
}

// same compares the request with the record, under the rules that made it.
func (b *beginning) same(made *policy.Operation, rec *Record) (bool, error) {
	fp := b.fp
	if rec.Policy != b.r.policy.Version || rec.Fingerprint.Version != fp.Version || made.Name != b.op.Name {
		var err error
		if fp, err = b.req.Fingerprint(made, rec.Fingerprint.Version); err != nil {
			return false, err
		}
	}
	return subtle.ConstantTimeCompare(fp.Sum[:], rec.Fingerprint.Sum[:]) == 1, nil
}

// response returns nil without error where none is kept any more.
func (b *beginning) response(ctx context.Context, rec *Record) ([]byte, error) {
	cctx, own := b.bound(ctx)
	defer own.cancel()
	start := time.Now()
	resp, err := b.store.Response(cctx, rec.ID, rec.Rev)
	b.e.o.Trace.storeCall("response", start, err)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case errors.Is(err, ErrConflict), err == nil:
		return resp, err
	}
	return nil, unavailable(err)
}

// reopen opens the next attempt on a standing record.
func (b *beginning) reopen(ctx context.Context, ruling Ruling, made *policy.Operation, snap Snapshot) (*Decision, error) {
	op := b.op
	old := &snap.Record
	next := old.Clone()
	next.State, next.Token, next.Proof = InProgress, NewToken(), ProofNone
	next.Outcome, next.HasResponse = Outcome{}, false
	next.ReplayUntil, next.SettledAt, next.Horizon, next.AnnouncedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	next.Observed = b.e.o.Observe
	stamps := claimStamps(op, op.Dispatch != policy.DispatchExplicit, false)
	switch ruling.Opens {
	case OpensRedispatch:
		// The effect may have happened under the old rules: they stay.
		op = made
		stamps = claimStamps(op, true, false)
		stamps.FirstDispatch = Delay{}
		next.Attempt++
		next.Dispatched = true
		if err := next.AddEvidence(Evidence{Kind: EvidenceRedispatched, Attempt: next.Attempt}); err != nil {
			return b.decision(Ruling{Verdict: VerdictUnknown, Row: ruling.Row}, snap), nil
		}
		stamps.EvidenceAt = In(0)
	case OpensAnew:
		next = Record{
			ID: old.ID, Principal: b.e.o.IndexKey.Principal(b.req.Principal), Operation: b.r.numbers[op.Name],
			State: InProgress, Attempt: 1, Token: next.Token, Fingerprint: b.fp, Policy: b.r.policy.Version,
			Observed: b.e.o.Observe,
			Evidence: []Evidence{{
				Kind: EvidenceSuperseded, Count: 1, Attempt: old.Attempt, Outcome: old.Outcome,
				Reason: "made " + old.CreatedAt.Format(time.RFC3339) + ", settled " + old.SettledAt.Format(time.RFC3339),
			}},
		}
		stamps.CreatedAt, stamps.EvidenceAt = In(0), In(0)
		next.Dispatched = op.Dispatch != policy.DispatchExplicit
	default: // OpensNext
		next.Attempt++
		next.Operation, next.Policy, next.Fingerprint = b.r.numbers[op.Name], b.r.policy.Version, b.fp
		next.Dispatched = op.Dispatch != policy.DispatchExplicit
		// Nothing crossed in the attempts before, or it is proved undone.
		next.FirstDispatch, next.LastDispatch = time.Time{}, time.Time{}
	}
	cctx, own := b.bound(ctx)
	defer own.cancel()
	start := time.Now()
	w := Write{Record: next, IfRev: old.Rev, IfToken: old.Token, Stamps: stamps, MaxOpen: b.op.MaxUnresolved}
	got, err := b.store.Update(cctx, &w)
	b.e.o.Trace.storeCall("claim", start, err)
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrFenced), errors.Is(err, ErrNotFound), errors.Is(err, ErrOverQuota):
		return nil, err
	case errors.Is(err, ErrBusy):
		return b.busy(), nil
	case err != nil:
		b.disown(op, next, start)
		return nil, unavailable(err)
	}
	d := b.proceed(ruling, op, got)
	d.repeatOf = old.CreatedAt
	return d, nil
}

func (b *beginning) proceed(ruling Ruling, op *policy.Operation, snap Snapshot) *Decision {
	// One allocation for both: they live and die together.
	d := &struct {
		Decision
		claim Claim
	}{}
	b.decided(&d.Decision, ruling, &snap)
	d.claim.init(b.book, op, &snap.Record, b.start)
	d.Claim = &d.claim
	return &d.Decision
}

func (b *beginning) decision(ruling Ruling, snap Snapshot) *Decision {
	d := &Decision{}
	b.decided(d, ruling, &snap)
	return d
}

// busy answers for a record that an open transaction holds. What stands is not
// known, not even whether it is of the same request; this authorises nothing.
func (b *beginning) busy() *Decision {
	d := b.decision(Ruling{Verdict: VerdictInProgress}, Snapshot{AsOf: time.Now()})
	d.RetryAfter = time.Second
	return d
}

func (b *beginning) decided(d *Decision, ruling Ruling, snap *Snapshot) {
	d.Ruling, d.ID, d.Operation = ruling, b.id, b.op
	d.Record, d.AsOf = snap.Record, snap.AsOf
}

func (b *beginning) get(ctx context.Context) (Snapshot, error) {
	cctx, own := b.bound(ctx)
	defer own.cancel()
	start := time.Now()
	snap, err := b.store.Get(cctx, b.id)
	b.e.o.Trace.storeCall("get", start, err)
	if err != nil && !errors.Is(err, ErrNotFound) {
		err = unavailable(err)
	}
	return snap, err
}

// pollEvery is how often a waiting duplicate asks the store when the claim is
// held by another node or transaction; a local claim wakes it at once.
const pollEvery = 100 * time.Millisecond

// wait returns true when it is worth deciding again, false when the caller
// went away or the time was up. With busy, only deciding again tells whether
// the transaction that holds the record has ended.
func (b *beginning) wait(ctx context.Context, left time.Duration, busy bool) bool {
	deadline := time.NewTimer(left)
	defer deadline.Stop()
	// With busy it need not be a claim of this process that has to end.
	if ended, ok := b.e.flights.watch(b.id); ok && !busy {
		select {
		case <-ended:
			return true
		case <-deadline.C:
		case <-ctx.Done():
		}
		return false
	}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case <-poll.C:
			if busy {
				return true
			}
			snap, err := b.get(ctx)
			if err != nil || snap.Record.State != InProgress || snap.Record.Lapsed(snap.AsOf) {
				return true
			}
		case <-deadline.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// claimStamps are the instants of a fresh claim.
func claimStamps(op *policy.Operation, dispatched, first bool) Stamps {
	s := Stamps{ClaimedAt: In(0), LeaseUntil: In(op.Lease), QuietAt: In(op.QuietAfter())}
	if first {
		s.CreatedAt = In(0)
	}
	if dispatched {
		s.FirstDispatch, s.LastDispatch = In(0), In(0)
		s.Gates = op.Gates
	}
	return s
}

func unavailable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
