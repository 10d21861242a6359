package policyfile

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/counterfoil/counterfoil/policy"
)

// place names a value: an operation, and the field below it as policy.Finding
// spells it.
type place struct{ operation, field string }

func (p place) String() string {
	return policy.Finding{Operation: p.operation, Field: p.field}.Path()
}

// child is the field of that name within p.
func (p place) child(name string) place {
	if p.field != "" {
		name = p.field + "." + name
	}
	return place{p.operation, name}
}

func (p place) item(i int) place { return place{p.operation, fmt.Sprintf("%s[%d]", p.field, i)} }

// parent is the place around p; the place around everything is place{}.
func (p place) parent() place {
	if i := strings.LastIndexAny(p.field, ".["); i >= 0 {
		return place{p.operation, p.field[:i]}
	}
	if p.field != "" && p.operation != "" {
		return place{operation: p.operation}
	}
	return place{}
}

// position is where a key, or an item of a list, begins.
type position struct{ line, column int }

// reader fills the types of form.go from YAML nodes. It goes on after a fault,
// so that one run shows them all.
type reader struct {
	file     string
	findings []Finding
	at       map[place]position
	// broken are the places that could not be read, so that no second fault is
	// made of the first.
	broken map[place]bool
}

// leaf is a type of form.go that reads itself.
type leaf interface {
	read(r *reader, n *yaml.Node, at place)
}

// fail records a fault at a place, by that place's key.
func (r *reader) fail(code policy.Code, at place, n *yaml.Node, message, remedy string) {
	r.broken[at] = true
	pos, ok := r.at[at]
	if !ok {
		pos = position{n.Line, n.Column}
	}
	r.add(policy.SeverityError, code, at, pos, message, remedy)
}

func (r *reader) add(s policy.Severity, code policy.Code, at place, pos position, message, remedy string) {
	r.findings = append(r.findings, Finding{s, code, r.file, pos.line, pos.column, at.String(), message, remedy})
}

// value fills v from n.
func (r *reader) value(n *yaml.Node, at place, v reflect.Value) {
	if n.Kind == yaml.AliasNode {
		r.broken[at] = true // reported by aliases
		return
	}
	_, anything := v.Addr().Interface().(*jsonForm) // null is a JSON value
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" && !anything {
		r.fail(CodeValueMissing, at, n, "the field has no value", "write one, or take the line out to get the default")
		return
	}
	if l, ok := v.Addr().Interface().(leaf); ok {
		l.read(r, n, at)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		r.value(n, at, v.Elem())
	case reflect.Struct:
		r.structure(n, at, v)
	case reflect.Map:
		r.mapping(n, at, v)
	case reflect.Slice:
		r.sequence(n, at, v)
	case reflect.String:
		s, ok := r.text(n, at)
		if ok && s == "" {
			// Otherwise "" would quietly mean the same as leaving the line out.
			r.fail(CodeValueMissing, at, n, "the text is empty", "write one, or take the line out to get the default")
		}
		v.SetString(s)
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			r.fail(CodeValueType, at, n, describe(n)+" is not true or false", "write true or false")
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int, reflect.Uint32:
		r.number(n, at, v)
	default:
		panic("policyfile: no reader for " + v.Type().String())
	}
}

// fieldsOf lists the names of a struct of form.go with their indexes.
func fieldsOf(t reflect.Type) map[string]int {
	fields := map[string]int{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[name] = i
	}
	return fields
}

// structure fills a struct of form.go from a mapping.
func (r *reader) structure(n *yaml.Node, at place, v reflect.Value) {
	fields := fieldsOf(v.Type())
	known := slices.Sorted(maps.Keys(fields))
	r.pairs(n, at, at.child, func(name string, key, value *yaml.Node, child place) {
		i, ok := fields[name]
		if !ok {
			r.unknown(v.Type(), name, known, key, child)
			return
		}
		r.value(value, child, v.Field(i))
	})
}

// unknown refuses a field that the form does not have.
func (r *reader) unknown(t reflect.Type, name string, known []string, key *yaml.Node, at place) {
	if why, ok := unbuilt[t][name]; ok {
		r.fail(CodeNotInThisVersion, at, key, name+" is not in this version", why)
		return
	}
	remedy := "known here: " + strings.Join(known, ", ")
	if near := suggest(name, known); near != "" {
		remedy = "did you mean " + near + "?"
	}
	r.fail(CodeUnknownField, at, key, fmt.Sprintf("unknown field %s", quote(name)), remedy)
}

// mapping fills a map by free names. The operations' map is where places get
// their operation.
func (r *reader) mapping(n *yaml.Node, at place, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	child := at.child
	if at == (place{"", "operations"}) {
		child = func(name string) place { return place{operation: name} }
	}
	r.pairs(n, at, child, func(name string, _, value *yaml.Node, child place) {
		element := reflect.New(v.Type().Elem()).Elem()
		r.value(value, child, element)
		v.SetMapIndex(reflect.ValueOf(name), element)
	})
}

// pairs calls each for every key of a mapping, and refuses what is not one.
func (r *reader) pairs(n *yaml.Node, at place, child func(string) place, each func(name string, key, value *yaml.Node, at place)) {
	if n.Kind != yaml.MappingNode {
		r.fail(CodeValueType, at, n, describe(n)+" is not a mapping", "write fields, one a line, indented below")
		return
	}
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" && key.ShortTag() != "!!merge" {
			r.broken[at] = true
			r.add(policy.SeverityError, CodeValueType, at, position{key.Line, key.Column},
				describe(key)+" is not a field name", "write a name, in quotes if it looks like a number")
			continue
		}
		where := child(key.Value)
		if earlier := first[key.Value]; earlier != nil {
			r.broken[where] = true
			r.add(policy.SeverityError, CodeDuplicateKey, where, position{key.Line, key.Column},
				fmt.Sprintf("%s is already written in line %d", quote(key.Value), earlier.Line), "take one of them out")
			continue
		}
		first[key.Value] = key
		r.at[where] = position{key.Line, key.Column}
		each(key.Value, key, value, where)
	}
}

func (r *reader) sequence(n *yaml.Node, at place, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		r.fail(CodeValueType, at, n, describe(n)+" is not a list", "write a list: [one, two]")
		return
	}
	// Not nil, even without items: an empty list is something said.
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		where := at.item(i)
		r.at[where] = position{item.Line, item.Column}
		r.value(item, where, v.Index(i))
	}
}

// text is a string as written. What YAML takes for something else must be
// quoted, so that 010 is not 8 by surprise.
func (r *reader) text(n *yaml.Node, at place) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode:
		r.fail(CodeValueType, at, n, describe(n)+" is not a text", "write a single value")
	case n.ShortTag() != "!!str":
		r.fail(CodeValueType, at, n, describe(n)+" is not a text", "put it in quotes")
	default:
		return n.Value, true
	}
	return "", false
}

// decimal leaves out signs, 0x10, 1_000 and 010, which readers take differently.
var decimal = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

func (r *reader) number(n *yaml.Node, at place, v reflect.Value) {
	const remedy = "write a whole number in plain digits"
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || !decimal.MatchString(n.Value) {
		r.fail(CodeValueType, at, n, describe(n)+" is not a whole number", remedy)
		return
	}
	i, err := strconv.ParseUint(n.Value, 10, 32)
	if err != nil || v.Kind() == reflect.Int && i > 1<<31-1 {
		r.fail(CodeValueType, at, n, n.Value+" is too large", "write a smaller number")
		return
	}
	if v.Kind() == reflect.Int {
		v.SetInt(int64(i))
		return
	}
	v.SetUint(i)
}

// describe names a value in a message.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	return quote(n.Value)
}

// quote shows a value, the beginning of a long one.
func quote(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}
