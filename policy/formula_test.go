package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

func TestTTLWorkedExamples(t *testing.T) {
	in := func(client, broker, cadence, margin time.Duration) policy.Inputs {
		return policy.Inputs{
			ClientRetryBudget:      policy.Input{Value: client},
			BrokerRedeliveryWindow: policy.Input{Value: broker},
			ReconciliationCadence:  policy.Input{Value: cadence},
			SafetyMargin:           policy.Input{Value: margin},
		}
	}
	for _, tt := range []struct {
		name     string
		inputs   policy.Inputs
		want     time.Duration
		dominant string
	}{
		{"24 h", in(4*time.Hour, 0, time.Hour, 19*time.Hour), 24 * time.Hour, "safety_margin"},
		{"contract.md as written", in(4*time.Hour, 0, time.Hour, 20*time.Hour), 25 * time.Hour, "safety_margin"},
		{"12 min", in(30*time.Second, 2*time.Minute, 5*time.Minute, 5*time.Minute), 12 * time.Minute, "reconciliation_cadence"},
		{"client decides", in(3*time.Hour, 2*time.Hour, time.Minute, time.Minute), 3*time.Hour + 2*time.Minute, "client_retry_budget"},
		{"equal sides", in(time.Hour, time.Hour, 0, 0), time.Hour, "client_retry_budget"},
		{"nothing", in(0, 0, 0, 0), 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.inputs.TTL(); got != tt.want {
				t.Errorf("TTL = %v, want %v", got, tt.want)
			}
			if got := tt.inputs.Dominant(); got != tt.dominant {
				t.Errorf("Dominant = %q, want %q", got, tt.dominant)
			}
			var sum time.Duration
			for _, term := range tt.inputs.Terms() {
				if term.Counted {
					sum += term.Total
				}
			}
			if sum != tt.want {
				t.Errorf("the counted terms add up to %v, want %v", sum, tt.want)
			}
		})
	}
}

func TestTTLSaturates(t *testing.T) {
	in := policy.Inputs{
		ClientRetryBudget: policy.Input{Retriers: []policy.Retrier{
			{Name: "job", Value: policy.Forever - 1}, {Name: "sdk", Value: 2, Inside: "job"},
		}},
		SafetyMargin: policy.Input{Value: time.Hour},
	}
	if got := in.TTL(); got != policy.Forever {
		t.Errorf("TTL = %v, want it to stop at %v", got, policy.Forever)
	}
	o := policy.Operation{Inputs: in, Deadline: policy.Forever, Settle: 1}
	if got := o.QuietAfter(); got != policy.Forever {
		t.Errorf("QuietAfter = %v, want %v", got, policy.Forever)
	}
	p := with(func(o *policy.Operation) { o.Inputs = in })
	wantFinding(t, p.Validate(), policy.SeverityError, policy.CodeDurationTooLong, "ttl.client_retry_budget[0].value", "36500d")
	p = with(func(o *policy.Operation) {
		o.Inputs.ClientRetryBudget.Value = 36000 * day
		o.Inputs.SafetyMargin.Value = 36000 * day
	})
	wantFinding(t, p.Validate(), policy.SeverityError, policy.CodeDurationTooLong, "ttl", "72000d")
}

// C45: the TTL is sized for the slowest party that retries.
func TestC45SlowestRetrier(t *testing.T) {
	const job = 30*time.Second + 5*time.Minute + 30*time.Minute + 6*time.Hour
	sdk := policy.Retrier{Name: "sdk", Value: 10 * time.Second}
	queue := policy.Retrier{Name: "job", Value: job}
	webhook := policy.Retrier{Name: "webhook", Value: 3 * day}
	person := policy.Retrier{Name: "person", Value: day}
	const margin = time.Hour
	inputs := func(r ...policy.Retrier) policy.Inputs {
		return policy.Inputs{ClientRetryBudget: policy.Input{Retriers: r}, SafetyMargin: policy.Input{Value: margin}}
	}

	t.Run("independent", func(t *testing.T) {
		in := inputs(sdk, queue, webhook, person)
		if got, want := in.TTL(), 3*day+margin; got != want {
			t.Errorf("TTL = %v, want %v", got, want)
		}
		if got, want := in.Dominant(), "client_retry_budget (webhook)"; got != want {
			t.Errorf("Dominant = %q, want %q", got, want)
		}
	})
	t.Run("without the webhook", func(t *testing.T) {
		in := inputs(sdk, queue, person)
		if got, want := in.TTL(), day+margin; got != want {
			t.Errorf("TTL = %v, want %v", got, want)
		}
		if got, want := in.Dominant(), "client_retry_budget (person)"; got != want {
			t.Errorf("Dominant = %q, want %q", got, want)
		}
	})
	t.Run("nested", func(t *testing.T) {
		nested := sdk
		nested.Inside = "job"
		in := inputs(nested, queue)
		if got, want := in.ClientRetryBudget.Total(), 6*time.Hour+35*time.Minute+40*time.Second; got != want {
			t.Errorf("Total = %v, want %v", got, want)
		}
		if got, want := in.Dominant(), "client_retry_budget (job + sdk)"; got != want {
			t.Errorf("Dominant = %q, want %q", got, want)
		}
	})
	t.Run("configured lifetime too short", func(t *testing.T) {
		in := inputs(sdk, queue, webhook, person)
		if got, want := in.Shortfall(12*time.Hour), 2*day+13*time.Hour; got != want {
			t.Errorf("Shortfall = %v, want %v", got, want)
		}
		if got := in.Shortfall(4 * day); got != 0 {
			t.Errorf("Shortfall of a longer lifetime = %v, want 0", got)
		}
		p := with(func(o *policy.Operation) { o.Inputs, o.Protect, o.ReplayFor = in, 12*time.Hour, nil })
		wantFinding(t, p.Validate(), policy.SeverityWarning, policy.CodeProtectBelowTTL, "protect", "12h", "2d13h", "3d1h")
		if got, want := p.Operations[0].Retention(), 3*day+margin; got != want {
			t.Errorf("Retention = %v, want %v whatever protect says", got, want)
		}
	})
}

func TestRetriersNestedInACircle(t *testing.T) {
	in := policy.Input{Retriers: []policy.Retrier{
		{Name: "a", Value: time.Second, Inside: "b"},
		{Name: "b", Value: time.Second, Inside: "a"},
		{Name: "c", Value: time.Second, Inside: "nobody"},
		{Name: "c", Value: time.Second},
	}}
	if got := in.Total(); got <= 0 {
		t.Errorf("Total = %v, want it to end", got)
	}
	p := with(func(o *policy.Operation) { o.Inputs.ClientRetryBudget = in })
	findings := p.Validate()
	wantFinding(t, findings, policy.SeverityError, policy.CodeRetrierInvalid, "ttl.client_retry_budget[0].inside", "itself")
	wantFinding(t, findings, policy.SeverityError, policy.CodeRetrierInvalid, "ttl.client_retry_budget[2].inside", "nobody")
	wantFinding(t, findings, policy.SeverityError, policy.CodeRetrierInvalid, "ttl.client_retry_budget[3].name", "two retriers")
}

// C44 and C89: a redelivery window worked out elsewhere (measure) counts whole,
// and is named when it dominates. The windows are those of brokers.md for a
// source of 4 d, a dead-letter queue of 14 d and one redrive.
func TestC44DeadLetterQueue(t *testing.T) {
	for _, tt := range []struct {
		queue  string
		window time.Duration
	}{{"standard", 18 * day}, {"fifo", 22 * day}, {"C89, three receives 30 min apart", 90 * time.Minute}} {
		in := policy.Inputs{
			ClientRetryBudget:      policy.Input{Value: 10 * time.Minute},
			BrokerRedeliveryWindow: policy.Input{Value: tt.window},
			ReconciliationCadence:  policy.Input{Value: 5 * time.Minute},
			SafetyMargin:           policy.Input{Value: time.Hour},
		}
		if got, want := in.TTL(), tt.window+time.Hour+5*time.Minute; got != want {
			t.Errorf("%s: TTL = %v, want %v", tt.queue, got, want)
		}
		if got, want := in.Dominant(), "broker_redelivery_window"; got != want {
			t.Errorf("%s: Dominant = %q, want %q", tt.queue, got, want)
		}
	}
	// An endless queue has no finite TTL, and the refusal says what to do.
	_, err := policy.ParseDuration("infinite")
	if err == nil || !strings.Contains(err.Error(), "no finite ttl") || !strings.Contains(err.Error(), "before each redrive") {
		t.Errorf("ParseDuration(infinite) = %v, want a refusal that says what to do", err)
	}
}
