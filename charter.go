package counterfoil

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// charterLayout is the version of the charter's own form.
const charterLayout = 1

// Charter is what a store keeps of the configuration that its records depend
// on (design.md §5). A change of the index key, of a scope, a family or a key
// header would silently forget every key, so it is refused.
type Charter struct {
	Layout int `json:"layout"`
	// IndexKeyCheck is [IndexKey.Check]; empty when IDs are hashed without key.
	IndexKeyCheck string             `json:"index_key_check"`
	Operations    []CharterOperation `json:"operations"`
	// Policies are every version ever used, oldest first.
	Policies []CharterPolicy `json:"policies"`
}

// CharterOperation is what may not change of an operation.
type CharterOperation struct {
	Number    OperationNumber `json:"number"`
	Name      string          `json:"name"`
	Former    []string        `json:"former,omitempty"`
	Principal string          `json:"principal"`
	Family    string          `json:"family"`
	KeyHeader string          `json:"key_header"`
}

// CharterPolicy is one version of the policy, in normal form.
type CharterPolicy struct {
	Version uint32          `json:"version"`
	Digest  string          `json:"digest"`
	Text    json.RawMessage `json:"text"`
}

// Newest is the highest policy version the store has seen; 0 when none.
func (c *Charter) Newest() uint32 {
	var v uint32
	for _, p := range c.Policies {
		v = max(v, p.Version)
	}
	return v
}

func (c *Charter) operation(name string) *CharterOperation {
	i := slices.IndexFunc(c.Operations, func(o CharterOperation) bool { return o.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Operations[i]
}

// known finds an operation by its name or, if none has it now, by a former one.
func (c *Charter) known(name string) *CharterOperation {
	if o := c.operation(name); o != nil {
		return o
	}
	i := slices.IndexFunc(c.Operations, func(o CharterOperation) bool { return slices.Contains(o.Former, name) })
	if i < 0 {
		return nil
	}
	return &c.Operations[i]
}

// has reports whether the store has seen that version of the policy.
func (c *Charter) has(version uint32) bool {
	return slices.ContainsFunc(c.Policies, func(p CharterPolicy) bool { return p.Version == version })
}

func (c *Charter) number(n OperationNumber) *CharterOperation {
	i := slices.IndexFunc(c.Operations, func(o CharterOperation) bool { return o.Number == n })
	if i < 0 {
		return nil
	}
	return &c.Operations[i]
}

// CharterError lists everything that disagrees, at once. It wraps [ErrCharter].
type CharterError struct {
	Faults []CharterFault
}

// CharterFault is one disagreement and what it would forget.
type CharterFault struct {
	// Operation is empty where the fault concerns all of them.
	Operation string
	// Field is what differs, as policy.yaml or counterfoil.yaml names it.
	Field string
	// Kept is what the store's charter says; Given what the configuration says.
	Kept, Given string
	// Forgets is how many records would no longer be found; -1: not counted.
	Forgets int64
	Remedy  string
}

func (f CharterFault) String() string {
	var b strings.Builder
	if f.Operation != "" {
		fmt.Fprintf(&b, "operation %s: ", f.Operation)
	}
	fmt.Fprintf(&b, "%s is %q, and the store was made with %q", f.Field, f.Given, f.Kept)
	if f.Forgets > 0 {
		fmt.Fprintf(&b, "; %d records would be forgotten", f.Forgets)
	}
	fmt.Fprintf(&b, "; %s", f.Remedy)
	return b.String()
}

// Error lists the faults, one a line.
func (e *CharterError) Error() string {
	var b strings.Builder
	b.WriteString(ErrCharter.Error())
	for _, f := range e.Faults {
		b.WriteString("\n  ")
		b.WriteString(f.String())
	}
	return b.String()
}

// Unwrap makes errors.Is(err, ErrCharter) true.
func (e *CharterError) Unwrap() error { return ErrCharter }

// agreement is the outcome of holding a policy against the charter.
type agreement struct {
	changed bool
	faults  []CharterFault
	// forgotten are the operations whose keys the operator let go: their F must
	// be raised.
	forgotten []OperationNumber
}

// agree holds p against c, and brings c up to date where nothing is forgotten
// or the operator named the operation in forget.
func (c *Charter) agree(p *policy.Policy, key IndexKey, forget map[string]bool) agreement {
	var a agreement
	c.agreeIndexKey(&a, p, key, forget)
	for i := range p.Operations {
		c.agreeOperation(&a, p, &p.Operations[i], forget)
	}
	c.agreeVersion(&a, p)
	return a
}

func (c *Charter) agreeIndexKey(a *agreement, p *policy.Policy, key IndexKey, forget map[string]bool) {
	if len(c.Operations) == 0 && len(c.Policies) == 0 {
		c.IndexKeyCheck, a.changed = key.Check(), true
		return
	}
	if c.IndexKeyCheck == key.Check() {
		return
	}
	for i := range p.Operations {
		if !forget[p.Operations[i].Name] {
			a.faults = append(a.faults, CharterFault{
				Field: "index_key_file", Kept: describeCheck(c.IndexKeyCheck), Given: describeCheck(key.Check()), Forgets: -1,
				Remedy: "put the former key back; or, to let every key be forgotten, start with --forget for every operation",
			})
			return
		}
	}
	c.IndexKeyCheck, a.changed = key.Check(), true
	for _, o := range c.Operations {
		a.forgotten = append(a.forgotten, o.Number)
	}
}

func describeCheck(s string) string {
	if s == "" {
		return "no key"
	}
	return "a key with check value " + s
}

func (c *Charter) agreeOperation(a *agreement, p *policy.Policy, o *policy.Operation, forget map[string]bool) {
	have := c.operation(o.Name)
	if have == nil && c.has(p.Version) {
		have = c.known(o.Name) // an older version, from before a renaming
	}
	if have == nil && o.RenamedFrom != "" {
		if have = c.operation(o.RenamedFrom); have != nil {
			have.Former, have.Name, a.changed = append(have.Former, have.Name), o.Name, true
		}
	}
	if have == nil {
		if was := c.vanished(p, o); was != "" && !forget[o.Name] {
			a.faults = append(a.faults, CharterFault{
				Operation: o.Name, Field: "name", Kept: was, Given: o.Name, Forgets: -1,
				Remedy: fmt.Sprintf("if this is %s renamed, write renamed_from: %s; if it is new, start with --forget %s", was, was, o.Name),
			})
			return
		}
		var next OperationNumber
		for _, k := range c.Operations {
			next = max(next, k.Number)
		}
		c.Operations = append(c.Operations, CharterOperation{
			Number: next + 1, Name: o.Name, Principal: o.Scope.Principal.String(), Family: o.Family(), KeyHeader: o.Key.Header,
		})
		a.changed = true
		return
	}
	fields := []struct {
		name        string
		kept, given string
		put         *string
	}{
		{"scope.principal", have.Principal, o.Scope.Principal.String(), &have.Principal},
		{"scope.family", have.Family, o.Family(), &have.Family},
		{"key.header", have.KeyHeader, o.Key.Header, &have.KeyHeader},
	}
	for _, f := range fields {
		switch {
		case f.kept == f.given:
		case forget[o.Name]:
			*f.put, a.changed = f.given, true
			if !slices.Contains(a.forgotten, have.Number) {
				a.forgotten = append(a.forgotten, have.Number)
			}
		default:
			a.faults = append(a.faults, CharterFault{
				Operation: o.Name, Field: f.name, Kept: f.kept, Given: f.given, Forgets: -1,
				Remedy: fmt.Sprintf("write %s: %s again; or, to let its keys be forgotten, start with --forget %s", f.name, f.kept, o.Name),
			})
		}
	}
}

// vanished returns the former operation that o seems to be under a new name:
// one that p no longer has and that matched one of the same routes.
func (c *Charter) vanished(p *policy.Policy, o *policy.Operation) string {
	if len(c.Policies) == 0 {
		return ""
	}
	last, err := policy.ParseText(c.Policies[len(c.Policies)-1].Text)
	if err != nil {
		return ""
	}
	for i := range last.Operations {
		old := &last.Operations[i]
		renamed := slices.ContainsFunc(p.Operations, func(n policy.Operation) bool { return n.RenamedFrom == old.Name })
		if p.Operation(old.Name) != nil || renamed {
			continue
		}
		if slices.ContainsFunc(old.Match, func(m string) bool { return slices.Contains(o.Match, m) }) {
			return old.Name
		}
	}
	return ""
}

func (c *Charter) agreeVersion(a *agreement, p *policy.Policy) {
	d := p.Digest()
	digest := hex.EncodeToString(d[:])
	for _, k := range c.Policies {
		if k.Version == p.Version && k.Digest != digest {
			a.faults = append(a.faults, CharterFault{
				Field: fmt.Sprintf("policy version %d", p.Version), Kept: "content " + k.Digest[:12], Given: "content " + digest[:12], Forgets: -1,
				Remedy: fmt.Sprintf("every change needs a new number: write version: %d", c.Newest()+1),
			})
			return
		}
		if k.Version == p.Version {
			return
		}
	}
	if newest := c.Newest(); p.Version < newest {
		a.faults = append(a.faults, CharterFault{
			Field: "policy version", Kept: fmt.Sprint(newest), Given: fmt.Sprint(p.Version), Forgets: -1,
			Remedy: fmt.Sprintf("deploy version %d again, or publish these rules as version %d", newest, newest+1),
		})
		return
	}
	c.Policies = append(c.Policies, CharterPolicy{Version: p.Version, Digest: digest, Text: p.Text()})
	a.changed = true
}

// ReadCharter returns the store's charter and the rev to write it back under;
// an empty charter and 0 when the store is new.
func ReadCharter(ctx context.Context, s Store) (*Charter, uint64, error) {
	m, err := s.Meta(ctx, MetaCharter)
	if errors.Is(err, ErrNotFound) {
		return &Charter{Layout: charterLayout}, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var c Charter
	if err := json.Unmarshal(m.Value, &c); err != nil {
		return nil, 0, fmt.Errorf("charter: %w: %v", ErrUnreadable, err)
	}
	if c.Layout != charterLayout {
		return nil, 0, fmt.Errorf("charter: %w: layout %d; this version knows %d", ErrUnreadable, c.Layout, charterLayout)
	}
	return &c, m.Rev, nil
}

// agreeCharter brings store and configuration together, or returns a
// [CharterError] with every disagreement and changes nothing.
func agreeCharter(ctx context.Context, s Store, p *policy.Policy, key IndexKey, forget []string) (*Charter, error) {
	names := make(map[string]bool, len(forget))
	for _, f := range forget {
		if p.Operation(f) == nil {
			return nil, fmt.Errorf("%w: --forget %s: the policy has no such operation", ErrOperationUnknown, f)
		}
		names[f] = true
	}
	for range 8 { // another node may write its charter at the same moment
		c, rev, err := ReadCharter(ctx, s)
		if err != nil {
			return nil, err
		}
		a := c.agree(p, key, names)
		if len(a.faults) > 0 {
			countForgotten(ctx, s, c, a.faults)
			return nil, &CharterError{Faults: a.faults}
		}
		if !a.changed {
			return c, nil
		}
		if err := raiseForgotten(ctx, s, a.forgotten); err != nil {
			return nil, err
		}
		text, err := json.Marshal(c)
		if err != nil {
			return nil, fmt.Errorf("charter: %w", err)
		}
		switch _, err := s.SetMeta(ctx, MetaCharter, rev, text); {
		case err == nil:
			return c, nil
		case !errors.Is(err, ErrConflict):
			return nil, err
		}
	}
	return nil, fmt.Errorf("charter: %w: other nodes keep writing it", ErrConflict)
}

// countForgotten fills in how many records each fault would make unfindable.
func countForgotten(ctx context.Context, s Store, c *Charter, faults []CharterFault) {
	stats, err := s.Stats(ctx)
	if err != nil {
		return
	}
	var all int64
	for _, o := range stats.Operations {
		all += o.Total()
	}
	for i := range faults {
		f := &faults[i]
		if f.Field == "index_key_file" {
			f.Forgets = all
			continue
		}
		o := c.operation(f.Operation)
		if o == nil {
			o = c.operation(f.Kept)
		}
		if o != nil {
			st := stats.Operations[o.Number]
			f.Forgets = st.Total()
		}
	}
}

// raiseForgotten sets F of the operations to the store's now: what they held
// is lost, so absence proves nothing of keys born before.
func raiseForgotten(ctx context.Context, s Store, ops []OperationNumber) error {
	if len(ops) == 0 {
		return nil
	}
	stats, err := s.Stats(ctx)
	if err != nil {
		return err
	}
	return updateForgotten(ctx, s, func(f Forgotten) (changed bool) {
		for _, op := range ops {
			changed = f.Raise(op, stats.AsOf) || changed
		}
		return changed
	})
}

func updateForgotten(ctx context.Context, s Store, raise func(Forgotten) bool) error {
	for range 8 {
		f, rev, err := readForgotten(ctx, s)
		if err != nil {
			return err
		}
		if !raise(f) {
			return nil
		}
		if _, err := s.SetMeta(ctx, MetaForgotten, rev, f.Encode()); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("forgotten-through: %w", ErrConflict)
}

func readForgotten(ctx context.Context, s Store) (Forgotten, uint64, error) {
	m, err := s.Meta(ctx, MetaForgotten)
	if errors.Is(err, ErrNotFound) {
		return Forgotten{}, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := DecodeForgotten(m.Value)
	return f, m.Rev, err
}

// Trust is what the store says of itself after it lost writes (P14).
type Trust struct {
	// DistrustedAt is when the loss was noticed; zero when all is well.
	DistrustedAt time.Time `json:"distrusted_at,omitzero"`
	Reason       string    `json:"reason,omitempty"`
	// TrustedAt, Actor and Word are of the last person who trusted it again.
	TrustedAt time.Time `json:"trusted_at,omitzero"`
	Actor     string    `json:"actor,omitempty"`
	Word      string    `json:"word,omitempty"`
}

// Trusted reports whether absence in this store proves anything at all.
func (t Trust) Trusted() bool { return t.DistrustedAt.IsZero() }

// ReadTrust returns the store's trust and the rev to write it back under.
func ReadTrust(ctx context.Context, s Store) (Trust, uint64, error) {
	m, err := s.Meta(ctx, MetaTrust)
	if errors.Is(err, ErrNotFound) {
		return Trust{}, 0, nil
	}
	if err != nil {
		return Trust{}, 0, err
	}
	var t Trust
	if err := json.Unmarshal(m.Value, &t); err != nil {
		return Trust{}, 0, fmt.Errorf("trust: %w: %v", ErrUnreadable, err)
	}
	return t, m.Rev, nil
}

func updateTrust(ctx context.Context, s Store, change func(*Trust) error) error {
	for range 8 {
		t, rev, err := ReadTrust(ctx, s)
		if err != nil {
			return err
		}
		if err := change(&t); err != nil {
			return err
		}
		text, err := json.Marshal(t)
		if err != nil {
			return fmt.Errorf("trust: %w", err)
		}
		if _, err := s.SetMeta(ctx, MetaTrust, rev, text); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("trust: %w", ErrConflict)
}
