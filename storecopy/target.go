package storecopy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil"
)

// source is what the source says of itself, beside its records.
type source struct {
	charter, forgotten, trust counterfoil.Meta
	parsed                    *counterfoil.Charter
}

// target is what the target was found to be.
type target struct {
	rev uint64 // of what stands in the place of its charter
	// resumed: a note of this copy stood there already, so that nothing else
	// can have written records since.
	resumed bool
	// look: it holds records, so that each is looked for before it is made.
	look bool
}

// note is what stands in the place of the target's charter until the copy is
// complete. As a charter it has layout 0, which every version refuses
// ([counterfoil.ReadCharter]), so that no engine opens.
//
// History of Format: 1, the first.
type note struct {
	Layout int     `json:"layout"`
	Copy   *origin `json:"unfinished_copy"`
}

// origin is where an unfinished copy comes from.
type origin struct {
	Format int `json:"format"`
	// From is the id of the source.
	From  string    `json:"from"`
	Began time.Time `json:"began"`
}

const noteFormat = 1

// readNote returns the note that stands in the place of a charter, nil when
// something else stands there, or nothing.
func readNote(m counterfoil.Meta) (*origin, error) {
	var n note
	if json.Unmarshal(m.Value, &n) != nil || n.Layout != 0 || n.Copy == nil {
		return nil, nil // for ReadCharter to judge
	}
	if n.Copy.Format != noteFormat {
		return nil, fmt.Errorf("%w: the note of an unfinished copy has format %d; this version knows %d", counterfoil.ErrUnreadable, n.Copy.Format, noteFormat)
	}
	return n.Copy, nil
}

// meta is [counterfoil.Store.Meta] with the zero value for what was never set.
func meta(ctx context.Context, s counterfoil.Store, name string) (counterfoil.Meta, error) {
	m, err := s.Meta(ctx, name)
	if errors.Is(err, counterfoil.ErrNotFound) {
		return counterfoil.Meta{}, nil
	}
	return m, err
}

// Unfinished returns an error that wraps ErrUnfinished when s holds half of a
// copy, and nil when it does not. An engine does not open such a store either;
// this says why.
func Unfinished(ctx context.Context, s counterfoil.Store) error {
	m, err := meta(ctx, s, counterfoil.MetaCharter)
	if err != nil {
		return err
	}
	n, err := readNote(m)
	if err != nil || n == nil {
		return err
	}
	return fmt.Errorf("%w stands in it, from store %s, begun %s; run store copy again until it says that both are the same, or use another store",
		ErrUnfinished, n.From, n.Began.Format(time.RFC3339))
}

func (r *run) readSource(ctx context.Context) (err error) {
	if from, to := r.from.Info(), r.to.Info(); from.ID == to.ID {
		return fmt.Errorf("%w: source and target have the same store id, %s: they are one store, or one is a copy of the other's files; name a new store", ErrRefused, from.ID)
	}
	if err := Unfinished(ctx, r.from); err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	s := &r.source
	for name, m := range map[string]*counterfoil.Meta{
		counterfoil.MetaCharter: &s.charter, counterfoil.MetaForgotten: &s.forgotten, counterfoil.MetaTrust: &s.trust,
	} {
		if *m, err = meta(ctx, r.from, name); err != nil {
			return fmt.Errorf("the source: %w", err)
		}
	}
	if s.parsed, _, err = counterfoil.ReadCharter(ctx, r.from); err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	if s.charter.Rev == 0 {
		return fmt.Errorf("%w: the source has no charter, so no engine ever used it and there is nothing to move; name the store that serve uses", ErrRefused)
	}
	stats, err := r.from.Stats(ctx)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	r.cut, r.total = stats.AsOf, totalOf(stats)
	return nil
}

func totalOf(s counterfoil.Stats) (n int64) {
	for _, o := range s.Operations {
		n += o.Total()
	}
	return n
}

// readTarget looks whether the target may take the copy. complete says that
// nothing is left to be written.
func (r *run) readTarget(ctx context.Context) (complete bool, err error) {
	m, err := meta(ctx, r.to, counterfoil.MetaCharter)
	if err != nil {
		return false, fmt.Errorf("the target: %w", err)
	}
	r.target.rev = m.Rev
	n, err := readNote(m)
	if err != nil {
		return false, fmt.Errorf("the target: %w", err)
	}
	if n != nil {
		if from := r.from.Info().ID; n.From != from {
			return false, fmt.Errorf("%w: an unfinished copy from store %s stands in it, and this one is from %s; finish that one, or name an empty target", ErrRefused, n.From, from)
		}
		r.target.resumed, r.target.look = true, true
		return false, nil
	}
	page, err := scan(ctx, r.to, counterfoil.Query{Page: counterfoil.Page{Limit: 1}})
	if err != nil {
		return false, fmt.Errorf("the target: %w", err)
	}
	f, _, err := readForgotten(ctx, r.to)
	if err != nil {
		return false, fmt.Errorf("the target: %w", err)
	}
	if len(page.Records) == 0 && len(f) == 0 {
		// A charter without a record and without F binds nobody.
		return false, nil
	}
	r.target.look = true
	charter, _, err := counterfoil.ReadCharter(ctx, r.to)
	if err != nil {
		return false, fmt.Errorf("the target: %w", err)
	}
	if faults := disagreements(r.source.parsed, charter); len(faults) > 0 {
		return false, fmt.Errorf("%w: it has been used, under a charter that is not the source's:\n  %s\nname an empty target", ErrRefused, strings.Join(faults, "\n  "))
	}
	same, err := r.precheck(ctx)
	if err != nil {
		return false, err
	}
	short, err := r.forgottenShort(ctx)
	return same && !short && string(m.Value) == string(r.source.charter.Value), err
}

// disagreements is what of the target's charter the source's lacks or has
// otherwise. What only the source has is no fault: it may have moved on since
// it was copied first.
func disagreements(source, target *counterfoil.Charter) (faults []string) {
	fault := func(format string, a ...any) { faults = append(faults, fmt.Sprintf(format, a...)) }
	if target.IndexKeyCheck != source.IndexKeyCheck {
		fault("its index key is another one")
	}
	for _, t := range target.Operations {
		i := slices.IndexFunc(source.Operations, func(s counterfoil.CharterOperation) bool { return s.Number == t.Number })
		switch {
		case i < 0:
			fault("operation %d is %s there, and the source has no such number", t.Number, t.Name)
			continue
		case source.Operations[i].Name != t.Name && !slices.Contains(source.Operations[i].Former, t.Name):
			fault("operation %d is %s there, and %s in the source", t.Number, t.Name, source.Operations[i].Name)
			continue
		}
		s := source.Operations[i]
		if s.Principal != t.Principal || s.Family != t.Family || s.KeyHeader != t.KeyHeader {
			fault("operation %s has another scope, family or key header there", t.Name)
		}
	}
	for _, t := range target.Policies {
		if !slices.ContainsFunc(source.Policies, func(s counterfoil.CharterPolicy) bool {
			return s.Version == t.Version && s.Digest == t.Digest
		}) {
			fault("the source has not seen its policy version %d", t.Version)
		}
	}
	return faults
}

// precheck holds every record of a target that no note of ours protects
// against the source, before anything is written. same says that the two hold
// the same records.
func (r *run) precheck(ctx context.Context) (same bool, err error) {
	var equal, left, older counter
	err = r.pass(ctx, r.to, PhaseCompare, func(ctx context.Context, t *counterfoil.Record) error {
		snap, err := r.from.Get(ctx, t.ID)
		switch {
		case errors.Is(err, counterfoil.ErrNotFound) && letGo(t, r.cut):
			left.add()
		case errors.Is(err, counterfoil.ErrNotFound):
			r.refuse(t.ID, "the source does not have it")
		case err != nil:
			return err
		case sameContent(&snap.Record, t):
			if t.HasResponse || !snap.Record.HasResponse || due(&snap.Record, r.cut) {
				equal.add()
			} else {
				older.add()
			}
		case order(&snap.Record, t) > 0:
			older.add()
		default:
			r.refuse(t.ID, describe(&snap.Record, t))
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	if r.rep.Refused > 0 {
		return false, fmt.Errorf("%w: it holds %d records that are newer than the source's, that cannot be ordered, or that the source does not have; nothing was written. The target has been used: keep to it, or name an empty target",
			ErrRefused, r.rep.Refused)
	}
	return older.get() == 0 && equal.get() == r.total, nil
}

// latch puts the note in the charter's place and distrusts the target, so that
// a serve that has it open, too, says that it is not ready.
func (r *run) latch(ctx context.Context) error {
	stats, err := r.to.Stats(ctx)
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	now := counterfoil.Instant(stats.AsOf)
	if !r.target.resumed {
		text, err := json.Marshal(note{Copy: &origin{noteFormat, r.from.Info().ID, now}})
		if err != nil {
			return err
		}
		if r.target.rev, err = r.to.SetMeta(ctx, counterfoil.MetaCharter, r.target.rev, text); err != nil {
			return inUse("charter", err)
		}
	}
	return changeTrust(ctx, r.to, func(t *counterfoil.Trust) {
		if t.Trusted() {
			t.DistrustedAt, t.Reason = now, copying
		}
	})
}

// copying is why a target is distrusted until it is complete.
const copying = "records are being copied into it; what it lacks may stand in the source"

// release makes a store of the target: the source's trust first, the source's
// charter last.
func (r *run) release(ctx context.Context) error {
	trust, _, err := counterfoil.ReadTrust(ctx, r.from)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	err = changeTrust(ctx, r.to, func(t *counterfoil.Trust) {
		if t.Reason == copying {
			t.DistrustedAt, t.Reason = time.Time{}, ""
		}
		if t.Trusted() && !trust.Trusted() {
			t.DistrustedAt, t.Reason = trust.DistrustedAt, trust.Reason
		}
		if trust.TrustedAt.After(t.TrustedAt) {
			t.TrustedAt, t.Actor, t.Word = trust.TrustedAt, trust.Actor, trust.Word
		}
	})
	if err != nil {
		return err
	}
	if _, err := r.to.SetMeta(ctx, counterfoil.MetaCharter, r.target.rev, r.source.charter.Value); err != nil {
		return inUse("charter", err)
	}
	return nil
}

// inUse says what to do about a value of the target that could not be written.
func inUse(what string, err error) error {
	if errors.Is(err, counterfoil.ErrConflict) {
		return fmt.Errorf("the target's %s: %w: something else writes it; stop that, and run again", what, err)
	}
	return fmt.Errorf("the target's %s: %w", what, err)
}

func changeTrust(ctx context.Context, s counterfoil.Store, change func(*counterfoil.Trust)) error {
	t, rev, err := counterfoil.ReadTrust(ctx, s)
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	was, err := json.Marshal(t)
	if err != nil {
		return err
	}
	change(&t)
	text, err := json.Marshal(t)
	if err != nil || string(text) == string(was) {
		return err
	}
	if _, err := s.SetMeta(ctx, counterfoil.MetaTrust, rev, text); err != nil {
		return inUse("trust", err)
	}
	return nil
}

func readForgotten(ctx context.Context, s counterfoil.Store) (counterfoil.Forgotten, uint64, error) {
	m, err := meta(ctx, s, counterfoil.MetaForgotten)
	if err != nil || m.Rev == 0 {
		return counterfoil.Forgotten{}, 0, err
	}
	f, err := counterfoil.DecodeForgotten(m.Value)
	return f, m.Rev, err
}

// sourceForgotten is F of the source. A store that lost writes may know an F
// for operations without one of their own, which it does not show; those get
// the time at which it was last distrusted, or trusted again.
func (r *run) sourceForgotten(ctx context.Context) (counterfoil.Forgotten, error) {
	f, _, err := readForgotten(ctx, r.from)
	if err != nil {
		return nil, fmt.Errorf("the source: %w", err)
	}
	t, _, err := counterfoil.ReadTrust(ctx, r.from)
	if err != nil {
		return nil, fmt.Errorf("the source: %w", err)
	}
	lost := t.DistrustedAt
	if t.TrustedAt.After(lost) {
		lost = t.TrustedAt
	}
	if lost.IsZero() {
		return f, nil
	}
	for _, o := range r.source.parsed.Operations {
		if f[o.Number].IsZero() {
			f.Raise(o.Number, lost)
		}
	}
	return f, nil
}

// forgottenShort reports whether the target's F is less than the source's.
func (r *run) forgottenShort(ctx context.Context) (bool, error) {
	want, err := r.sourceForgotten(ctx)
	if err != nil {
		return false, err
	}
	have, _, err := readForgotten(ctx, r.to)
	if err != nil {
		return false, fmt.Errorf("the target: %w", err)
	}
	for op, t := range want {
		if have.Raise(op, t) {
			return true, nil
		}
	}
	return false, nil
}

// raiseForgotten raises F of the target to the source's.
func (r *run) raiseForgotten(ctx context.Context) error {
	want, err := r.sourceForgotten(ctx)
	if err != nil {
		return err
	}
	have, rev, err := readForgotten(ctx, r.to)
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	raised := false
	for op, t := range want {
		raised = have.Raise(op, t) || raised
	}
	if !raised {
		return nil
	}
	if _, err := r.to.SetMeta(ctx, counterfoil.MetaForgotten, rev, have.Encode()); err != nil {
		return inUse("F", err)
	}
	return nil
}
