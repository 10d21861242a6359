package policy

import (
	"math"
	"strings"
	"time"
)

// Forever is where sums of durations stop: Go's largest duration, about 292
// years. A sum that reaches it has overflowed, and [Policy.Validate] refuses
// it long before.
const Forever time.Duration = math.MaxInt64

// Inputs are the terms of the TTL formula, each with where it came from.
type Inputs struct {
	ClientRetryBudget      Input `json:"client_retry_budget"`
	BrokerRedeliveryWindow Input `json:"broker_redelivery_window"`
	ReconciliationCadence  Input `json:"reconciliation_cadence"`
	SafetyMargin           Input `json:"safety_margin"`
}

// Input is one term of the formula.
type Input struct {
	// Value is used when Retriers is empty.
	Value time.Duration `json:"value"`
	// Source is free text: who says so.
	Source string `json:"source,omitempty"`
	// Retriers are the parties that repeat a request; the slowest independent
	// one sets the budget, and nested ones add up (cases.md C45).
	Retriers []Retrier `json:"retriers,omitempty"`
}

// Retrier is one party that repeats a request for Value after the first try.
type Retrier struct {
	Name  string        `json:"name"`
	Value time.Duration `json:"value"`
	// Inside names the retrier within whose every attempt this one runs.
	Inside string `json:"inside,omitempty"`
}

// TTL is the formula of contract.md §3:
//
//	ttl = max(client_retry_budget, broker_redelivery_window) + reconciliation_cadence + safety_margin
//
// A sum too long for a duration is [Forever].
func (in Inputs) TTL() time.Duration {
	ttl := max(in.ClientRetryBudget.Total(), in.BrokerRedeliveryWindow.Total())
	ttl = add(ttl, in.ReconciliationCadence.Total())
	return add(ttl, in.SafetyMargin.Total())
}

// Shortfall is by how much a lifetime falls below the TTL; zero if it does not.
func (in Inputs) Shortfall(lifetime time.Duration) time.Duration {
	return max(0, in.TTL()-max(0, lifetime))
}

// Term is one input of the formula with its sum worked out.
type Term struct {
	// Name is the input's name in policy.yaml.
	Name  string
	Input Input
	Total time.Duration
	// Counted is false for the smaller side of the maximum, which adds nothing
	// to the TTL.
	Counted bool
}

// Terms lists the four inputs in the order of the formula. The counted ones
// add up to the TTL. Of two equal sides of the maximum the client's counts.
func (in Inputs) Terms() []Term {
	client, broker := in.ClientRetryBudget.Total(), in.BrokerRedeliveryWindow.Total()
	return []Term{
		{"client_retry_budget", in.ClientRetryBudget, client, client >= broker},
		{"broker_redelivery_window", in.BrokerRedeliveryWindow, broker, broker > client},
		{"reconciliation_cadence", in.ReconciliationCadence, in.ReconciliationCadence.Total(), true},
		{"safety_margin", in.SafetyMargin, in.SafetyMargin.Total(), true},
	}
}

// Dominant names the input that adds most to the TTL, with the retrier that
// sets it where there are several: "client_retry_budget (webhook)", and for
// nested ones the outer first, "client_retry_budget (job + sdk)". Of equal
// inputs the earlier in the formula is named. It is empty when all are zero.
func (in Inputs) Dominant() string {
	var best Term
	for _, t := range in.Terms() {
		if t.Counted && t.Total > best.Total {
			best = t
		}
	}
	if best.Name == "" || len(best.Input.Retriers) == 0 {
		return best.Name
	}
	chain, _ := best.Input.longest()
	return best.Name + " (" + strings.Join(chain, " + ") + ")"
}

// Total is the input's length. Retriers that know nothing of each other do not
// wait for each other, so the slowest counts. One that runs inside another's
// every attempt also runs in the last, so its own time comes on top (C45: a
// job's 6 h 35 min 30 s and 10 s of SDK in its last attempt). Two that run one
// after the other within an attempt are one retrier: give their sum.
func (i Input) Total() time.Duration {
	if len(i.Retriers) == 0 {
		return i.Value
	}
	_, total := i.longest()
	return total
}

// Retrier finds a retrier by name.
func (i Input) retrier(name string) (Retrier, bool) {
	for _, r := range i.Retriers {
		if r.Name == name {
			return r, true
		}
	}
	return Retrier{}, false
}

// longest is the slowest chain of nested retriers, outermost first, and its
// length. It ends on a policy that nests retriers in a circle, which Validate
// refuses: a chain is never longer than the list.
func (i Input) longest() (chain []string, total time.Duration) {
	for _, r := range i.Retriers {
		names, sum := []string{r.Name}, r.Value
		for inside := r.Inside; inside != "" && len(names) <= len(i.Retriers); {
			outer, ok := i.retrier(inside)
			if !ok {
				break
			}
			names, sum = append([]string{outer.Name}, names...), add(sum, outer.Value)
			inside = outer.Inside
		}
		if chain == nil || sum > total {
			chain, total = names, sum
		}
	}
	return chain, total
}

// add is a + b, stopping at [Forever] rather than turning negative.
func add(a, b time.Duration) time.Duration {
	if b > 0 && a > Forever-b {
		return Forever
	}
	return a + b
}
