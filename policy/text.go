package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/textproto"
	"slices"
	"strings"
)

// TextFormat is the version of the normal form that [Policy.Text] writes.
//
// History: 1, the first; durations are nanoseconds, sizes are bytes.
//
// A field added later must be left out of the text at its default. Otherwise
// the same policy.yaml would get another digest from the next release, and the
// charter would take the upgrade for a changed policy.
const TextFormat = 1

// normalForm is a policy as the charter keeps it.
type normalForm struct {
	Format int `json:"counterfoil_policy"`
	Policy
}

// ErrText is returned by [ParseText] for bytes that [Policy.Text] never wrote.
var ErrText = errors.New("not a policy in normal form")

// Text is the policy's normal form: one line of JSON in which two policies are
// equal exactly if they mean the same. The charter keeps it. The caller owns
// the bytes.
func (p *Policy) Text() []byte {
	n := normalForm{TextFormat, p.clone()}
	n.Normalize()
	b, err := json.Marshal(n)
	if err != nil {
		// Only a number that is none could fail, and Normalize takes those out.
		panic("policy: " + err.Error())
	}
	return b
}

// Digest is the SHA-256 of [Policy.Text].
func (p *Policy) Digest() [32]byte { return sha256.Sum256(p.Text()) }

// ParseText reads what [Policy.Text] wrote, and nothing else: the text must be
// the normal form byte for byte, so that unknown and doubled members, other
// formats and damage are refused, with [ErrText]. It does not validate, since
// a charter may hold policies that today's rules would refuse.
func ParseText(b []byte) (*Policy, error) {
	var n normalForm
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&n); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrText, err)
	}
	if n.Format != TextFormat {
		return nil, fmt.Errorf("%w: format %d; this version reads format %d", ErrText, n.Format, TextFormat)
	}
	if !bytes.Equal(n.Policy.Text(), b) {
		return nil, fmt.Errorf("%w: it differs from what its contents would be written as", ErrText)
	}
	return &n.Policy, nil
}

// Normalize brings a policy into the order and spelling of its normal form:
// operations, patterns, statuses, gates and accepted dangers sorted, header
// names canonical. It changes nothing that the policy means.
func (p *Policy) Normalize() {
	if p.Operations == nil {
		p.Operations = []Operation{}
	}
	for i := range p.Operations {
		p.Operations[i].normalize()
	}
	slices.SortStableFunc(p.Operations, func(a, b Operation) int { return strings.Compare(a.Name, b.Name) })
}

func (o *Operation) normalize() {
	o.Match = sorted(o.Match)
	o.Accept = sorted(o.Accept)
	o.Ambiguous = sorted(o.Ambiguous)
	o.NoEffect = sorted(o.NoEffect)
	slices.SortStableFunc(o.Gates, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })

	o.Scope.Principal.Header = textproto.CanonicalMIMEHeaderKey(o.Scope.Principal.Header)
	o.Key.Header = textproto.CanonicalMIMEHeaderKey(o.Key.Header)
	for i, h := range o.Fingerprint.Headers {
		o.Fingerprint.Headers[i] = textproto.CanonicalMIMEHeaderKey(h)
	}
	if o.Scope.Family == o.Name {
		o.Scope.Family = "" // written or not, it is the same family
	}
	if !o.Volume.finite() {
		o.Volume = Volume{} // JSON cannot say it; Validate refuses it
	}
}

func (v Volume) finite() bool { return !math.IsNaN(v.Records) && !math.IsInf(v.Records, 0) }

// sorted returns s in order and without repetitions; nil stays nil.
func sorted[T cmp.Ordered](s []T) []T {
	slices.Sort(s)
	return slices.Compact(s)
}

// clone copies a policy as deep as Normalize reaches.
func (p *Policy) clone() Policy {
	c := *p
	c.Operations = slices.Clone(p.Operations)
	for i := range c.Operations {
		o := &c.Operations[i]
		o.Match = slices.Clone(o.Match)
		o.Accept = slices.Clone(o.Accept)
		o.Ambiguous = slices.Clone(o.Ambiguous)
		o.NoEffect = slices.Clone(o.NoEffect)
		o.Gates = slices.Clone(o.Gates)
		o.Fingerprint.Headers = slices.Clone(o.Fingerprint.Headers)
	}
	return c
}
