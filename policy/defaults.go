package policy

import "time"

// Values of the fields that policy.yaml leaves out (contract.md §3).
const (
	DefaultKeyHeader     = "Idempotency-Key"
	DefaultDeadline      = 60 * time.Second
	DefaultLease         = 30 * time.Second
	DefaultWait          = 2 * time.Second
	DefaultSettle        = 30 * time.Second
	DefaultUnknownStatus = 503
	DefaultMaxRequest    = 1 << 20 // bytes
	DefaultMaxResponse   = 1 << 20 // bytes
	DefaultMaxUnresolved = 1000
)

// DefaultAmbiguous are the statuses that do not prove what happened.
func DefaultAmbiguous() []int { return []int{500, 502, 503, 504} }

// DefaultNoEffect are the statuses given before acting.
func DefaultNoEffect() []int { return []int{401, 407, 408, 413, 414, 417, 421, 425, 429, 431} }

// NewOperation is an operation with every documented default. Its scope and
// its formula have none: they must be said.
func NewOperation(name string) Operation {
	o := Operation{Name: name}
	o.SetDefaults()
	return o
}

// SetDefaults fills the fields that are zero with the documented defaults, for
// operations written as Go literals. Zero is also a fair value of wait and
// settle, and false of key.required: start from [NewOperation] and set those
// afterwards. A key rule counts as left out only when all of it is zero, and a
// status list only when it is nil. A policy that was read from a file or from
// [ParseText] has its defaults already: do not call this on it.
func (o *Operation) SetDefaults() {
	if o.Key == (Key{}) {
		o.Key = Key{Required: true}
	}
	setDefault(&o.Key.Header, DefaultKeyHeader)
	setDefault(&o.Key.Format, KeyAny)
	setDefault(&o.Deadline, DefaultDeadline)
	setDefault(&o.Lease, DefaultLease)
	setDefault(&o.Wait, DefaultWait)
	setDefault(&o.Settle, DefaultSettle)
	if o.Ambiguous == nil {
		o.Ambiguous = DefaultAmbiguous()
	}
	if o.NoEffect == nil {
		o.NoEffect = DefaultNoEffect()
	}
	setDefault(&o.OnUnknown.Rule, UnknownClose)
	setDefault(&o.UnknownStatus, DefaultUnknownStatus)
	setDefault(&o.LateAnswer, LateAnswerStatus)
	setDefault(&o.Dispatch, DispatchImplicit)
	setDefault(&o.Late, LateRefuse)
	setDefault(&o.MaxRequest, DefaultMaxRequest)
	setDefault(&o.MaxResponse, DefaultMaxResponse)
	setDefault(&o.MaxUnresolved, DefaultMaxUnresolved)
	setDefault(&o.Durability, DurabilityB)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
