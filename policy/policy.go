// Package policy holds the lifetimes and rules of every operation, worked out
// from measured inputs by one formula and never typed in at a call site.
//
// A [Policy] is plain data: package policyfile reads it from policy.yaml, the
// engine pins its version in each record, and the charter keeps its normal
// form ([Policy.Text]) so that a record can always be judged under the policy
// that made it. Everything in this package is pure: no I/O, no clock.
package policy

import (
	"slices"
	"time"
)

// Policy is one version of the rules of every operation of a service.
type Policy struct {
	// Version is a whole number above zero that grows with every change; it is
	// pinned in each record.
	Version uint32 `json:"version"`
	// Operations are sorted by name ([Policy.Normalize]); names are unique.
	Operations []Operation `json:"operations"`
}

// Operation returns the operation of that name, or nil.
func (p *Policy) Operation(name string) *Operation {
	i, ok := slices.BinarySearchFunc(p.Operations, name, func(o Operation, name string) int {
		switch {
		case o.Name < name:
			return -1
		case o.Name > name:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &p.Operations[i]
}

// Operation is a named class of effect with one set of rules. Read the field
// names in policy.yaml from the json tags; contract.md §3 explains each.
type Operation struct {
	Name        string `json:"name"`
	RenamedFrom string `json:"renamed_from,omitempty"`
	// Match are net/http ServeMux patterns, each with a method.
	Match       []string    `json:"match,omitempty"`
	Scope       Scope       `json:"scope"`
	Key         Key         `json:"key"`
	Fingerprint Fingerprint `json:"fingerprint"`
	Inputs      Inputs      `json:"ttl"`

	// Protect is how long the effect itself can be repeated harmfully; zero
	// stands for the TTL. Use [Operation.Retention] for the resulting lifetime.
	Protect time.Duration `json:"protect,omitempty"`
	// ReplayFor is how long the whole response is kept; nil stands for the TTL,
	// zero keeps none. Use [Operation.Replay].
	ReplayFor *time.Duration `json:"replay,omitempty"`

	Deadline time.Duration `json:"deadline"`
	Lease    time.Duration `json:"lease"`
	Wait     time.Duration `json:"wait"`
	Settle   time.Duration `json:"settle"`

	// Ambiguous are statuses that do not prove what happened; NoEffect are
	// statuses given before acting, after which the same key may run again.
	Ambiguous []int `json:"ambiguous"`
	NoEffect  []int `json:"no_effect"`

	OnUnknown     OnUnknown  `json:"on_unknown"`
	UnknownStatus int        `json:"unknown_status"`
	LateAnswer    LateAnswer `json:"late_answer"`
	Dispatch      Dispatch   `json:"dispatch"`
	Late          Late       `json:"late"`

	MaxRequest    int64  `json:"max_request"`
	MaxResponse   int64  `json:"max_response"`
	MaxUnresolved int    `json:"max_unresolved"`
	Volume        Volume `json:"volume"`
	Resource      string `json:"resource,omitempty"`

	Durability Durability `json:"durability"`
	// Gates are the dated conditions beside the horizon, sorted by name.
	Gates []Gate `json:"closure,omitempty"`
	// Accept are the dangers that this operation takes on knowingly, by name.
	Accept []string `json:"accept,omitempty"`
}

// Scope says who a key belongs to and where it counts.
type Scope struct {
	Principal Principal `json:"principal"`
	// Family is the set of operations that share keys; empty stands for the
	// operation's own name. Use [Operation.Family].
	Family string `json:"family,omitempty"`
}

// PrincipalKind says where the principal of a request comes from.
type PrincipalKind string

// The kinds of principal of contract.md §3.
const (
	PrincipalHeader      PrincipalKind = "header"
	PrincipalAuthRequest PrincipalKind = "auth_request"
	PrincipalAnonymous   PrincipalKind = "anonymous"
)

// Principal is the rule by which the account that owes or is owed is found.
type Principal struct {
	Kind PrincipalKind `json:"kind"`
	// Header is the canonical header name when Kind is [PrincipalHeader].
	Header string `json:"header,omitempty"`
}

// String is the rule as policy.yaml spells it.
func (p Principal) String() string {
	if p.Kind == PrincipalHeader {
		return "header:" + p.Header
	}
	return string(p.Kind)
}

// KeyFormat is the form a key must have. A dated format lets the key's own
// time witness what the store has forgotten (design.md §7).
type KeyFormat string

// The key formats of contract.md §3.
const (
	KeyAny    KeyFormat = "any"
	KeyUUID   KeyFormat = "uuid"
	KeyUUIDv7 KeyFormat = "uuidv7"
	KeyULID   KeyFormat = "ulid"
)

// Key says which header carries the key and what it must look like.
type Key struct {
	Header   string    `json:"header"`
	Required bool      `json:"required"`
	Format   KeyFormat `json:"format"`
}

// Fingerprint says which parts of a request define the operation; package
// fingerprint applies it.
type Fingerprint struct {
	// Fields are RFC 9535 JSONPath expressions; when not empty only these
	// members of a JSON body count.
	Fields []string `json:"fields,omitempty"`
	// Ignore are JSONPath expressions of volatile members that never count.
	Ignore []string `json:"ignore,omitempty"`
	// Defaults are members that, when missing, count as present with a value.
	Defaults []Default `json:"defaults,omitempty"`
	// Headers are canonical names of header fields that count.
	Headers []string `json:"headers,omitempty"`
}

// Default is a member of a JSON body that equals Value when it is missing.
type Default struct {
	// Path is a JSONPath of member names only, as in $.capture.mode.
	Path string `json:"path"`
	// Value is JSON text.
	Value string `json:"value"`
}

// UnknownRule is what becomes of a record whose outcome nobody can tell.
type UnknownRule string

// The rules of contract.md §3 for unknown outcomes.
const (
	// UnknownClose keeps the record, never runs it again, and lets it become a
	// tombstone with outcome unknown in its time.
	UnknownClose UnknownRule = "close"
	// UnknownHold keeps the record until somebody resolves it.
	UnknownHold UnknownRule = "hold"
	// UnknownRedispatch lets the same request run again, under the same
	// identity, inside the downstream's own dedupe window.
	UnknownRedispatch UnknownRule = "redispatch"
)

// OnUnknown is an [UnknownRule] with its window.
type OnUnknown struct {
	Rule UnknownRule `json:"rule"`
	// Within counts from the first dispatch; only for [UnknownRedispatch].
	Within time.Duration `json:"redispatch_within,omitempty"`
}

// LateAnswer says how a settled request whose response is gone is answered.
type LateAnswer string

// The values of late_answer.
const (
	LateAnswerStatus   LateAnswer = "status"
	LateAnswerSeeOther LateAnswer = "see-other"
)

// Dispatch says who marks the moment an attempt crosses to something remote.
type Dispatch string

// The values of dispatch. Implicit counts the claim itself as the crossing.
const (
	DispatchImplicit Dispatch = "implicit"
	DispatchExplicit Dispatch = "explicit"
)

// Late says what happens to a key that comes after its record's time.
type Late string

// The values of late.
const (
	LateRefuse Late = "refuse"
	LateCount  Late = "count"
)

// Durability is what an acknowledged claim must survive (dangers.md §3):
// A the loss of a node and power, B power loss of one node, C neither.
type Durability string

// The durability classes, strongest first.
const (
	DurabilityA Durability = "A"
	DurabilityB Durability = "B"
	DurabilityC Durability = "C"
)

// Meets reports whether a store of class d satisfies a demand for class want.
func (d Durability) Meets(want Durability) bool { return d != "" && d <= want }

// Volume is the expected number of new records over a period, for cost and
// alerts; the zero value says nothing is expected.
type Volume struct {
	Records float64       `json:"records,omitempty"`
	Per     time.Duration `json:"per,omitempty"`
}

// Gate is a dated condition that must be shut before a record is deleted; its
// time counts from the last dispatch.
type Gate struct {
	Name string        `json:"name"`
	For  time.Duration `json:"for"`
}

// Family is the set of operations that Operation shares keys with.
func (o *Operation) Family() string {
	if o.Scope.Family != "" {
		return o.Scope.Family
	}
	return o.Name
}
