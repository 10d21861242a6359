package policy_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

func TestValidPolicyHasNoErrors(t *testing.T) {
	p := with(unchanged)
	for _, f := range p.Validate() {
		// Without redispatch a default policy always says what becomes of
		// ambiguous keys.
		if f.Code != policy.CodeKeysSpent || f.Severity != policy.SeverityWarning {
			t.Errorf("unexpected finding: %+v", f)
		}
	}
	p = with(func(o *policy.Operation) {
		o.OnUnknown = policy.OnUnknown{Rule: policy.UnknownRedispatch, Within: 23 * time.Hour}
	})
	if f := p.Validate(); len(f) != 0 {
		t.Errorf("unexpected findings: %v", f)
	}
}

func TestValidateListsEverythingAtOnce(t *testing.T) {
	p := &policy.Policy{}
	findings := p.Validate()
	wantFinding(t, findings, policy.SeverityError, policy.CodeVersionMissing, "version")
	wantFinding(t, findings, policy.SeverityError, policy.CodeOperationsMissing, "operations")
	if !policy.Refuses(findings) {
		t.Error("Refuses = false for a policy without operations")
	}
}

func TestValidateOneFault(t *testing.T) {
	const e, w = policy.SeverityError, policy.SeverityWarning
	for _, tt := range []struct {
		name     string
		change   func(*policy.Operation)
		severity policy.Severity
		code     policy.Code
		field    string
		words    []string
	}{
		{"no scope (P08)", func(o *policy.Operation) { o.Scope = policy.Scope{} }, e, policy.CodeScopeMissing, "scope.principal", []string{"header:NAME"}},
		{"unknown principal", func(o *policy.Operation) { o.Scope.Principal.Kind = "cookie" }, e, policy.CodePrincipalInvalid, "scope.principal", []string{"cookie"}},
		{"header without name", func(o *policy.Operation) { o.Scope.Principal.Header = "" }, e, policy.CodePrincipalInvalid, "scope.principal", nil},
		{"header with colon", func(o *policy.Operation) { o.Scope.Principal.Header = "X:Y" }, e, policy.CodePrincipalInvalid, "scope.principal", nil},
		{"principal is the key", func(o *policy.Operation) { o.Scope.Principal.Header = "idempotency-key" }, e, policy.CodePrincipalInvalid, "scope.principal", nil},
		{"header beside auth_request", func(o *policy.Operation) { o.Scope.Principal.Kind = policy.PrincipalAuthRequest }, e, policy.CodePrincipalInvalid, "scope.principal", nil},
		{"anonymous", func(o *policy.Operation) { o.Scope.Principal = policy.Principal{Kind: policy.PrincipalAnonymous} }, w, policy.CodePrincipalAnonymous, "scope.principal", nil},
		{"credential, long", func(o *policy.Operation) { o.Scope.Principal.Header = "Authorization" }, e, policy.CodePrincipalCredential, "scope.principal", []string{"90d", "1d"}},
		{"credential, short", func(o *policy.Operation) {
			o.Scope.Principal.Header = "X-Api-Key"
			o.Protect, o.ReplayFor = 0, nil
		}, w, policy.CodePrincipalCredential, "scope.principal", nil},
		{"family name", func(o *policy.Operation) { o.Scope.Family = "a/b" }, e, policy.CodeNameInvalid, "scope.family", nil},
		{"operation name", func(o *policy.Operation) { o.Name = "pay ment" }, e, policy.CodeNameInvalid, "", []string{`"pay ment"`}},
		{"renamed from itself", func(o *policy.Operation) { o.RenamedFrom = o.Name }, e, policy.CodeRenamedFrom, "renamed_from", nil},
		{"key header", func(o *policy.Operation) { o.Key.Header = "Idempotency Key" }, e, policy.CodeKeyInvalid, "key.header", nil},
		{"key in Connection", func(o *policy.Operation) { o.Key.Header = "connection" }, e, policy.CodeKeyInvalid, "key.header", nil},
		{"key format", func(o *policy.Operation) { o.Key.Format = "uuidv4" }, e, policy.CodeValueInvalid, "key.format", []string{"any, uuid, uuidv7 or ulid"}},
		{"match without method", func(o *policy.Operation) { o.Match = []string{"/v1/payments/{payment}"} }, e, policy.CodeMatchMethod, "match[0]", nil},
		{"match GET", func(o *policy.Operation) { o.Match = []string{"GET /v1/payments/{payment}"} }, e, policy.CodeMatchMethod, "match[0]", []string{"GET"}},
		{"match broken", func(o *policy.Operation) { o.Match, o.Resource = []string{"POST /v1/{payment"}, "" }, e, policy.CodeMatchInvalid, "match[0]", nil},
		{"match with a space in the host", func(o *policy.Operation) { o.Match = []string{"PUT a /v1/{payment}"} }, e, policy.CodeMatchInvalid, "match[0]", []string{`"a "`}},
		{"match twice (P05)", func(o *policy.Operation) { o.Match = append(o.Match, o.Match[0]) }, e, policy.CodeMatchConflict, "match[1]", []string{"match[0]", "the same"}},
		{"resource elsewhere", func(o *policy.Operation) { o.Resource = "//evil.example/x" }, e, policy.CodeResourceInvalid, "resource", nil},
		{"resource without wildcard", func(o *policy.Operation) { o.Resource = "/v1/{order}" }, e, policy.CodeResourceInvalid, "resource", []string{"{order}"}},
		{"fingerprint path", func(o *policy.Operation) { o.Fingerprint.Fields = []string{"amount"} }, e, policy.CodeFingerprintInvalid, "fingerprint.fields[0]", []string{"$.amount"}},
		{"fingerprint default", func(o *policy.Operation) { o.Fingerprint.Defaults[0].Value = "yes" }, e, policy.CodeFingerprintInvalid, "fingerprint.defaults", nil},
		{"fingerprint header", func(o *policy.Operation) { o.Fingerprint.Headers = []string{""} }, e, policy.CodeFingerprintInvalid, "fingerprint.headers[0]", nil},
		{"fingerprint covers a credential", func(o *policy.Operation) { o.Fingerprint.Headers = []string{"Cookie"} }, w, policy.CodeFingerprintCredential, "fingerprint.headers[0]", nil},
		{"ttl zero", func(o *policy.Operation) { o.Inputs = policy.Inputs{} }, e, policy.CodeTTLZero, "ttl", nil},
		{"input negative (P02)", func(o *policy.Operation) { o.Inputs.SafetyMargin.Value = -time.Second }, e, policy.CodeDurationNegative, "ttl.safety_margin", []string{"-1s"}},
		{"value and retriers", func(o *policy.Operation) {
			o.Inputs.ClientRetryBudget.Retriers = []policy.Retrier{{Name: "a", Value: 1}}
		}, e, policy.CodeRetrierInvalid, "ttl.client_retry_budget", nil},
		{"replay beyond the horizon", func(o *policy.Operation) { o.ReplayFor = new(91 * day) }, e, policy.CodeReplayBeyondHorizon, "replay", []string{"91d", "90d"}},
		{"deadline zero", func(o *policy.Operation) { o.Deadline = 0 }, e, policy.CodeDurationZero, "deadline", nil},
		{"lease zero", func(o *policy.Operation) { o.Lease = 0 }, e, policy.CodeDurationZero, "lease", nil},
		{"wait too long", func(o *policy.Operation) { o.Wait = 2 * time.Minute }, w, policy.CodeWaitLong, "wait", nil},
		{"redispatch never possible", func(o *policy.Operation) {
			o.OnUnknown = policy.OnUnknown{Rule: policy.UnknownRedispatch, Within: o.QuietAfter()}
		}, e, policy.CodeRedispatchWindow, "on_unknown.redispatch_within", []string{"1m30s"}},
		{"window without redispatch", func(o *policy.Operation) { o.OnUnknown.Within = time.Hour }, e, policy.CodeValueInvalid, "on_unknown.redispatch_within", nil},
		{"hold without operator", func(o *policy.Operation) { o.OnUnknown.Rule = policy.UnknownHold }, e, policy.CodeHoldNeedsOperator, "on_unknown", []string{"unresolved-needs-operator"}},
		{"keys spent", unchanged, w, policy.CodeKeysSpent, "on_unknown", []string{"never run again"}},
		{"status out of range", func(o *policy.Operation) { o.Ambiguous = []int{500, 600} }, e, policy.CodeStatusInvalid, "ambiguous[1]", nil},
		{"status in both lists", func(o *policy.Operation) { o.NoEffect = []int{503} }, e, policy.CodeStatusInvalid, "no_effect[0]", nil},
		{"success without effect", func(o *policy.Operation) { o.NoEffect = []int{202} }, e, policy.CodeStatusSuccess, "no_effect[0]", nil},
		{"unknown_status", func(o *policy.Operation) { o.UnknownStatus = 500 }, e, policy.CodeValueInvalid, "unknown_status", nil},
		{"see-other without resource", func(o *policy.Operation) { o.LateAnswer, o.Resource = "see-other", "" }, e, policy.CodeSeeOtherNeedsResource, "late_answer", nil},
		{"max_request", func(o *policy.Operation) { o.MaxRequest = 64<<20 + 1 }, e, policy.CodeLimitRange, "max_request", []string{"64MiB"}},
		{"max_response", func(o *policy.Operation) { o.MaxResponse = 0 }, e, policy.CodeLimitRange, "max_response", nil},
		{"max_unresolved", func(o *policy.Operation) { o.MaxUnresolved = 0 }, e, policy.CodeLimitRange, "max_unresolved", nil},
		{"volume", func(o *policy.Operation) { o.Volume.Records = math.NaN() }, e, policy.CodeVolumeInvalid, "volume", nil},
		{"volume without period", func(o *policy.Operation) { o.Volume.Per = 0 }, e, policy.CodeVolumeInvalid, "volume", nil},
		{"gate zero", func(o *policy.Operation) { o.Gates[0].For = 0 }, e, policy.CodeDurationZero, "closure.provider_reference", nil},
		{"gate twice", func(o *policy.Operation) { o.Gates = append(o.Gates, o.Gates[0]) }, e, policy.CodeGateInvalid, "closure.provider_reference", nil},
		{"accept unknown", func(o *policy.Operation) { o.Accept = []string{"everything"} }, e, policy.CodeAcceptUnknown, "accept[0]", []string{"may-lose-acknowledged-claims"}},
		{"not UTF-8", func(o *policy.Operation) { o.Inputs.SafetyMargin.Source = "\xff" }, e, policy.CodeTextInvalid, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			findings := with(tt.change).Validate()
			wantFinding(t, findings, tt.severity, tt.code, tt.field, tt.words...)
			for _, f := range findings {
				if f.Code != tt.code && f.Severity == policy.SeverityError {
					t.Errorf("one fault, but also: %s", f)
				}
			}
		})
	}
}

func TestValidateAllowsTheBounds(t *testing.T) {
	for name, change := range map[string]func(*policy.Operation){
		"longest protection": func(o *policy.Operation) { o.Protect = policy.MaxLifetime },
		"largest bodies":     func(o *policy.Operation) { o.MaxRequest, o.MaxResponse = 64<<20, 64<<20 },
		"smallest bodies":    func(o *policy.Operation) { o.MaxRequest, o.MaxResponse, o.MaxUnresolved = 1, 1, 1 },
		"outermost statuses": func(o *policy.Operation) { o.Ambiguous, o.NoEffect = []int{100, 599}, []int{199, 300} },
		"replay = horizon":   func(o *policy.Operation) { o.ReplayFor = new(o.Retention()) },
		"no waiting":         func(o *policy.Operation) { o.Wait, o.Settle = 0, 0 },
		"longest name":       func(o *policy.Operation) { o.Name = strings.Repeat("n", 64) },
	} {
		if p := with(change); policy.Refuses(p.Validate()) {
			t.Errorf("%s: %v", name, p.Validate())
		}
	}
}

// C88 and P03: the lease and the horizon swapped.
func TestC88SwappedDurations(t *testing.T) {
	retention := func(lease, retention time.Duration) *policy.Policy {
		return with(func(o *policy.Operation) {
			o.Lease, o.Protect, o.ReplayFor = lease, 0, nil
			o.Inputs = policy.Inputs{SafetyMargin: policy.Input{Value: retention}}
		})
	}
	for name, p := range map[string]*policy.Policy{
		"swapped": retention(24*time.Hour, 5*time.Minute),
		"equal":   retention(5*time.Minute, 5*time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			wantFinding(t, p.Validate(), policy.SeverityError, policy.CodeLeaseBeyondHorizon, "lease", "lease (", "horizon (5m", "swapped")
		})
	}
	p := with(func(o *policy.Operation) { o.Lease = 100*o.Deadline + time.Second*100 })
	wantFinding(t, p.Validate(), policy.SeverityWarning, policy.CodeLeaseLong, "lease", "lease (", "deadline (1m")
	for _, lease := range []time.Duration{100 * time.Millisecond, 2 * time.Minute, 100 * time.Minute} {
		p := with(func(o *policy.Operation) { o.Lease = lease })
		if find(p.Validate(), policy.CodeLeaseLong) != nil || policy.Refuses(p.Validate()) {
			t.Errorf("lease %v: unexpected findings %v", lease, p.Validate())
		}
	}
}

// P05: overlapping patterns are refused naming both; more specific ones are
// no conflict, by net/http's own rules.
func TestP05PatternsAcrossOperations(t *testing.T) {
	two := func(a, b string) *policy.Policy {
		first, second := capture(), capture()
		first.Name, second.Name = "first", "second"
		first.Match, second.Match = []string{a}, []string{b}
		first.Resource, second.Resource = "", ""
		return &policy.Policy{Version: 1, Operations: []policy.Operation{first, second}}
	}
	findings := two("POST /v1/{a}/x", "POST /v1/y/{b}").Validate()
	wantFinding(t, findings, policy.SeverityError, policy.CodeMatchConflict, "match[0]",
		"operations.second.match[0]", "operations.first.match[0]", `"POST /v1/{a}/x"`, `"POST /v1/y/{b}"`)
	for _, f := range findings {
		if strings.Contains(f.Message, ".go:") {
			t.Errorf("names a line of the program: %s", f)
		}
	}
	if f := find(two("POST /v1/{a}", "POST /v1/y").Validate(), policy.CodeMatchConflict); f != nil {
		t.Errorf("more specific, yet: %s", f)
	}
}

func TestOperationsOfOneFamilyAgree(t *testing.T) {
	pair := func(change func(*policy.Operation)) *policy.Policy {
		first, second := capture(), capture()
		first.Name, second.Name = "capture", "refund"
		second.Match, second.Resource = []string{"POST /v1/refunds"}, ""
		change(&second)
		return &policy.Policy{Version: 1, Operations: []policy.Operation{first, second}}
	}
	if p := pair(unchanged); policy.Refuses(p.Validate()) {
		t.Errorf("one family, alike, yet: %v", p.Validate())
	}
	for field, change := range map[string]func(*policy.Operation){
		"scope.principal": func(o *policy.Operation) { o.Scope.Principal.Header = "X-User" },
		"key.header":      func(o *policy.Operation) { o.Key.Header = "X-Key" },
		"key.format":      func(o *policy.Operation) { o.Key.Format = policy.KeyULID },
	} {
		p := pair(change)
		wantFinding(t, p.Validate(), policy.SeverityError, policy.CodeFamilyDiffers, field, `"capture"`, `"refund"`, `"payments"`)
		p.Operations[1].Scope.Family = "refunds"
		if f := find(p.Validate(), policy.CodeFamilyDiffers); f != nil {
			t.Errorf("two families, yet: %s", f)
		}
	}
}

func TestOperationNames(t *testing.T) {
	p := with(unchanged)
	p.Operations = append(p.Operations, capture())
	p.Operations[1].Match = nil
	wantFinding(t, p.Validate(), policy.SeverityError, policy.CodeOperationDuplicate, "", "payment_capture")

	p.Operations[1].Name = "a"
	wantFinding(t, p.Validate(), policy.SeverityError, policy.CodeOperationsUnsorted, "", "Normalize")
	p.Normalize()
	if policy.Refuses(p.Validate()) {
		t.Errorf("after Normalize: %v", p.Validate())
	}
	if p.Operation("a") == nil || p.Operation("payment_capture") == nil || p.Operation("b") != nil {
		t.Error("Operation does not find what is there, or finds what is not")
	}

	p.Operations[0].RenamedFrom = "old"
	p.Operations[1].RenamedFrom = "old"
	wantFinding(t, p.Validate(), policy.SeverityError, policy.CodeRenamedFrom, "renamed_from", "both renamed")
}
