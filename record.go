package counterfoil

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// State is what the server knows of a record (design.md §3).
type State uint8

// The states of a record. Absent is no record at all; a store never keeps it.
const (
	Absent State = iota
	// InProgress: an attempt holds the claim; its lease may have lapsed.
	InProgress
	// Unknown: an attempt crossed to something remote and nobody can tell what
	// came of it. Nothing runs again because time passed.
	Unknown
	// Failed: proved that no effect happened; the same request may run again.
	Failed
	// Completed: the outcome is known and final.
	Completed
	// Tombstone: a settled record without its response.
	Tombstone
	// Announced: a tombstone past its time whose deletion every node has been
	// told of. It still answers.
	Announced

	numStates
)

var stateNames = [numStates]string{"absent", "in_progress", "unknown", "failed", "completed", "tombstone", "announced"}

// String is the state as JSON and metrics spell it.
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// ParseState reads what [State.String] wrote.
func ParseState(s string) (State, error) {
	if i := slices.Index(stateNames[:], s); i > 0 {
		return State(i), nil
	}
	return Absent, fmt.Errorf("state %q: want one of %q", s, stateNames[1:])
}

// Open reports whether the record still waits for its outcome. Open records
// are never deleted and count against the principal's quota.
func (s State) Open() bool { return s == InProgress || s == Unknown }

// Settled reports whether the outcome is final, or closed as unknown.
func (s State) Settled() bool { return s == Completed || s == Tombstone || s == Announced }

// OutcomeClass is the kind of a terminal answer.
type OutcomeClass uint8

// The outcome classes. OutcomeUnknown is also what a tombstone says that was
// closed without anybody having learnt the outcome.
const (
	OutcomeUnknown OutcomeClass = iota
	Succeeded
	Declined
	// NoEffect fills in a tombstone that was closed as unknown when absence is
	// proved later; it never reopens.
	NoEffect

	numOutcomes
)

var outcomeNames = [numOutcomes]string{"unknown", "succeeded", "declined", "no_effect"}

// String is the class as JSON spells it.
func (c OutcomeClass) String() string {
	if c < numOutcomes {
		return outcomeNames[c]
	}
	return fmt.Sprintf("outcome(%d)", uint8(c))
}

// Outcome is the terminal answer of an operation, without its response.
type Outcome struct {
	Class OutcomeClass
	// Status is the door's status code (HTTP: 100 to 599). On an unknown record
	// it is the last status seen; zero when there was none.
	Status int
	// Resource is where the caller may look the result up: a path, empty when
	// not known. At most [MaxResource] bytes.
	Resource string
}

// agrees reports that two reports of one outcome do not contradict each other;
// either may leave out status or resource.
func (o Outcome) agrees(p Outcome) bool {
	return o.Class == p.Class &&
		(o.Status == p.Status || o.Status == 0 || p.Status == 0) &&
		(o.Resource == p.Resource || o.Resource == "" || p.Resource == "")
}

// Bounds of what one record keeps. Beyond MaxAttempts a failed or unknown
// record no longer runs again and its evidence says why.
const (
	MaxAttempts = 10_000
	MaxEvidence = 24
	MaxResource = 1024
	// MaxReason bounds the actor, the reason and the reference, in bytes.
	MaxReason = 512
)

// Proof says why a record may be called failed (design.md §3).
type Proof uint8

// The proofs of absence. ProofEarly is an operator's word given before
// t_quiet, with --early and a reason that is kept.
const (
	ProofNone Proof = iota
	ProofStated
	ProofCancelled
	ProofDeduped
	ProofQuiet
	ProofNeverDispatched
	ProofEarly

	numProofs
)

var proofNames = [numProofs]string{"none", "stated", "cancelled", "deduped", "quiet", "never-dispatched", "early"}

// String is the proof as JSON spells it.
func (p Proof) String() string {
	if p < numProofs {
		return proofNames[p]
	}
	return fmt.Sprintf("proof(%d)", uint8(p))
}

// byOwner reports whether the attempt itself gave the proof. A later Complete
// by the same owner contradicts only what others said.
func (p Proof) byOwner() bool { return p == ProofStated }

// EvidenceKind names what happened to a record.
type EvidenceKind uint8

// The kinds of evidence.
const (
	// EvidenceLapsed: the lease passed without a word from the owner.
	EvidenceLapsed EvidenceKind = iota + 1
	// EvidenceAmbiguous: the answer does not prove what happened.
	EvidenceAmbiguous
	// EvidencePanic: the handler panicked.
	EvidencePanic
	// EvidenceDeadline: the handler or upstream passed its deadline.
	EvidenceDeadline
	// EvidenceBroken: the upstream broke after bytes were sent.
	EvidenceBroken
	// EvidenceFailed: no effect; Reason says on whose word.
	EvidenceFailed
	// EvidenceRedispatched: the same identity was sent again.
	EvidenceRedispatched
	// EvidenceResolved: an operator or resolver settled the record.
	EvidenceResolved
	// EvidenceContradicted: a second outcome was reported for a settled record.
	EvidenceContradicted
	// EvidenceClosed: on_unknown: close made a tombstone of it.
	EvidenceClosed
	// EvidenceSuperseded: the key came again after its time under late: count,
	// and this new record replaced the one described.
	EvidenceSuperseded

	numEvidence
)

var evidenceNames = [numEvidence]string{
	"", "lapsed", "ambiguous", "panic", "deadline", "broken", "failed",
	"redispatched", "resolved", "contradicted", "closed", "superseded",
}

// String is the kind as JSON spells it.
func (k EvidenceKind) String() string {
	if k > 0 && k < numEvidence {
		return evidenceNames[k]
	}
	return fmt.Sprintf("evidence(%d)", uint8(k))
}

// Evidence is one thing that happened to a record, kept for the people who
// must settle it. Equal neighbours are folded: Count says how many.
type Evidence struct {
	Kind    EvidenceKind
	At      time.Time // of the last of Count
	Count   uint32
	Attempt uint32
	// Outcome is what was seen or said, where the kind carries one.
	Outcome Outcome
	// Actor and Reason are an operator's, or the engine's own words.
	Actor, Reason string
}

// Gate is a named condition beside the horizon: the record stays until Until.
type Gate struct {
	Name  string
	Until time.Time
}

// Hold keeps a record from deletion and from running again until it is lifted.
type Hold struct {
	At            time.Time
	Actor, Reason string
}

// OperationNumber is the charter's number for an operation; it outlives
// renames.
type OperationNumber uint32

// Record is the durable evidence for one (scope, key).
//
// Instants are the store's, in UTC at millisecond precision; the zero time
// means "not set". Slices are owned by whoever holds the Record: a store
// returns copies and keeps copies.
type Record struct {
	ID        ID
	Principal PrincipalDigest
	Operation OperationNumber
	State     State
	// Attempt is 1, 2, …; it grows with every claim.
	Attempt uint32
	// Token is the identity of the attempt; zero on a tombstone.
	Token Token
	// Rev rises with every write; every write is compare-and-swap on it.
	Rev uint64
	// Reference is the provider's name for what we asked of it, while open.
	Reference   string
	Fingerprint Fingerprint
	// Policy is the version of the policy that made the record.
	Policy     uint32
	Dispatched bool
	// Observed marks a record made under mode: observe; it is never replayed.
	Observed bool
	// Erased marks a record whose content was erased on request.
	Erased bool
	// Proof says why a failed record is one.
	Proof Proof

	CreatedAt     time.Time
	ClaimedAt     time.Time // of the current attempt
	LeaseUntil    time.Time // the claim stands until then; equal is alive
	FirstDispatch time.Time
	LastDispatch  time.Time
	QuietAt       time.Time // t_quiet of the current attempt
	SettledAt     time.Time // completion, failure, or closing as unknown
	ReplayUntil   time.Time // the response is kept until then
	// Horizon is when duplicate protection may end. On an unknown record it is
	// set under on_unknown: close only, and is when it closes.
	Horizon     time.Time
	AnnouncedAt time.Time

	Outcome Outcome
	// HasResponse reports that the store keeps a response for this record.
	HasResponse bool
	Gates       []Gate
	Holds       []Hold
	Evidence    []Evidence
}

// Check refuses what no caller may ask a store to keep. Stores call it on the
// stamped record, before they write.
func (r *Record) Check() error {
	switch {
	case r.State == Absent || r.State >= numStates:
		return fmt.Errorf("a record cannot be kept as %s", r.State)
	case r.State == InProgress && r.LeaseUntil.IsZero():
		return errors.New("a claim needs a lease (cases.md C72)")
	}
	return nil
}

// Clone returns a copy that shares nothing with r.
func (r *Record) Clone() Record {
	c := *r
	c.Gates = slices.Clone(r.Gates)
	c.Holds = slices.Clone(r.Holds)
	c.Evidence = slices.Clone(r.Evidence)
	return c
}

// redispatched reports that the current attempt sent again what an earlier one
// had sent, so that its failing proves nothing of that one.
func (r *Record) redispatched() bool {
	return slices.ContainsFunc(r.Evidence, func(e Evidence) bool {
		return e.Kind == EvidenceRedispatched && e.Attempt == r.Attempt
	})
}

// Lapsed reports that the claim was abandoned: its lease is strictly past.
// Equality counts as alive (cases.md C74).
func (r *Record) Lapsed(now time.Time) bool {
	return r.State == InProgress && r.LeaseUntil.Before(now)
}

// Closed reports that an unknown record's own time has come, whether or not a
// sweep has already made a tombstone of it.
func (r *Record) Closed(now time.Time) bool {
	return r.State == Unknown && !r.Horizon.IsZero() && !now.Before(r.Horizon)
}

// GateOpen returns the first gate that is still open, or "". A hold is the
// gate named "hold".
func (r *Record) GateOpen(now time.Time) string {
	if len(r.Holds) > 0 {
		return "hold"
	}
	for _, g := range r.Gates {
		if now.Before(g.Until) {
			return g.Name
		}
	}
	return ""
}

// PastItsTime reports that nothing keeps the record any longer: horizon passed
// and every gate shut (design.md §3). It is the same before and after a sweep.
// A record without a horizon never goes.
func (r *Record) PastItsTime(now time.Time) bool {
	if !r.State.Settled() && !r.Closed(now) {
		return false
	}
	return !r.Horizon.IsZero() && !now.Before(r.Horizon) && r.GateOpen(now) == ""
}

// ProtectedUntil is the first instant at which the record may go as things
// stand: the later of horizon and dated gates. Zero while it is open without a
// horizon, or held.
func (r *Record) ProtectedUntil() time.Time {
	if r.Horizon.IsZero() || len(r.Holds) > 0 {
		return time.Time{}
	}
	t := r.Horizon
	for _, g := range r.Gates {
		if g.Until.After(t) {
			t = g.Until
		}
	}
	return t
}

// AddEvidence appends e, folding it into an equal last entry. When the list is
// full the oldest entry that no person wrote makes room; it returns
// [ErrEvidenceFull] and adds nothing when there is none.
func (r *Record) AddEvidence(e Evidence) error {
	e.Count = max(e.Count, 1)
	e.Actor, e.Reason = clip(e.Actor, MaxReason), clip(e.Reason, MaxReason)
	if n := len(r.Evidence); n > 0 {
		last := &r.Evidence[n-1]
		if last.Kind == e.Kind && last.Actor == e.Actor && last.Reason == e.Reason && last.Outcome == e.Outcome {
			last.At, last.Attempt = e.At, e.Attempt
			last.Count += e.Count
			return nil
		}
	}
	if len(r.Evidence) >= MaxEvidence {
		i := slices.IndexFunc(r.Evidence, func(e Evidence) bool { return e.Actor == "" })
		if i < 0 {
			return ErrEvidenceFull
		}
		r.Evidence = slices.Delete(r.Evidence, i, i+1)
	}
	r.Evidence = append(r.Evidence, e)
	return nil
}

// clip cuts s to n bytes at a character boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}

// Delay is a duration from the store's own clock; the zero value leaves the
// instant as it is.
type Delay struct {
	set bool
	d   time.Duration
}

// In is the instant d after the store's now; In(0) is now itself.
func In(d time.Duration) Delay { return Delay{true, d} }

// Get returns the duration, and whether the instant is to be set at all.
func (d Delay) Get() (time.Duration, bool) { return d.d, d.set }

// Stamps says which instants of a record the store sets from its own clock, so
// that no other machine's clock ever decides (cases.md C35).
type Stamps struct {
	CreatedAt, ClaimedAt, LeaseUntil, FirstDispatch, LastDispatch Delay
	QuietAt, SettledAt, ReplayUntil, Horizon                      Delay
	// EvidenceAt dates the last entry of Record.Evidence.
	EvidenceAt Delay
	// Gates, when not nil, replaces the record's dated gates by these, each
	// counted from now.
	Gates []policy.Gate
}

// Apply sets the instants of r. Stores whose clock is in their own process
// call it; the others do the same in their own language.
func (s *Stamps) Apply(r *Record, now time.Time) {
	set := func(t *time.Time, d Delay) {
		if d.set {
			*t = instantAfter(now, d.d)
		}
	}
	set(&r.CreatedAt, s.CreatedAt)
	set(&r.ClaimedAt, s.ClaimedAt)
	set(&r.LeaseUntil, s.LeaseUntil)
	set(&r.FirstDispatch, s.FirstDispatch)
	set(&r.LastDispatch, s.LastDispatch)
	set(&r.QuietAt, s.QuietAt)
	set(&r.SettledAt, s.SettledAt)
	set(&r.ReplayUntil, s.ReplayUntil)
	set(&r.Horizon, s.Horizon)
	if n := len(r.Evidence); n > 0 {
		set(&r.Evidence[n-1].At, s.EvidenceAt)
	}
	if s.Gates != nil {
		r.Gates = make([]Gate, len(s.Gates))
		for i, g := range s.Gates {
			r.Gates[i] = Gate{Name: g.Name, Until: instantAfter(now, g.For)}
		}
	}
}

// Instant is t as records keep it: UTC, whole milliseconds, no monotonic part.
func Instant(t time.Time) time.Time { return t.Round(0).UTC().Truncate(time.Millisecond) }

// instantAfter is now + d, rounded up when d lies ahead: nothing ever ends
// earlier than was asked (cases.md C26).
func instantAfter(now time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return Instant(now.Add(d))
	}
	return Instant(now.Add(d + time.Millisecond - 1))
}
