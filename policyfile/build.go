package policyfile

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// unbuilt are the fields that contract.md documents and that nothing in this
// version acts on. They are refused by name: a field that is read and ignored
// would be a promise that nobody keeps.
var unbuilt = map[reflect.Type]map[string]string{
	reflect.TypeFor[fileForm]():      {"measurements": "take the line out and write the inputs themselves"},
	reflect.TypeFor[operationForm](): {"resolver": "take it out; on_unknown says what becomes of unknown outcomes"},
	reflect.TypeFor[sourcedForm]():   {"measured": "take it out and name the measurement in source"},
}

// build turns the form into a policy, with defaults for what was left out. The
// operations are sorted, all else is as written, so that places still fit.
func build(f *fileForm) *policy.Policy {
	p := &policy.Policy{Version: or(f.Version, 0)}
	for _, name := range slices.Sorted(maps.Keys(f.Operations)) {
		form := f.Operations[name]
		p.Operations = append(p.Operations, form.operation(name))
	}
	return p
}

func (f *operationForm) operation(name string) policy.Operation {
	o := policy.NewOperation(name)
	o.RenamedFrom = string(or(f.RenamedFrom, ""))
	o.Match = plain(f.Match)
	if s := f.Scope; s != nil {
		o.Scope.Family = string(or(s.Family, ""))
		o.Scope.Principal = policy.Principal(or(s.Principal, principalForm{}))
	}
	if k := f.Key; k != nil {
		setWord(&o.Key.Header, k.Header)
		set(&o.Key.Required, k.Required)
		setWord(&o.Key.Format, k.Format)
	}
	if fp := f.Fingerprint; fp != nil {
		o.Fingerprint = fp.fingerprint()
	}
	if t := f.TTL; t != nil {
		o.Inputs = policy.Inputs{
			ClientRetryBudget:      policy.Input(or(t.ClientRetryBudget, inputForm{})),
			BrokerRedeliveryWindow: policy.Input(or(t.BrokerRedeliveryWindow, inputForm{})),
			ReconciliationCadence:  policy.Input(or(t.ReconciliationCadence, inputForm{})),
			SafetyMargin:           policy.Input(or(t.SafetyMargin, inputForm{})),
		}
	}
	if f.Replay != nil {
		o.ReplayFor = &f.Replay.Duration
	}
	setDuration(&o.Protect, f.Protect)
	setDuration(&o.Deadline, f.Deadline)
	setDuration(&o.Lease, f.Lease)
	setDuration(&o.Wait, f.Wait)
	setDuration(&o.Settle, f.Settle)
	if f.Ambiguous != nil {
		o.Ambiguous = convert[int](f.Ambiguous)
	}
	if f.NoEffect != nil {
		o.NoEffect = convert[int](f.NoEffect)
	}
	if f.OnUnknown != nil {
		o.OnUnknown = policy.OnUnknown(*f.OnUnknown)
	}
	set(&o.UnknownStatus, f.UnknownStatus)
	setWord(&o.LateAnswer, f.LateAnswer)
	setWord(&o.Dispatch, f.Dispatch)
	setWord(&o.Late, f.Late)
	if f.MaxRequest != nil {
		o.MaxRequest = int64(*f.MaxRequest)
	}
	if f.MaxResponse != nil {
		o.MaxResponse = int64(*f.MaxResponse)
	}
	set(&o.MaxUnresolved, f.MaxUnresolved)
	if f.Volume != nil {
		o.Volume = policy.Volume(*f.Volume)
	}
	o.Resource = or(f.Resource, "")
	setWord(&o.Durability, f.Durability)
	for _, name := range slices.Sorted(maps.Keys(f.Closure)) {
		o.Gates = append(o.Gates, policy.Gate{Name: name, For: f.Closure[name].Duration})
	}
	o.Accept = plain(f.Accept)
	return o
}

func (f *fingerprintForm) fingerprint() policy.Fingerprint {
	fp := policy.Fingerprint{Fields: plain(f.Fields), Ignore: plain(f.Ignore), Headers: plain(f.Headers)}
	for _, path := range slices.Sorted(maps.Keys(f.Defaults)) {
		fp.Defaults = append(fp.Defaults, policy.Default{Path: path, Value: string(f.Defaults[path])})
	}
	return fp
}

// set, setWord and setDuration keep the default of what was left out.
func set[T any](field *T, p *T) { *field = or(p, *field) }

func setWord[T, F ~string](field *T, p *F) { *field = T(or(p, F(*field))) }

func setDuration(field *time.Duration, p *durationForm) {
	*field = or(p, durationForm{*field}).Duration
}

// convert keeps the difference between an empty list and none.
func convert[T, F ~int](from []F) []T {
	to := make([]T, len(from))
	for i, f := range from {
		to[i] = T(f)
	}
	return to
}

// plain turns words of the form into strings; an empty list is none.
func plain[F ~string](from []F) []string {
	var to []string
	for _, f := range from {
		to = append(to, string(f))
	}
	return to
}
