// Package admin is what a person or a program may ask of a running Counterfoil
// and tell it: the records API of contract.md §5, and its client.
//
// [Service] is the same on both ends of the wire: [Local] answers from an open
// engine, [Client] asks another process.
package admin

import (
	"context"
	"errors"
	"time"

	"github.com/counterfoil/counterfoil"
)

// Version is the format of the documents that the API and --output json write.
const Version = 1

// Bounds of a page (dangers.md A09).
const (
	DefaultLimit = 50
	MaxLimit     = 500
)

// Service is what can be asked and told. Errors wrap the sentinels of package
// counterfoil, [ErrInvalid], [ErrUnauthorized] or [ErrNobody].
type Service interface {
	// Records lists records in the store's own order.
	Records(ctx context.Context, f Filter) (Page[Record], error)
	// Record returns one record; counterfoil.ErrNotFound when there is none.
	Record(ctx context.Context, id counterfoil.ID) (Record, error)
	// Resolve settles a record whose outcome is unknown, by a person's word.
	Resolve(ctx context.Context, id counterfoil.ID, w Word) (Record, error)
	// Operations lists the operations of the policy in force.
	Operations(ctx context.Context) (Page[Operation], error)
	// Sweep makes one pass of expiry.
	Sweep(ctx context.Context) (SweepResult, error)
	// Reconcile makes one pass over abandoned claims.
	Reconcile(ctx context.Context) (ReconcileResult, error)
	// Backup writes a consistent copy of the store to a new directory on the
	// machine that has the store open; the path is absolute.
	Backup(ctx context.Context, dir string) error
	// Trust ends the distrust of a store that lost writes.
	Trust(ctx context.Context, w TrustWord) error
	// Doctor checks the store's settings.
	Doctor(ctx context.Context) (Page[Finding], error)
}

// Sentinels of this package; [counterfoil.Code] does not know them.
var (
	// ErrInvalid is returned for a request that can never be carried out.
	ErrInvalid = errors.New("request invalid")
	// ErrUnauthorized is returned when the token is missing or not known.
	ErrUnauthorized = errors.New("a known token is needed")
	// ErrNobody is returned by a Client when nobody answers at the address.
	ErrNobody = errors.New("nobody answers on the admin address")
)

// Page is a list as the API and --output json write it.
type Page[T any] struct {
	Version int `json:"version" doc:"Format of this document."`
	Items   []T `json:"items" nullable:"false"`
	// NextCursor goes on where this page ended; empty on the last.
	NextCursor string `json:"next_cursor,omitempty" doc:"Send it as cursor to get the next page; absent on the last."`
}

// NewPage is a page of items; never with a null list.
func NewPage[T any](items []T, next string) Page[T] {
	if items == nil {
		items = []T{}
	}
	return Page[T]{Version: Version, Items: items, NextCursor: next}
}

// Filter selects records; zero members select all.
type Filter struct {
	Operation string
	State     counterfoil.State
	OlderThan time.Duration
	// Limit is DefaultLimit when zero, and at most MaxLimit.
	Limit  int
	Cursor string
}

// Answers of [Word.Outcome].
const (
	OutcomeSucceeded = "succeeded"
	OutcomeDeclined  = "declined"
	OutcomeAbsent    = "absent"
)

// Word is what a person says of a record.
type Word struct {
	Outcome  string `json:"outcome" enum:"succeeded,declined,absent" doc:"What happened. absent: proved that there was no effect, so the same key may run again."`
	Status   int    `json:"status,omitempty" minimum:"100" maximum:"599" doc:"The status that duplicates are answered with. Default: 200 when it succeeded, 422 when it was declined."`
	Resource string `json:"resource,omitempty" maxLength:"1024" doc:"Where the caller may look the result up."`
	Proof    string `json:"proof,omitempty" enum:"quiet,cancelled,deduped" doc:"Why it is known to be absent. Default: quiet (looked up after nothing sent could still take effect)."`
	Early    bool   `json:"early,omitempty" doc:"Say absent before that; the reason is kept."`
	Reason   string `json:"reason" minLength:"1" maxLength:"512" doc:"Kept in the record's evidence, with the actor."`
	Rev      uint64 `json:"rev,omitempty" doc:"The rev that was looked at; refused with 409 when the record has changed since."`
	// Actor is the name of the token on the wire, and whoever runs the command
	// where there is none.
	Actor string `json:"-"`
}

// TrustWord is a person's word that the store may be trusted again.
type TrustWord struct {
	Reason string `json:"reason" minLength:"1" maxLength:"512" doc:"Kept in the store, with the actor."`
	Actor  string `json:"-"`
}

// Record is a record as people and programs see it. Times are the store's.
type Record struct {
	ID        counterfoil.ID `json:"id" doc:"As in the Idempotency-Record header."`
	Operation string         `json:"operation"`
	State     string         `json:"state" enum:"in_progress,unknown,failed,completed,tombstone,announced"`
	// Why says in words why the record is still here and when it may go.
	Why string `json:"why" doc:"In words: why it is still here and when it may go."`
	// MayGoAt is absent while nobody can say.
	MayGoAt    *time.Time `json:"may_go_at,omitempty" doc:"The first instant at which it may go as things stand."`
	AgeSeconds float64    `json:"age_seconds"`
	Attempt    uint32     `json:"attempt"`
	Rev        uint64     `json:"rev"`
	Outcome    *Outcome   `json:"outcome,omitempty"`
	Proof      string     `json:"proof,omitempty" doc:"Why it is known that there was no effect."`
	Reference  string     `json:"reference,omitempty" doc:"The provider's name for what was asked of it."`

	Principal          string `json:"principal_digest" doc:"Finds the records of one principal without naming it."`
	Fingerprint        string `json:"fingerprint"`
	FingerprintVersion uint8  `json:"fingerprint_version"`
	PolicyVersion      uint32 `json:"policy_version"`
	Dispatched         bool   `json:"dispatched"`
	Observed           bool   `json:"observed,omitempty"`
	Erased             bool   `json:"erased,omitempty"`
	HasResponse        bool   `json:"has_response"`

	CreatedAt       time.Time  `json:"created_at"`
	ClaimedAt       *time.Time `json:"claimed_at,omitempty"`
	LeaseUntil      *time.Time `json:"lease_until,omitempty"`
	FirstDispatchAt *time.Time `json:"first_dispatch_at,omitempty"`
	LastDispatchAt  *time.Time `json:"last_dispatch_at,omitempty"`
	QuietAt         *time.Time `json:"quiet_at,omitempty" doc:"From then on nothing sent can still take effect."`
	SettledAt       *time.Time `json:"settled_at,omitempty"`
	ReplayUntil     *time.Time `json:"replay_until,omitempty"`
	HorizonAt       *time.Time `json:"horizon_at,omitempty"`
	AnnouncedAt     *time.Time `json:"announced_at,omitempty"`

	Gates    []Gate     `json:"gates,omitempty" nullable:"false"`
	Holds    []Hold     `json:"holds,omitempty" nullable:"false"`
	Evidence []Evidence `json:"evidence,omitempty" nullable:"false"`
	AsOf     time.Time  `json:"as_of"`
}

// Outcome is what is known of the effect.
type Outcome struct {
	Class    string `json:"class" enum:"unknown,succeeded,declined,no_effect"`
	Status   int    `json:"status,omitempty"`
	Resource string `json:"resource,omitempty"`
}

// Gate is a condition beside the horizon.
type Gate struct {
	Name  string    `json:"name"`
	Until time.Time `json:"until"`
}

// Hold keeps a record until it is lifted.
type Hold struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
}

// Evidence is one thing that happened to a record.
type Evidence struct {
	Kind    string    `json:"kind"`
	At      time.Time `json:"at"`
	Count   uint32    `json:"count"`
	Attempt uint32    `json:"attempt"`
	Outcome *Outcome  `json:"outcome,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

// Operation is an operation of the policy in force and what the store holds
// of it.
type Operation struct {
	Name           string           `json:"name"`
	PolicyVersion  uint32           `json:"policy_version"`
	Match          []string         `json:"match,omitempty" nullable:"false"`
	Principal      string           `json:"principal"`
	Family         string           `json:"family"`
	KeyHeader      string           `json:"key_header"`
	KeyRequired    bool             `json:"key_required"`
	TTLSeconds     float64          `json:"ttl_seconds"`
	HorizonSeconds float64          `json:"horizon_seconds"`
	ReplaySeconds  float64          `json:"replay_seconds"`
	ExpectedRows   float64          `json:"expected_rows,omitempty"`
	Records        map[string]int64 `json:"records" doc:"How many records are in which state."`
	Overdue        int64            `json:"overdue"`
	OldestUnknown  *time.Time       `json:"oldest_unknown_at,omitempty"`
}

// SweepResult is what one pass of expiry did.
type SweepResult struct {
	Version           int            `json:"version"`
	Complete          bool           `json:"complete" doc:"Whether the pass reached its end."`
	Batches           int            `json:"batches"`
	Examined          int            `json:"examined"`
	ResponsesDropped  int            `json:"responses_dropped"`
	Tombstoned        int            `json:"tombstoned"`
	Closed            int            `json:"closed"`
	Announced         int            `json:"announced"`
	TombstonesDeleted int            `json:"tombstones_deleted"`
	FailedDeleted     int            `json:"failed_deleted"`
	Kept              map[string]int `json:"kept,omitempty" doc:"Records past their horizon that a gate or hold keeps."`
	AsOf              time.Time      `json:"as_of"`
}

// ReconcileResult is what one pass over abandoned claims did.
type ReconcileResult struct {
	Version  int       `json:"version"`
	Examined int       `json:"examined"`
	Unknown  int       `json:"unknown" doc:"Claims that had crossed to something remote."`
	Failed   int       `json:"failed" doc:"Claims that never crossed."`
	Left     int       `json:"left" doc:"Claims that wait for their cadence, or were moved by somebody else."`
	Errors   int       `json:"errors"`
	AsOf     time.Time `json:"as_of"`
}

// Finding is a finding of doctor, as check writes them too.
type Finding struct {
	Severity string `json:"severity" enum:"error,warning"`
	Code     string `json:"code"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Field    string `json:"field,omitempty"`
	Message  string `json:"message"`
	Remedy   string `json:"remedy"`
}
