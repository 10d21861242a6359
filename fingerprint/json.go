package fingerprint

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is the deepest nesting of objects and arrays that has a canonical
// form. The canonicaliser moves the members of an object once for each level
// around it, so that a 1 MiB body nested 10,000 deep would cost seconds.
const maxDepth = 256

// canonicalForm asks for RFC 8785 without its numbers: members in order,
// shortest strings, no white space, but numbers as sent. RFC 8785 reads them as
// float64, which makes 2^53 and 2^53+1 one number and 1e400 the greatest
// float64. Duplicate members, invalid UTF-8 and lone surrogates are errors.
var canonicalForm = []jsontext.Options{
	jsontext.ReorderRawObjects(true),
	jsontext.CanonicalizeRawInts(false),
	jsontext.CanonicalizeRawFloats(false),
}

// json writes a JSON body in canonical form, whole or reduced by the policy; as
// sent where the canonical form would lose a difference.
func (f *form) json(r *Rule, body []byte) {
	canon, ok := f.canonical(body)
	if !ok {
		f.part(TagJSONRaw, body)
		return
	}
	if len(r.fields)+len(r.ignore)+len(r.defaults) == 0 {
		f.part(TagJSON, canon)
		return
	}
	f.reduced(r, canon)
}

// canonical returns the canonical form of a JSON text, valid until the next
// call, or false where there is none.
func (f *form) canonical(text []byte) ([]byte, bool) {
	if tooDeep(text) {
		return nil, false
	}
	var err error
	f.canon, err = jsontext.AppendFormat(f.canon[:0], text, canonicalForm...)
	if err != nil {
		return nil, false
	}
	return f.exactNumbers(f.canon)
}

// tooDeep reports whether a text nests deeper than maxDepth. For text that is
// not JSON the answer does not matter: it has no canonical form either way.
func tooDeep(text []byte) bool {
	if bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) <= maxDepth {
		return false
	}
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inString = !inString
		case inString:
			if c == '\\' {
				i++
			}
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
