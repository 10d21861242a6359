package counterfoil

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// Store is what a database must offer: put-if-absent and compare-and-swap. The
// state machine is above it, in [Engine]; package storetest is the contract as
// tests, and memstore the model the others are compared with.
//
// A store is safe for concurrent use. All instants come from the store's own
// clock: callers pass durations ([Stamps]), answers carry AsOf.
//
// Every record that Create, Update, Get and Response return is durable at the
// store's class before they return it ("fenced", design.md §5): what a caller
// is told never vanishes in a crash that follows.
//
// Any error other than the sentinels named here means that the caller could
// not find out: a write may or may not have happened. A store resolves an
// unclear write of its own by reading back the token before it gives up.
// Contexts bound how long the caller waits, not whether the write happens.
type Store interface {
	// Create inserts the draft's record as rev 1 if no record has its ID, and
	// otherwise returns the standing one with Created false. One round trip.
	//
	// A standing record that carries the draft's own token is the caller's own
	// earlier try: Created is true (cases.md C73).
	//
	// Nothing is inserted, and the answer says why, when Draft.Born is set and
	// not after what the operation forgot (Standing.Forgotten), or when the
	// principal already has Draft.MaxOpen open records (Standing.OverQuota). A
	// standing record is returned before either is looked at.
	//
	// ErrBusy: somebody else's transaction that has not ended holds the ID, so
	// that nobody can tell whether a record stands. Nothing was inserted and
	// nothing will be. A store says so within milliseconds instead of waiting
	// for that transaction; one without such transactions never does.
	Create(ctx context.Context, d *Draft) (Standing, error)

	// Update replaces the record if its rev and token are still those of
	// w.IfRev and w.IfToken; the stored rev becomes w.IfRev+1. The response is
	// attached, kept or dropped in the same atomic step.
	//
	// ErrConflict: the rev moved and the token did not; read again and decide
	// again. ErrFenced: the token changed, because another attempt opened or the
	// record became a tombstone, which has none. ErrNotFound:
	// there is no such record. ErrOverQuota: w.MaxOpen was reached. ErrBusy:
	// somebody else's transaction that has not ended holds the record, as for
	// Create; nothing was written and nothing will be.
	Update(ctx context.Context, w *Write) (Snapshot, error)

	// Get returns the record; ErrNotFound when there is none, ErrUnreadable
	// when there is one that this version cannot read. What an open transaction
	// has written is not there yet; a store may answer ErrBusy instead.
	Get(ctx context.Context, id ID) (Snapshot, error)

	// Response returns the response kept for a record, exactly as attached;
	// the caller owns the bytes. ErrNotFound when none is kept, or the kept
	// bytes do not pass their checksum. rev guards against a response of
	// another attempt: when the standing rev differs it is ErrConflict.
	Response(ctx context.Context, id ID, rev uint64) ([]byte, error)

	// Overdue lists in-progress records whose lease is strictly past, oldest
	// lease first within a page, at most q.Limit.
	Overdue(ctx context.Context, q Page) (Records, error)

	// Scan lists records in the store's own order, at most q.Limit. It may
	// miss or repeat records that change meanwhile; it never invents one.
	Scan(ctx context.Context, q Query) (Records, error)

	// Sweep does one bounded batch of expiry and reports it; see [SweepOrder].
	Sweep(ctx context.Context, o SweepOrder) (SweepReport, error)

	// Meta returns a small named value; ErrNotFound when it was never set.
	Meta(ctx context.Context, name string) (Meta, error)

	// SetMeta writes a named value if its rev is still ifRev (0: never set),
	// durably, and returns the new rev. ErrConflict when it is not.
	SetMeta(ctx context.Context, name string, ifRev uint64, value []byte) (uint64, error)

	// Stats counts what the store holds.
	Stats(ctx context.Context) (Stats, error)

	// Info says what kind of store this is. It does not change while open.
	Info() Info

	// Close releases the store. Calls under way finish or fail with ErrClosed.
	Close() error
}

// Snapshot is a record and the store's time at which it was true.
type Snapshot struct {
	Record Record
	AsOf   time.Time
}

// Draft is a record to be created.
type Draft struct {
	// Record.Rev is ignored.
	Record Record
	Stamps Stamps
	// MaxOpen bounds the principal's open records; 0 means no bound.
	MaxOpen int
	// Born, when set, is the latest instant at which the key can have been
	// new, less the clock tolerance: nothing is inserted unless it is after
	// what the operation, and its Kin, forgot.
	Born time.Time
	// Kin are the other operations of the family: a deleted record of any of
	// them may have had this key.
	Kin []OperationNumber
}

// KeptOut is the latest F that keeps the draft out, or the zero time. Stores
// call it where they insert, on their own F.
func (d *Draft) KeptOut(f Forgotten) time.Time {
	if d.Born.IsZero() {
		return time.Time{}
	}
	if latest := f.latest(d.Record.Operation, d.Kin); !latest.IsZero() && !d.Born.After(latest) {
		return latest
	}
	return time.Time{}
}

// Standing is what Create found or made.
type Standing struct {
	Snapshot
	Created bool
	// Forgotten is F of the operation, set when it kept the draft out.
	Forgotten time.Time
	// OverQuota reports that MaxOpen kept the draft out.
	OverQuota bool
}

// Write is the next content of a record.
type Write struct {
	// Record is the whole next content; Record.Rev is ignored.
	Record  Record
	IfRev   uint64
	IfToken Token
	Stamps  Stamps
	// Response is attached when not nil. Otherwise a kept response stays if
	// Record.HasResponse is true, and is dropped if it is false.
	Response []byte
	// MaxOpen bounds the principal's open records when this write opens one
	// that was not; 0 means no bound.
	MaxOpen int
}

// Page bounds a listing; Limit 0 stands for 1,000. Cursor is what the page
// before returned; nil starts.
type Page struct {
	Limit  int
	Cursor []byte
}

// Query selects records; zero members select all.
type Query struct {
	Page
	Operation OperationNumber
	State     State
	Principal PrincipalDigest
	// CreatedBefore selects older records.
	CreatedBefore time.Time
}

// Matches reports whether the query selects r.
func (q *Query) Matches(r *Record) bool {
	return (q.Operation == 0 || q.Operation == r.Operation) &&
		(q.State == Absent || q.State == r.State) &&
		(q.Principal == PrincipalDigest{} || q.Principal == r.Principal) &&
		(q.CreatedBefore.IsZero() || r.CreatedAt.Before(q.CreatedBefore))
}

// Records is one page. Next is nil on the last.
type Records struct {
	Records []Record
	Next    []byte
	AsOf    time.Time
}

// SweepOrder bounds one batch of expiry. Within it a store, for each record:
//
//   - drops the response of a completed record at ReplayUntil, and makes a
//     [Tombstone] of it (no token, no reference);
//   - makes a tombstone with outcome unknown of an unknown record at its
//     Horizon (on_unknown: close), with [EvidenceClosed];
//   - raises F of the operation to the record's CreatedAt, durably, and
//     announces a record that is past its time;
//   - deletes a record announced at least Grace ago that is still past its
//     time (with Grace 0 in the same batch, F being written before or with the
//     deletion), and a failed record at its Horizon that is not held, for
//     which F is not raised: it is proved to have had no effect;
//   - never touches another open record, an open gate or a hold.
//
// Past its time is judged by the earlier of the store's clock and Now.
type SweepOrder struct {
	// Limit bounds the records examined in this batch; 0 stands for 10,000.
	Limit int
	// Grace is how long an announced record still answers, so that every node
	// has read the new F before the record goes. A store that compares with F
	// inside Create, for one process, needs none.
	Grace time.Duration
	// Now is the sweeper's own clock; zero stands for the store's. When the two
	// differ by more than [MaxClockSkew] the store deletes nothing and returns
	// [ErrClockSkew].
	Now time.Time
	// Cursor goes on where the batch before stopped; nil starts a new pass.
	Cursor []byte
}

// MaxClockSkew is the difference of clocks above which nothing is deleted
// (design.md §7).
const MaxClockSkew = time.Minute

// SweepReport is what one batch did.
type SweepReport struct {
	Examined          int
	ResponsesDropped  int
	Tombstoned        int // completed to tombstone
	Closed            int // unknown to tombstone with outcome unknown
	Announced         int
	TombstonesDeleted int
	FailedDeleted     int
	// Kept counts records whose horizon passed but that a gate or hold keeps,
	// by the gate's name.
	Kept map[string]int
	// Next is nil when the pass is complete.
	Next []byte
	AsOf time.Time
}

// Add sums b into r and takes over its Next and AsOf.
func (r *SweepReport) Add(b SweepReport) {
	r.Examined += b.Examined
	r.ResponsesDropped += b.ResponsesDropped
	r.Tombstoned += b.Tombstoned
	r.Closed += b.Closed
	r.Announced += b.Announced
	r.TombstonesDeleted += b.TombstonesDeleted
	r.FailedDeleted += b.FailedDeleted
	for name, n := range b.Kept {
		if r.Kept == nil {
			r.Kept = make(map[string]int)
		}
		r.Kept[name] += n
	}
	r.Next, r.AsOf = b.Next, b.AsOf
}

// Meta is a small named value with its own rev.
type Meta struct {
	Rev   uint64
	Value []byte
}

// The names of the values that stores keep for the engine. A store reads
// MetaForgotten itself: Create compares with it and Sweep raises it.
const (
	MetaCharter   = "charter"
	MetaForgotten = "forgotten"
	MetaTrust     = "trust"
	MetaSweep     = "sweep"
)

// Forgotten is F, "forgotten through", per operation: the greatest CreatedAt
// of any possibly effective record that was announced, deleted or lost. It
// only grows.
type Forgotten map[OperationNumber]time.Time

// Raise sets F of op to t if t is later, and reports whether it did.
func (f Forgotten) Raise(op OperationNumber, t time.Time) bool {
	t = Instant(t)
	if !t.After(f[op]) {
		return false
	}
	f[op] = t
	return true
}

// latest is the greatest F of op and its kin.
func (f Forgotten) latest(op OperationNumber, kin []OperationNumber) time.Time {
	t := f[op]
	for _, k := range kin {
		if f[k].After(t) {
			t = f[k]
		}
	}
	return t
}

// Encode is f as kept under [MetaForgotten]: format 1, then pairs of varints
// (operation, Unix milliseconds), sorted by operation.
func (f Forgotten) Encode() []byte {
	b := []byte{1}
	for _, op := range slices.Sorted(maps.Keys(f)) {
		b = binary.AppendUvarint(b, uint64(op))
		b = binary.AppendVarint(b, f[op].UnixMilli())
	}
	return b
}

// DecodeForgotten reads what Encode wrote. It returns an error wrapping
// [ErrUnreadable] for anything else: an unreadable F is never taken as empty.
func DecodeForgotten(b []byte) (Forgotten, error) {
	f := Forgotten{}
	if len(b) == 0 || b[0] != 1 {
		return nil, fmt.Errorf("%w: forgotten-through of another format", ErrUnreadable)
	}
	for b = b[1:]; len(b) > 0; {
		op, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("%w: forgotten-through is cut short", ErrUnreadable)
		}
		ms, m := binary.Varint(b[n:])
		if m <= 0 {
			return nil, fmt.Errorf("%w: forgotten-through is cut short", ErrUnreadable)
		}
		b = b[n+m:]
		f[OperationNumber(op)] = time.UnixMilli(ms).UTC()
	}
	return f, nil
}

// Stats is what a store holds.
type Stats struct {
	AsOf       time.Time
	Operations map[OperationNumber]OperationStats
	// Bytes on disk (or in memory) by kind: "tombstone", "response".
	Bytes map[string]int64
}

// OperationStats counts the records of one operation.
type OperationStats struct {
	Records       [numStates]int64 // by State; use Count
	Overdue       int64
	OldestUnknown time.Time // CreatedAt; zero when there is none
}

// Count is the number of records in state s.
func (o *OperationStats) Count(s State) int64 { return o.Records[s] }

// Total is the number of records in any state.
func (o *OperationStats) Total() (n int64) {
	for _, c := range o.Records {
		n += c
	}
	return n
}

// Durability is what an acknowledged write survives; see [policy.Durability].
type Durability = policy.Durability

// Info describes a store.
type Info struct {
	// Kind is the scheme of the store's address: "memory", "pebble".
	Kind string
	// ID is drawn once, when the store is made.
	ID string
	// Durability is the class the store has as it is set up now.
	Durability Durability
	// SingleProcess reports that one process at a time can use the store, so
	// that it protects one node only (cases.md C80).
	SingleProcess bool
}
