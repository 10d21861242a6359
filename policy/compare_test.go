package policy_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// eachField runs check once per field of Operation, on a policy in which only
// that field differs from with(unchanged). A new field lands here by itself.
func eachField(t *testing.T, check func(*testing.T, *policy.Policy)) {
	set := map[string]func(*policy.Operation){
		"Match":       func(o *policy.Operation) { o.Match = []string{"PUT /v1/payments/{payment}"} },
		"Scope":       func(o *policy.Operation) { o.Scope.Family = "other" },
		"Key":         func(o *policy.Operation) { o.Key.Format = policy.KeyULID },
		"Fingerprint": func(o *policy.Operation) { o.Fingerprint.Fields = []string{"$.amount"} },
		"Inputs":      func(o *policy.Operation) { o.Inputs.SafetyMargin.Source = "a guess" },
		"ReplayFor":   func(o *policy.Operation) { o.ReplayFor = new(time.Hour) },
		"OnUnknown":   func(o *policy.Operation) { o.OnUnknown.Rule = policy.UnknownHold },
		"Ambiguous":   func(o *policy.Operation) { o.Ambiguous = nil },
		"NoEffect":    func(o *policy.Operation) { o.NoEffect = []int{429} },
		"Volume":      func(o *policy.Operation) { o.Volume.Records++ },
		"Gates":       func(o *policy.Operation) { o.Gates = nil },
		"Accept":      func(o *policy.Operation) { o.Accept = []string{policy.AcceptMayLoseClaims} },
	}
	typ := reflect.TypeFor[policy.Operation]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		if name == "Name" {
			continue
		}
		change := set[name]
		if change == nil {
			change = func(o *policy.Operation) {
				switch v := reflect.ValueOf(o).Elem().Field(i); v.Kind() {
				case reflect.String:
					v.SetString(v.String() + "x")
				case reflect.Int, reflect.Int64:
					v.SetInt(v.Int() + int64(time.Second))
				default:
					t.Fatalf("no change known for the field %s: add one above", name)
				}
			}
		}
		t.Run(name, func(t *testing.T) { check(t, with(change)) })
	}
}

func TestCompareSeesEveryField(t *testing.T) {
	base := with(unchanged)
	if c := policy.Compare(base, with(unchanged)); len(c) != 0 {
		t.Errorf("no difference, yet %v", c)
	}
	eachField(t, func(t *testing.T, changed *policy.Policy) {
		changes := policy.Compare(base, changed)
		if len(changes) == 0 {
			t.Error("the change is not listed")
		}
		for _, c := range changes {
			if c.Operation != "payment_capture" || c.Old == c.New || c.ForNew == "" || c.ForExisting == "" {
				t.Errorf("incomplete: %+v", c)
			}
		}
	})
}

func change(t *testing.T, changes []policy.Change, field string) policy.Change {
	t.Helper()
	i := slices.IndexFunc(changes, func(c policy.Change) bool { return c.Field == field })
	if i < 0 {
		t.Fatalf("no change of %q in %v", field, changes)
	}
	return changes[i]
}

// design.md P10 and dangers.md P07: a change of lifetimes touches new records
// only, and where it lengthens them it says that existing ones stay shorter.
func TestP10LifetimesTouchNewRecordsOnly(t *testing.T) {
	long := with(unchanged)
	short := with(func(o *policy.Operation) {
		o.Protect, o.ReplayFor = 60*day, new(time.Hour)
		o.Inputs.SafetyMargin.Value = time.Hour
		o.Gates = []policy.Gate{{Name: "provider_reference", For: 10 * day}}
	})
	for _, field := range []string{"ttl", "horizon", "replay", "closure.provider_reference"} {
		if c := change(t, policy.Compare(long, short), field); c.ForExisting != policy.EffectKeeps || c.ForNew != policy.EffectTakes {
			t.Errorf("shortened: %+v", c)
		}
	}
	for _, field := range []string{"ttl", "horizon", "closure.provider_reference"} {
		if c := change(t, policy.Compare(short, long), field); c.ForExisting != policy.EffectShorter || c.ForNew != policy.EffectTakes {
			t.Errorf("lengthened: %+v", c)
		}
	}
	// The engine judges a standing record by the rule that made it.
	counted := with(func(o *policy.Operation) { o.Late = policy.LateCount })
	refused := with(func(o *policy.Operation) { o.Late = policy.LateRefuse })
	if c := change(t, policy.Compare(counted, refused), "late"); c.ForExisting != policy.EffectKeeps || c.ForNew != policy.EffectTakes {
		t.Errorf("late: %+v", c)
	}
	c := change(t, policy.Compare(long, short), "horizon")
	if c.Old != "90d" || c.New != "60d" {
		t.Errorf("horizon spelled %q and %q", c.Old, c.New)
	}
	if c := change(t, policy.Compare(long, with(func(o *policy.Operation) { o.Gates = nil })), "closure.provider_reference"); c.New != "" || c.ForExisting != policy.EffectKeeps {
		t.Errorf("gate taken out: %+v", c)
	}
}

func TestCompareOperations(t *testing.T) {
	base := with(unchanged)
	renamed := with(func(o *policy.Operation) { o.RenamedFrom, o.Name = o.Name, "capture" })
	if c := policy.Compare(base, renamed); len(c) != 1 || c[0].ForExisting != policy.EffectInherits {
		t.Errorf("renamed: %v", c)
	}
	other := with(func(o *policy.Operation) { o.Name = "other" })
	c := policy.Compare(base, other)
	if len(c) != 2 || c[0].New != "other" || c[0].ForExisting != policy.EffectNone || c[1].Old != "payment_capture" || c[1].ForExisting != policy.EffectKeeps {
		t.Errorf("replaced: %v", c)
	}
	if got, want := c[1].String(), "payment_capture: payment_capture → (none) (new records: none; existing: keeps its own)"; got != want {
		t.Errorf("String = %q, want %q", got, want)
	}
}

func TestCheckSuccessor(t *testing.T) {
	next := func(version uint32, change func(*policy.Operation)) *policy.Policy {
		p := with(change)
		p.Version = version
		return p
	}
	longer := func(o *policy.Operation) { o.Protect += day }
	for _, tt := range []struct {
		name     string
		next     *policy.Policy
		severity policy.Severity
		code     policy.Code
		field    string
	}{
		{"the same again", next(7, unchanged), "", "", ""},
		{"grown", next(8, longer), "", "", ""},
		{"grown without change", next(8, unchanged), "", "", ""},
		{"same version, other content", next(7, longer), policy.SeverityError, policy.CodeVersionReused, "version"},
		{"lower", next(6, unchanged), policy.SeverityError, policy.CodeVersionLower, "version"},
		{"principal", next(8, func(o *policy.Operation) { o.Scope.Principal.Header = "X-User" }), policy.SeverityError, policy.CodeForgetsKeys, "scope.principal"},
		{"key header", next(8, func(o *policy.Operation) { o.Key.Header = "X-Key" }), policy.SeverityError, policy.CodeForgetsKeys, "key.header"},
		{"family", next(8, func(o *policy.Operation) { o.Scope.Family = "" }), policy.SeverityError, policy.CodeForgetsKeys, "scope.family"},
		{"renamed", next(8, func(o *policy.Operation) { o.Name, o.RenamedFrom = "capture", "payment_capture" }), "", "", ""},
		{"renamed with its family", next(8, func(o *policy.Operation) {
			o.Name, o.RenamedFrom, o.Scope.Family = "capture", "payment_capture", ""
		}), policy.SeverityError, policy.CodeForgetsKeys, "scope.family"},
		{"renamed from nothing", next(8, func(o *policy.Operation) { o.Name, o.RenamedFrom = "capture", "payments" }), policy.SeverityError, policy.CodeRenamedFromUnknown, "renamed_from"},
		{"removed", next(8, func(o *policy.Operation) { o.Name = "capture" }), policy.SeverityWarning, policy.CodeOperationRemoved, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			findings := policy.CheckSuccessor(with(unchanged), tt.next)
			if tt.code == "" {
				if len(findings) != 0 {
					t.Errorf("unexpected: %v", findings)
				}
				return
			}
			wantFinding(t, findings, tt.severity, tt.code, tt.field)
		})
	}
}
