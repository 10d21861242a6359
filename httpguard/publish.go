package httpguard

import (
	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// Listing is what a service publishes of its policy, at
// /.well-known/idempotency.
type Listing struct {
	PolicyVersion uint32      `json:"policy_version"`
	Operations    []Published `json:"operations"`
}

// Published is the contract of one operation with its callers. Durations are
// ISO 8601.
type Published struct {
	Operation string         `json:"operation"`
	Match     []string       `json:"match"`
	Key       PublishedKey   `json:"key"`
	Scope     PublishedScope `json:"scope"`
	// TTL is how long retries are expected; ReplayFor how long the whole answer
	// is given again; ProtectedFor how long at least a key is remembered, both
	// counted from completion.
	TTL          string `json:"ttl"`
	ReplayFor    string `json:"replay_for"`
	ProtectedFor string `json:"protected_for"`
	Deadline     string `json:"deadline"`
	// MaxRequest is in bytes.
	MaxRequest int64 `json:"max_request_bytes"`
	// Lookup is where a caller asks what became of a key.
	Lookup string `json:"lookup"`
}

// PublishedKey says what a key must look like.
type PublishedKey struct {
	Header    string `json:"header"`
	Required  bool   `json:"required"`
	Format    string `json:"format"`
	MaxLength int    `json:"max_length"`
}

// PublishedScope says whose a key is, and which operations share it.
type PublishedScope struct {
	Principal string `json:"principal"`
	Family    string `json:"family"`
}

// Publish is what callers may know of a policy.
func Publish(p *policy.Policy) Listing {
	l := Listing{PolicyVersion: p.Version, Operations: make([]Published, 0, len(p.Operations))}
	for i := range p.Operations {
		o := &p.Operations[i]
		l.Operations = append(l.Operations, Published{
			Operation:    o.Name,
			Match:        append([]string{}, o.Match...),
			Key:          PublishedKey{o.Key.Header, o.Key.Required, string(o.Key.Format), counterfoil.MaxKeyLength},
			Scope:        PublishedScope{o.Scope.Principal.String(), o.Family()},
			TTL:          policy.FormatISODuration(o.TTL()),
			ReplayFor:    policy.FormatISODuration(o.Replay()),
			ProtectedFor: policy.FormatISODuration(o.Retention()),
			Deadline:     policy.FormatISODuration(o.Deadline),
			MaxRequest:   o.MaxRequest,
			Lookup:       wellKnown + "/" + o.Name,
		})
	}
	return l
}
