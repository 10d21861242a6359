package fingerprint

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/theory/jsonpath"
	"github.com/theory/jsonpath/spec"
)

// removed stands where an ignored member was, until the value is written.
type removed struct{}

// reduced writes a JSON body as the policy's defaults, fields and ignore make
// it; canon is its canonical form. All paths are found in the body with its
// defaults, before anything is left out.
func (f *form) reduced(r *Rule, canon []byte) {
	doc := decode(canon)
	for _, d := range r.defaults {
		d.apply(doc)
	}
	var chosen jsonpath.LocatedNodeList
	for _, p := range r.fields {
		chosen = append(chosen, p.SelectLocated(doc)...)
	}
	chosen.Sort()
	var ignored jsonpath.LocatedNodeList
	for _, p := range r.ignore {
		ignored = append(ignored, p.SelectLocated(doc)...)
	}
	for _, node := range ignored {
		remove(doc, node.Path)
	}

	written := false
	var outer spec.NormalizedPath // the last path written
	for _, node := range chosen {
		// A path within the last one, or equal to it, adds nothing: it sorts
		// right behind.
		if written && within(node.Path, outer) {
			continue
		}
		v, ok := lookup(doc, node.Path)
		if !ok {
			continue
		}
		written, outer = true, node.Path
		f.partString(TagFieldPath, node.Path.String())
		f.part(TagFieldValue, f.encode(v))
	}
	if !written {
		// Without fields the whole body counts; so it does when none of them is
		// there, or a slip in a policy would make all bodies the same.
		f.part(TagJSON, f.encode(doc))
	}
}

// decode reads canonical JSON, its numbers as text. It cannot fail on what
// form.canonical returned.
func decode(canon []byte) any {
	d := json.NewDecoder(bytes.NewReader(canon))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		panic("fingerprint: canonical JSON does not decode: " + err.Error())
	}
	return v
}

// encode is the canonical form of a value without what was removed from it.
// It is valid until the next call.
func (f *form) encode(v any) []byte {
	f.text = appendValue(f.text[:0], v)
	var err error
	f.canon, err = jsontext.AppendFormat(f.canon[:0], f.text, canonicalForm...)
	if err != nil {
		panic("fingerprint: decoded JSON does not encode: " + err.Error())
	}
	return f.canon
}

// appendValue writes a value as JSON, members in no order, leaving out what was
// removed.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		b = append(b, '{')
		comma := false
		for name, member := range v {
			if _, gone := member.(removed); gone {
				continue
			}
			if comma {
				b = append(b, ',')
			}
			comma = true
			b = append(appendString(b, name), ':')
			b = appendValue(b, member)
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		comma := false
		for _, element := range v {
			if _, gone := element.(removed); gone {
				continue
			}
			if comma {
				b = append(b, ',')
			}
			comma = true
			b = appendValue(b, element)
		}
		return append(b, ']')
	case json.Number:
		return append(b, v...)
	case string:
		return appendString(b, v)
	case bool:
		return strconv.AppendBool(b, v)
	}
	return append(b, "null"...)
}

// appendString quotes a string. It is valid UTF-8, so quoting cannot fail.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// apply adds the member where it is missing, and the objects around it where
// they are missing too. What is there and is no object, null among it, stays.
func (d *defaultMember) apply(doc any) {
	object, ok := doc.(map[string]any)
	last := len(d.names) - 1
	for _, name := range d.names[:last] {
		if !ok {
			return
		}
		inner, found := object[name]
		if !found {
			inner = map[string]any{}
			object[name] = inner
		}
		object, ok = inner.(map[string]any)
	}
	if !ok {
		return
	}
	if _, found := object[d.names[last]]; !found {
		object[d.names[last]] = decode(d.value)
	}
}

// remove marks the value at a path as removed; path is not empty, since
// Compile refuses to ignore the root.
func remove(doc any, path spec.NormalizedPath) {
	last := len(path) - 1
	parent, ok := lookup(doc, path[:last])
	if !ok {
		return
	}
	switch s := path[last].(type) {
	case spec.Name:
		if object, ok := parent.(map[string]any); ok {
			object[string(s)] = removed{}
		}
	case spec.Index:
		if array, ok := parent.([]any); ok {
			array[s] = removed{}
		}
	}
}

// lookup finds the value at a path that once was there; false where it, or
// something around it, has been removed.
func lookup(v any, path spec.NormalizedPath) (any, bool) {
	for _, s := range path {
		switch s := s.(type) {
		case spec.Name:
			object, ok := v.(map[string]any)
			if !ok {
				return nil, false
			}
			v = object[string(s)]
		case spec.Index:
			array, ok := v.([]any)
			if !ok {
				return nil, false
			}
			v = array[s]
		}
	}
	_, gone := v.(removed)
	return v, !gone
}

// within reports whether path is outer or lies inside it.
func within(path, outer spec.NormalizedPath) bool {
	return len(path) >= len(outer) && slices.Equal(path[:len(outer)], outer)
}
