package policy_test

import (
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// A lifetime is worked out from what can still retry, never typed in.
func ExampleInputs_TTL() {
	in := policy.Inputs{
		ClientRetryBudget: policy.Input{Retriers: []policy.Retrier{
			{Name: "sdk", Value: 10 * time.Second, Inside: "job"},
			{Name: "job", Value: 6*time.Hour + 35*time.Minute + 30*time.Second},
		}},
		BrokerRedeliveryWindow: policy.Input{Value: 4 * time.Hour, Source: "queue settings"},
		ReconciliationCadence:  policy.Input{Value: time.Hour},
		SafetyMargin:           policy.Input{Value: 2 * time.Hour},
	}
	for _, term := range in.Terms() {
		fmt.Println(term.Name, policy.FormatDuration(term.Total), term.Counted)
	}
	fmt.Println("ttl", policy.FormatDuration(in.TTL()))
	fmt.Println("dominant:", in.Dominant())
	// Output:
	// client_retry_budget 6h35m40s true
	// broker_redelivery_window 4h false
	// reconciliation_cadence 1h true
	// safety_margin 2h true
	// ttl 9h35m40s
	// dominant: client_retry_budget (job + sdk)
}
