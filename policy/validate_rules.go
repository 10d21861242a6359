package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxBytes bounds what is held in memory per request and per response.
const maxBytes = 64 << 20

// leaseFactor is how many times its deadline a lease may be before it is
// probably a mistake (cases.md C88).
const leaseFactor = 100

// lifetimes checks the formula, then every duration beside it.
func (c *checker) lifetimes(o *Operation) {
	before := len(c.findings)
	for _, t := range o.Inputs.Terms() {
		c.input("ttl."+t.Name, t.Input)
	}
	sound := len(c.findings) == before
	ttl := o.TTL()
	if sound && ttl == 0 {
		c.fail(CodeTTLZero, "ttl", "say how long a retry can still come: client_retry_budget, broker_redelivery_window, reconciliation_cadence, safety_margin",
			"the ttl is zero: every key would be forgotten at once")
	}
	if sound && ttl > MaxLifetime {
		c.tooLong("ttl", ttl)
	}
	if c.duration("protect", o.Protect, mayBeZero) && sound && o.Protect > 0 && o.Protect < ttl {
		c.warn(CodeProtectBelowTTL, "protect", "leave it out, or write at least "+FormatDuration(ttl),
			"protect (%s) is %s shorter than the ttl (%s), which counts instead",
			FormatDuration(o.Protect), FormatDuration(o.Inputs.Shortfall(o.Protect)), FormatDuration(ttl))
	}
	sound = sound && o.Retention() > 0
	if o.ReplayFor != nil && c.duration("replay", *o.ReplayFor, mayBeZero) && sound && *o.ReplayFor > o.Retention() {
		c.fail(CodeReplayBeyondHorizon, "replay", "write at most "+FormatDuration(o.Retention())+", or raise protect",
			"replay (%s) is longer than the horizon (%s): a response cannot outlive its record",
			FormatDuration(*o.ReplayFor), FormatDuration(o.Retention()))
	}
	deadline := c.duration("deadline", o.Deadline, mustTakeTime)
	c.duration("settle", o.Settle, mayBeZero)
	if c.duration("wait", o.Wait, mayBeZero) && deadline && o.Wait > o.Deadline {
		c.warn(CodeWaitLong, "wait", "write at most "+FormatDuration(o.Deadline),
			"duplicates wait %s, longer than the deadline of the first (%s)", FormatDuration(o.Wait), FormatDuration(o.Deadline))
	}
	if c.duration("lease", o.Lease, mustTakeTime) {
		c.lease(o, sound, deadline)
	}
}

// lease compares the lease with the two durations it is confused with.
func (c *checker) lease(o *Operation, sound, deadline bool) {
	switch horizon := o.Retention(); {
	case sound && o.Lease >= horizon:
		c.fail(CodeLeaseBeyondHorizon, "lease", "give the lease seconds and the horizon hours or days",
			"lease (%s) is not shorter than the horizon (%s, from ttl and protect); were the two swapped?",
			FormatDuration(o.Lease), FormatDuration(horizon))
	case deadline && o.Lease/leaseFactor > o.Deadline:
		c.warn(CodeLeaseLong, "lease", "write about half the deadline; it is renewed while the handler runs",
			"lease (%s) is more than %d times the deadline (%s): a claim whose process died blocks its key that long",
			FormatDuration(o.Lease), leaseFactor, FormatDuration(o.Deadline))
	}
}

const (
	mayBeZero    = true
	mustTakeTime = false
)

// duration checks the range of one duration.
func (c *checker) duration(field string, d time.Duration, zero bool) bool {
	switch {
	case d < 0:
		c.fail(CodeDurationNegative, field, "write a duration like 90s, 15m, 4h or 30d", "%s is negative (%s)", field, FormatDuration(d))
	case d == 0 && !zero:
		c.fail(CodeDurationZero, field, "write a duration like 30s", "%s is zero", field)
	case d > MaxLifetime:
		c.tooLong(field, d)
	default:
		return true
	}
	return false
}

func (c *checker) tooLong(field string, d time.Duration) {
	c.fail(CodeDurationTooLong, field, "write at most "+FormatDuration(MaxLifetime)+"; for no end, hold the records instead",
		"%s (%s) is too long to be kept as an instant", field, FormatDuration(d))
}

// input checks one term of the formula.
func (c *checker) input(field string, in Input) {
	c.duration(field, in.Value, mayBeZero)
	if len(in.Retriers) > 0 && in.Value != 0 {
		c.fail(CodeRetrierInvalid, field, "write either a duration or retriers", "%s has both a value and retriers", field)
	}
	seen := map[string]bool{}
	for i, r := range in.Retriers {
		at := fmt.Sprintf("%s[%d]", field, i)
		c.name("retrier", at+".name", r.Name)
		if seen[r.Name] {
			c.fail(CodeRetrierInvalid, at+".name", "give each its own name", "two retriers are named %q", r.Name)
		}
		seen[r.Name] = true
		c.duration(at+".value", r.Value, mayBeZero)
		if r.Inside == "" {
			continue
		}
		if _, ok := in.retrier(r.Inside); !ok {
			c.fail(CodeRetrierInvalid, at+".inside", "name another retrier of this list", "%q runs inside %q, which is not listed", r.Name, r.Inside)
		} else if in.circular(r) {
			c.fail(CodeRetrierInvalid, at+".inside", "leave inside out of the outermost", "%q runs inside itself", r.Name)
		}
	}
}

// circular reports whether r is nested in itself, near or far.
func (i Input) circular(r Retrier) bool {
	inside := r.Inside
	for range i.Retriers {
		if inside == r.Name {
			return true
		}
		outer, ok := i.retrier(inside)
		if !ok {
			return false
		}
		inside = outer.Inside
	}
	return false
}

// unknown checks what becomes of records whose outcome nobody can tell.
func (c *checker) unknown(o *Operation) {
	u := o.OnUnknown
	if !c.word("on_unknown", string(u.Rule), string(UnknownClose), string(UnknownHold), string(UnknownRedispatch)) {
		return
	}
	if u.Rule != UnknownRedispatch && u.Within != 0 {
		c.fail(CodeValueInvalid, "on_unknown.redispatch_within", "take it out", "%s has no window", u.Rule)
	}
	const spent = "keys whose first answer was ambiguous are spent: they will never run again"
	const remedy = "if downstream dedupes by Counterfoil-Identity, write on_unknown: {redispatch_within: …}; or let the upstream answer Counterfoil-Outcome"
	switch u.Rule {
	case UnknownRedispatch:
		if c.duration("on_unknown.redispatch_within", u.Within, mustTakeTime) && u.Within <= o.QuietAfter() {
			c.fail(CodeRedispatchWindow, "on_unknown.redispatch_within", "write more than "+FormatDuration(o.QuietAfter())+", but no more than downstream's own window",
				"redispatch_within (%s) is not longer than deadline + settle (%s): it is over before the first attempt is",
				FormatDuration(u.Within), FormatDuration(o.QuietAfter()))
		}
	case UnknownHold:
		if !slices.Contains(o.Accept, AcceptUnresolvedNeedsOperator) {
			c.fail(CodeHoldNeedsOperator, "on_unknown", "write accept: ["+AcceptUnresolvedNeedsOperator+"], or on_unknown: close",
				"unknown outcomes are held until somebody resolves them, and nothing does so by itself")
		}
		c.warn(CodeKeysSpent, "on_unknown", remedy, "%s unless an operator resolves them", spent)
	default:
		c.warn(CodeKeysSpent, "on_unknown", remedy, "%s", spent)
	}
}

// answers checks statuses and the words that choose an answer.
func (c *checker) answers(o *Operation) {
	for i, s := range o.Ambiguous {
		c.status(fmt.Sprintf("ambiguous[%d]", i), s)
	}
	for i, s := range o.NoEffect {
		field := fmt.Sprintf("no_effect[%d]", i)
		switch {
		case !c.status(field, s):
		case s >= 200 && s <= 299:
			c.fail(CodeStatusSuccess, field, "take it out", "%d is a success; after it the same key would run again", s)
		case slices.Contains(o.Ambiguous, s):
			c.fail(CodeStatusInvalid, field, "take it out of one of them", "%d is both ambiguous and no_effect", s)
		}
	}
	if o.UnknownStatus != 503 && o.UnknownStatus != 409 {
		c.fail(CodeValueInvalid, "unknown_status", "write 503 or 409", "%d is no status for an unknown outcome", o.UnknownStatus)
	}
	if c.word("late_answer", string(o.LateAnswer), string(LateAnswerStatus), string(LateAnswerSeeOther)) &&
		o.LateAnswer == LateAnswerSeeOther && o.Resource == "" {
		c.fail(CodeSeeOtherNeedsResource, "late_answer", "write resource: /…, or late_answer: status", "see-other has no resource to point to")
	}
	c.word("dispatch", string(o.Dispatch), string(DispatchImplicit), string(DispatchExplicit))
	c.word("late", string(o.Late), string(LateRefuse), string(LateCount))
	c.word("durability", string(o.Durability), string(DurabilityA), string(DurabilityB), string(DurabilityC))
}

func (c *checker) status(field string, s int) bool {
	if s < 100 || s > 599 {
		c.fail(CodeStatusInvalid, field, "write a status from 100 to 599", "%d is no HTTP status", s)
		return false
	}
	return true
}

// word checks a field that knows a few words.
func (c *checker) word(field, got string, known ...string) bool {
	if slices.Contains(known, got) {
		return true
	}
	c.fail(CodeValueInvalid, field, "write "+strings.Join(known[:len(known)-1], ", ")+" or "+known[len(known)-1], "%q is not known here", got)
	return false
}

// limits checks the sizes and counts.
func (c *checker) limits(o *Operation) {
	size := func(field string, n int64) {
		if n < 1 || n > maxBytes {
			c.fail(CodeLimitRange, field, "write 1B to 64MiB", "%d bytes is out of range", n)
		}
	}
	size("max_request", o.MaxRequest)
	size("max_response", o.MaxResponse)
	if o.MaxUnresolved < 1 {
		c.fail(CodeLimitRange, "max_unresolved", "write a whole number above zero", "%d leaves no room for a single claim", o.MaxUnresolved)
	}
	switch v := o.Volume; {
	case !v.finite() || v.Records < 0 || v.Per < 0:
		c.fail(CodeVolumeInvalid, "volume", "write a rate like 50000/d", "the volume is negative or no number")
	case (v.Records == 0) != (v.Per == 0):
		c.fail(CodeVolumeInvalid, "volume", "write a rate like 50000/d", "the volume is no rate")
	}
}

// closure checks the gates and what the operation accepts.
func (c *checker) closure(o *Operation) {
	seen := map[string]bool{}
	for _, g := range o.Gates {
		field := "closure." + g.Name
		c.name("gate", field, g.Name)
		if seen[g.Name] {
			c.fail(CodeGateInvalid, field, "give each its own name", "two gates are named %q", g.Name)
		}
		seen[g.Name] = true
		c.duration(field, g.For, mustTakeTime)
	}
	for i, a := range o.Accept {
		if !slices.Contains(Dangers(), a) {
			c.fail(CodeAcceptUnknown, fmt.Sprintf("accept[%d]", i), "write one of "+strings.Join(Dangers(), ", "), "%q is no danger known here", a)
		}
	}
}
