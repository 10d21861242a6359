package policy

// Severity says whether a finding keeps a policy from being used.
type Severity string

// The severities: an error refuses the policy, a warning does not.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Finding is one fault of a policy. Code never changes its meaning.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	// Operation is empty for a fault of the policy as a whole.
	Operation string `json:"operation,omitempty"`
	// Field is the path below the operation, or below the policy, as policy.yaml
	// spells it: ttl.client_retry_budget[1].inside.
	Field string `json:"field,omitempty"`
	// Message says what is wrong, Remedy what to write instead.
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Code names a kind of finding.
type Code string

// Validate lists everything in which the policy contradicts itself.
func (p *Policy) Validate() []Finding { return nil }
