package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

const day = policy.Day

// capture is the operation of contract.md §3, less what is not built, and with
// a margin of 19 h: the one there, 20 h, adds up to 25 h and not to the 24 h
// that its text gives.
func capture() policy.Operation {
	o := policy.NewOperation("payment_capture")
	o.Match = []string{"POST /v1/payments/{payment}/capture"}
	o.Scope = policy.Scope{
		Principal: policy.Principal{Kind: policy.PrincipalHeader, Header: "X-Account-Id"},
		Family:    "payments",
	}
	o.Fingerprint = policy.Fingerprint{
		Ignore:   []string{"$.metadata.sent_at"},
		Defaults: []policy.Default{{Path: "$.capture", Value: "true"}},
		Headers:  []string{"Api-Version"},
	}
	o.Inputs = policy.Inputs{
		ClientRetryBudget:     policy.Input{Value: 4 * time.Hour, Source: "support may retry by hand"},
		ReconciliationCadence: policy.Input{Value: time.Hour},
		SafetyMargin:          policy.Input{Value: 19 * time.Hour},
	}
	o.Protect = 90 * day
	o.ReplayFor = new(24 * time.Hour)
	o.Resource = "/v1/payments/{payment}"
	o.Gates = []policy.Gate{{Name: "provider_reference", For: 30 * day}}
	o.Volume = policy.Volume{Records: 50000, Per: day}
	return o
}

// with is a valid policy of one operation, changed.
func with(change func(*policy.Operation)) *policy.Policy {
	o := capture()
	change(&o)
	return &policy.Policy{Version: 7, Operations: []policy.Operation{o}}
}

func unchanged(*policy.Operation) {}

// find is the finding of that code, or nil.
func find(findings []policy.Finding, code policy.Code) *policy.Finding {
	for i := range findings {
		if findings[i].Code == code {
			return &findings[i]
		}
	}
	return nil
}

// wantFinding fails unless code was found at field with severity, in words
// that hold every one of words.
func wantFinding(t *testing.T, findings []policy.Finding, severity policy.Severity, code policy.Code, field string, words ...string) {
	t.Helper()
	for _, f := range findings {
		if f.Code != code || f.Field != field {
			continue
		}
		if f.Severity != severity {
			t.Errorf("%s at %s is a %s, want %s", code, field, f.Severity, severity)
		}
		if f.Remedy == "" {
			t.Errorf("%s at %s has no remedy", code, field)
		}
		for _, w := range words {
			if !strings.Contains(f.String(), w) {
				t.Errorf("%s at %s does not say %q: %s", code, field, w, f)
			}
		}
		return
	}
	t.Errorf("no %s at %q; found %v", code, field, findings)
}
