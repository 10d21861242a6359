package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Effect says which records a change reaches.
type Effect string

// The effects of a change. Nothing that exists ever loses retention: what a
// record was promised stands (design.md P10).
const (
	// EffectNone: nothing that exists is touched.
	EffectNone Effect = "none"
	// EffectKeeps: what was promised under the old version stands.
	EffectKeeps Effect = "keeps its own"
	// EffectShorter: what was promised stands, though it is shorter than what is
	// promised from now on; this version cannot extend it.
	EffectShorter Effect = "keeps its own, shorter"
	// EffectTakes: takes the new value.
	EffectTakes Effect = "takes the new value"
	// EffectForgets: is no longer found; its keys would run again.
	EffectForgets Effect = "no longer found"
	// EffectInherits: found under the new name.
	EffectInherits Effect = "found under the new name"
)

// Change is one difference between two versions of a policy.
type Change struct {
	Operation string `json:"operation"`
	// Field is as in [Finding]; empty when the operation itself came or went.
	Field string `json:"field,omitempty"`
	// Old and New are the values as policy.yaml spells them; empty when absent.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// ForNew is what the change means for records made from now on, ForExisting
	// for those that stand.
	ForNew      Effect `json:"for_new"`
	ForExisting Effect `json:"for_existing"`
}

// String is the change on one line.
func (c Change) String() string {
	path := strings.TrimSuffix(c.Operation+"."+c.Field, ".")
	return fmt.Sprintf("%s: %s → %s (new records: %s; existing: %s)",
		path, cmp.Or(c.Old, "(none)"), cmp.Or(c.New, "(none)"), c.ForNew, c.ForExisting)
}

// Compare lists what changes from old to next, by operation and field, and
// whom each change reaches. Besides the fields as written it lists ttl and
// horizon, which follow from them. Equal policies have no changes; the version
// is not one.
func Compare(old, next *Policy) []Change {
	was, is := old.clone(), next.clone()
	was.Normalize()
	is.Normalize()

	var changes []Change
	followed := map[string]bool{}
	for i := range is.Operations {
		o := &is.Operations[i]
		before := was.ancestor(o)
		if before == nil {
			changes = append(changes, Change{o.Name, "", "", o.Name, EffectTakes, EffectNone})
			continue
		}
		followed[before.Name] = true
		if before.Name != o.Name {
			changes = append(changes, Change{o.Name, "", before.Name, o.Name, EffectTakes, EffectInherits})
		}
		changes = append(changes, compareOperations(before, o)...)
	}
	for i := range was.Operations {
		if name := was.Operations[i].Name; !followed[name] {
			changes = append(changes, Change{name, "", name, "", EffectNone, EffectKeeps})
		}
	}
	slices.SortStableFunc(changes, func(a, b Change) int { return strings.Compare(a.Operation, b.Operation) })
	return changes
}

// ancestor is the operation of p that o continues, or nil.
func (p *Policy) ancestor(o *Operation) *Operation {
	if before := p.Operation(o.Name); before != nil || o.RenamedFrom == "" {
		return before
	}
	return p.Operation(o.RenamedFrom)
}

// compareOperations lists the fields that differ, in the order of policy.yaml.
func compareOperations(a, b *Operation) []Change {
	var out []Change
	differ := func(field, was, is string, existing Effect) {
		if was != is {
			out = append(out, Change{b.Name, field, was, is, EffectTakes, existing})
		}
	}
	// A lifetime is stamped on the record, and stays.
	lifetime := func(field string, was, is time.Duration) {
		existing := EffectShorter
		if is < was {
			existing = EffectKeeps
		}
		differ(field, FormatDuration(was), FormatDuration(is), existing)
	}
	duration := func(field string, was, is time.Duration, existing Effect) {
		differ(field, FormatDuration(was), FormatDuration(is), existing)
	}

	if a.Name == b.Name {
		differ("renamed_from", a.RenamedFrom, b.RenamedFrom, EffectNone)
	}
	// Who reads a request, and whose key it is.
	differ("match", strings.Join(a.Match, ", "), strings.Join(b.Match, ", "), EffectTakes)
	differ("scope.principal", a.Scope.Principal.String(), b.Scope.Principal.String(), EffectForgets)
	differ("scope.family", a.Family(), b.Family(), EffectForgets)
	differ("key.header", a.Key.Header, b.Key.Header, EffectForgets)
	differ("key.required", strconv.FormatBool(a.Key.Required), strconv.FormatBool(b.Key.Required), EffectTakes)
	differ("key.format", string(a.Key.Format), string(b.Key.Format), EffectTakes)
	// A request is compared under the text that made the record (design.md §5).
	differ("fingerprint", a.Fingerprint.spell(), b.Fingerprint.spell(), EffectKeeps)

	// Lifetimes. The inputs are of interest by themselves; what records carry
	// are the results.
	for i, t := range a.Inputs.Terms() {
		u := b.Inputs.Terms()[i]
		differ("ttl."+t.Name, t.Input.spell(), u.Input.spell(), EffectNone)
	}
	lifetime("ttl", a.TTL(), b.TTL())
	duration("protect", a.Protect, b.Protect, EffectNone)
	lifetime("horizon", a.Retention(), b.Retention())
	// A response that is dropped is gone, and one that is kept was promised.
	duration("replay", a.Replay(), b.Replay(), EffectKeeps)

	// What an attempt runs under is fixed when it opens.
	duration("deadline", a.Deadline, b.Deadline, EffectKeeps)
	duration("lease", a.Lease, b.Lease, EffectKeeps)
	duration("settle", a.Settle, b.Settle, EffectKeeps)
	differ("dispatch", string(a.Dispatch), string(b.Dispatch), EffectKeeps)
	differ("ambiguous", spellInts(a.Ambiguous), spellInts(b.Ambiguous), EffectKeeps)
	differ("no_effect", spellInts(a.NoEffect), spellInts(b.NoEffect), EffectKeeps)
	differ("on_unknown", a.OnUnknown.spell(), b.OnUnknown.spell(), EffectKeeps)
	// A standing record is judged by the rule that made it; for a key whose
	// record is gone the rule of today counts.
	differ("late", string(a.Late), string(b.Late), EffectKeeps)
	differ("max_response", FormatSize(a.MaxResponse), FormatSize(b.MaxResponse), EffectKeeps)
	differ("durability", string(a.Durability), string(b.Durability), EffectKeeps)

	// How a caller is answered is decided at the time of the answer.
	duration("wait", a.Wait, b.Wait, EffectTakes)
	differ("unknown_status", strconv.Itoa(a.UnknownStatus), strconv.Itoa(b.UnknownStatus), EffectTakes)
	differ("late_answer", string(a.LateAnswer), string(b.LateAnswer), EffectTakes)
	differ("max_request", FormatSize(a.MaxRequest), FormatSize(b.MaxRequest), EffectTakes)
	differ("max_unresolved", strconv.Itoa(a.MaxUnresolved), strconv.Itoa(b.MaxUnresolved), EffectTakes)
	differ("volume", a.Volume.spell(), b.Volume.spell(), EffectNone)
	differ("resource", a.Resource, b.Resource, EffectTakes)
	differ("accept", strings.Join(a.Accept, ", "), strings.Join(b.Accept, ", "), EffectNone)

	return append(out, compareGates(a, b)...)
}

// compareGates lists gates that came, went or moved. A gate that a record
// carries stays on it.
func compareGates(a, b *Operation) []Change {
	was, is := map[string]time.Duration{}, map[string]time.Duration{}
	names := map[string]bool{}
	for _, g := range a.Gates {
		was[g.Name], names[g.Name] = g.For, true
	}
	for _, g := range b.Gates {
		is[g.Name], names[g.Name] = g.For, true
	}
	var out []Change
	for name := range names {
		before, stood := was[name]
		now, stands := is[name]
		if stood && stands && before == now {
			continue
		}
		c := Change{Operation: b.Name, Field: "closure." + name, ForNew: EffectTakes, ForExisting: EffectKeeps}
		if stood {
			c.Old = FormatDuration(before)
		}
		if stands {
			c.New = FormatDuration(now)
			if now > before {
				c.ForExisting = EffectShorter
			}
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Change) int { return strings.Compare(a.Field, b.Field) })
	return out
}

// CheckSuccessor lists what keeps next from following old in one store: a
// version that does not grow, and keys that would be forgotten. The same
// policy again is fine. Both should be valid by themselves.
func CheckSuccessor(old, next *Policy) []Finding {
	c := &checker{}
	was, is := old.clone(), next.clone()
	was.Normalize()
	is.Normalize()

	raise := fmt.Sprintf("write version: %d or more", old.Version+1)
	switch {
	case next.Version < old.Version:
		c.fail(CodeVersionLower, "version", raise, "version %d is lower than %d, which came before", next.Version, old.Version)
	case next.Version == old.Version && next.Digest() != old.Digest():
		c.fail(CodeVersionReused, "version", raise, "version %d has other contents than the version %d that came before", next.Version, old.Version)
	}

	followed := map[string]bool{}
	for i := range is.Operations {
		o := &is.Operations[i]
		c.op = o.Name
		before := was.ancestor(o)
		if before == nil {
			if o.RenamedFrom != "" {
				c.fail(CodeRenamedFromUnknown, "renamed_from", "name an operation of the policy before, or leave it out",
					"version %d has no operation %q", old.Version, o.RenamedFrom)
			}
			continue
		}
		followed[before.Name] = true
		forgets := func(field, mine, theirs string) {
			if mine != theirs {
				c.fail(CodeForgetsKeys, field, fmt.Sprintf("write %s again, or start once with --forget %s", theirs, o.Name),
					"%s was %s and is %s: every key of %q would be forgotten and could run again", field, theirs, mine, before.Name)
			}
		}
		forgets("scope.principal", o.Scope.Principal.String(), before.Scope.Principal.String())
		forgets("scope.family", o.Family(), before.Family())
		forgets("key.header", o.Key.Header, before.Key.Header)
	}
	for _, o := range was.Operations {
		if !followed[o.Name] {
			c.op = o.Name
			c.warn(CodeOperationRemoved, "", "write renamed_from: "+o.Name+" where it goes on under another name",
				"the operation is gone: its requests are no longer guarded, and its records only wait for their end")
		}
	}
	return c.findings
}
