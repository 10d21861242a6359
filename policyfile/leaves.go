package policyfile

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/counterfoil/counterfoil/policy"
)

// durationForm is a duration with a unit.
type durationForm struct{ time.Duration }

func (d *durationForm) read(r *reader, n *yaml.Node, at place) {
	if n.Kind != yaml.ScalarNode {
		r.fail(CodeValueType, at, n, describe(n)+" is not a duration", "write one like 90s, 15m, 4h or 30d")
		return
	}
	v, err := policy.ParseDuration(n.Value)
	if err != nil {
		message, remedy := split(err, policy.ErrDuration)
		r.fail(CodeDurationInvalid, at, n, message, remedy)
		return
	}
	d.Duration = v
}

// split parts an error of policy.ParseDuration or ParseSize into its message
// and its remedy.
func split(err, sentinel error) (message, remedy string) {
	text := strings.TrimPrefix(err.Error(), sentinel.Error()+": ")
	message, remedy, _ = strings.Cut(text, "; ")
	return message, remedy
}

// sizeForm is a number of bytes with a unit.
type sizeForm int64

func (s *sizeForm) read(r *reader, n *yaml.Node, at place) {
	if n.Kind != yaml.ScalarNode {
		r.fail(CodeValueType, at, n, describe(n)+" is not a size", "write one like 64KiB or 1MiB")
		return
	}
	v, err := policy.ParseSize(n.Value)
	if err != nil {
		message, remedy := split(err, policy.ErrSize)
		r.fail(CodeSizeInvalid, at, n, message, remedy)
		return
	}
	*s = sizeForm(v)
}

// volumeForm is a rate: 50000/d.
type volumeForm policy.Volume

const volumePattern = `^([0-9]{1,15}(?:\.[0-9]{1,6})?)/([dhms])$`

var volumeRate = regexp.MustCompile(volumePattern)

func (v *volumeForm) read(r *reader, n *yaml.Node, at place) {
	m := volumeRate.FindStringSubmatch(n.Value)
	if n.Kind != yaml.ScalarNode || m == nil {
		r.fail(policy.CodeVolumeInvalid, at, n, describe(n)+" is not a rate", "write records per d, h, m or s, like 50000/d")
		return
	}
	records, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		r.fail(policy.CodeVolumeInvalid, at, n, err.Error(), "write records per d, h, m or s, like 50000/d")
		return
	}
	if records == 0 {
		return // nothing expected, as if it were left out
	}
	per := map[string]time.Duration{"d": policy.Day, "h": time.Hour, "m": time.Minute, "s": time.Second}[m[2]]
	*v = volumeForm{Records: records, Per: per}
}

// principalForm is header:NAME, auth_request or anonymous.
type principalForm policy.Principal

const principalPattern = "^(header:[!#$%&'*+.^_`|~0-9A-Za-z-]+|auth_request|anonymous)$"

func (p *principalForm) read(r *reader, n *yaml.Node, at place) {
	const remedy = "write header:NAME, auth_request or anonymous"
	if n.Kind == yaml.MappingNode {
		r.fail(policy.CodePrincipalInvalid, at, n, "a mapping is no principal", remedy+", without a space after the colon")
		return
	}
	s, ok := r.text(n, at)
	if !ok {
		return
	}
	if s == "" {
		r.fail(policy.CodeScopeMissing, at, n, "the principal is empty", remedy)
		return
	}
	kind, header, _ := strings.Cut(s, ":")
	*p = principalForm{Kind: policy.PrincipalKind(kind), Header: header}
}

// onUnknownForm is close, hold, or {redispatch_within: 23h}.
type onUnknownForm policy.OnUnknown

func (u *onUnknownForm) read(r *reader, n *yaml.Node, at place) {
	if n.Kind == yaml.MappingNode {
		var form redispatchForm
		r.value(n, at, reflect.ValueOf(&form).Elem())
		if form.Within == nil {
			r.need(n, at, "redispatch_within")
			return
		}
		*u = onUnknownForm{Rule: policy.UnknownRedispatch, Within: form.Within.Duration}
		return
	}
	s, ok := r.text(n, at)
	if ok && s != string(policy.UnknownClose) && s != string(policy.UnknownHold) {
		r.fail(policy.CodeValueInvalid, at, n, quote(s)+" is not known here", "write close, hold or {redispatch_within: 23h}")
		return
	}
	*u = onUnknownForm{Rule: policy.UnknownRule(s)}
}

// need reports a field that must not be left out, unless it was tried.
func (r *reader) need(n *yaml.Node, at place, field string) {
	if !r.broken[at] && !r.broken[at.child(field)] {
		r.fail(CodeValueMissing, at, n, field+" is missing", "write "+field+": …")
	}
}

// inputForm is a duration, {value, source}, or a list of retriers.
type inputForm policy.Input

func (i *inputForm) read(r *reader, n *yaml.Node, at place) {
	switch n.Kind {
	case yaml.MappingNode:
		var form sourcedForm
		r.value(n, at, reflect.ValueOf(&form).Elem())
		if form.Value == nil {
			r.need(n, at, "value")
			return
		}
		i.Value, i.Source = form.Value.Duration, or(form.Source, "")
	case yaml.SequenceNode:
		var forms []retrierForm
		r.value(n, at, reflect.ValueOf(&forms).Elem())
		if len(forms) == 0 {
			r.fail(CodeValueMissing, at, n, "the list of retriers is empty", "write 0s if nobody retries")
		}
		for k, form := range forms {
			if form.Value == nil {
				r.need(n.Content[k], at.item(k), "value")
				form.Value = &durationForm{}
			}
			if form.Name == nil {
				r.need(n.Content[k], at.item(k), "name")
			}
			i.Retriers = append(i.Retriers, policy.Retrier{Name: string(or(form.Name, "")), Value: form.Value.Duration, Inside: string(or(form.Inside, ""))})
		}
	default:
		var d durationForm
		d.read(r, n, at)
		i.Value = d.Duration
	}
}

// gateForm is the time of a dated gate.
type gateForm struct{ durationForm }

func (g *gateForm) read(r *reader, n *yaml.Node, at place) {
	if n.Kind == yaml.ScalarNode && n.Value == "event" {
		r.fail(CodeNotInThisVersion, at, n, "a gate shut by event is not in this version", "write how long it stays open, like 30d")
		return
	}
	g.durationForm.read(r, n, at)
}

// ghostsForm is 0: no version of this reader knows ghosts.
type ghostsForm struct{}

func (*ghostsForm) read(r *reader, n *yaml.Node, at place) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Value != "0" {
		r.fail(CodeNotInThisVersion, at, n, "remembering deleted keys is not in this version", "write ghosts: 0, or take the line out")
	}
}

// Numbers and words that policy.Validate judges; they are types of their own
// for the JSON Schema.
type (
	statusForm   int
	noEffectForm int
	acceptForm   string
	pathForm     string
	matchForm    string
	headerForm   string
	nameForm     string
)

// jsonForm is any YAML value that JSON can say, as JSON text.
type jsonForm string

func (j *jsonForm) read(r *reader, n *yaml.Node, at place) {
	v, err := toJSON(n, 0)
	if err != nil {
		r.fail(policy.CodeFingerprintInvalid, at, n, err.Error(), "write a JSON value")
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		r.fail(policy.CodeFingerprintInvalid, at, n, err.Error(), "write a JSON value")
		return
	}
	*j = jsonForm(b)
}

// jsonDepth bounds how deep a default may nest.
const jsonDepth = 32

// jsonNumber is RFC 8259's number; YAML knows more spellings.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// toJSON turns a node into what encoding/json writes, keeping a number's digits.
func toJSON(n *yaml.Node, depth int) (any, error) {
	if depth > jsonDepth {
		return nil, errors.New("nested too deep")
	}
	switch n.Kind {
	case yaml.MappingNode:
		object := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
				return nil, errors.New(describe(key) + " is no member name")
			}
			if _, twice := object[key.Value]; twice {
				return nil, errors.New(quote(key.Value) + " is written twice")
			}
			v, err := toJSON(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			object[key.Value] = v
		}
		return object, nil
	case yaml.SequenceNode:
		array := make([]any, len(n.Content))
		for i, item := range n.Content {
			v, err := toJSON(item, depth+1)
			if err != nil {
				return nil, err
			}
			array[i] = v
		}
		return array, nil
	}
	return scalarToJSON(n)
}

func scalarToJSON(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!str":
		return n.Value, nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true"), nil
	case "!!null":
		return nil, nil
	case "!!int", "!!float":
		if f, err := strconv.ParseFloat(n.Value, 64); jsonNumber.MatchString(n.Value) && err == nil && !math.IsInf(f, 0) {
			return json.Number(n.Value), nil
		}
	}
	return nil, errors.New(describe(n) + " has no JSON form")
}

// or is what p points to, or a default.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
