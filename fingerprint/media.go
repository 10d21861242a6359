package fingerprint

import (
	"mime"
	"net/http"
	"slices"
	"strings"
)

// fieldLines returns the values of a field in order; name is canonical. A map
// that was filled by hand may hold other spellings: they count where the
// canonical one is missing, in the order of the names.
func fieldLines(h http.Header, name string) []string {
	if v := h[name]; len(v) > 0 {
		return v
	}
	var found []string
	for k, v := range h {
		if len(k) == len(name) && len(v) > 0 && strings.EqualFold(k, name) {
			found = append(found, k)
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	var lines []string
	for _, k := range found {
		lines = append(lines, h[k]...)
	}
	return lines
}

// header writes the fields that the policy chose. A field that is absent has
// no value part; one that is empty has an empty one.
func (f *form) header(names []string, h http.Header) {
	for _, name := range names {
		f.partString(TagHeaderName, name)
		for _, v := range fieldLines(h, name) {
			f.partString(TagHeaderValue, v)
		}
	}
}

// param is a parameter of a media type or of a content disposition.
type param struct{ name, value string }

// media is a Content-Type after parsing.
type media struct {
	typ      string  // lower case; empty when absent or raw
	params   []param // that count, sorted by name
	boundary string  // of a multipart type
	foreign  bool    // the charset is not known to be UTF-8
	raw      []string
}

// parseMedia reads the lines of Content-Type. What counts is the type in lower
// case and its parameters by name; charset=utf-8, the default everywhere, does
// not, nor does the boundary of a multipart type (dangers.md rows H19, B07).
func parseMedia(lines []string) media {
	if len(lines) == 0 {
		return media{}
	}
	if len(lines) > 1 {
		return media{raw: lines}
	}
	switch lines[0] { // the common spellings need no parser
	case "application/json", "application/json; charset=utf-8", "application/json;charset=utf-8", "application/json; charset=UTF-8":
		return media{typ: "application/json"}
	case "application/x-www-form-urlencoded":
		return media{typ: "application/x-www-form-urlencoded"}
	}
	typ, params, ok := parseParams(lines[0])
	if !ok {
		return media{raw: lines}
	}
	m := media{typ: typ}
	for _, p := range params {
		switch {
		case p.name == "charset" && strings.EqualFold(p.value, "utf-8"):
			continue
		case p.name == "charset":
			m.foreign = !strings.EqualFold(p.value, "utf8") && !strings.EqualFold(p.value, "us-ascii")
		case p.name == "boundary" && strings.HasPrefix(typ, "multipart/"):
			m.boundary = p.value
			continue
		}
		m.params = append(m.params, p)
	}
	return m
}

// parseParams takes "type; name=value" apart; parameters come sorted by name.
// It refuses backslashes and the continuations of RFC 2231, since package mime
// maps different spellings of either to one value.
func parseParams(s string) (string, []param, bool) {
	if strings.ContainsAny(s, `\*`) {
		return "", nil, false
	}
	typ, values, err := mime.ParseMediaType(s)
	if err != nil {
		return "", nil, false
	}
	params := make([]param, 0, len(values))
	for k, v := range values {
		params = append(params, param{k, v})
	}
	slices.SortFunc(params, func(a, b param) int { return strings.Compare(a.name, b.name) })
	return typ, params, true
}

func (m *media) isJSON() bool {
	return !m.foreign && (m.typ == "application/json" || strings.HasSuffix(m.typ, "+json"))
}

func (m *media) isForm() bool {
	return !m.foreign && m.typ == "application/x-www-form-urlencoded"
}

func (m *media) isMultipart() bool { return strings.HasPrefix(m.typ, "multipart/") }

// media writes the type and its parameters; nothing when it is absent.
func (f *form) media(m media) {
	for _, line := range m.raw {
		f.partString(TagMediaRaw, line)
	}
	if m.typ != "" {
		f.partString(TagMediaType, m.typ)
		f.params(m.params)
	}
}

func (f *form) params(params []param) {
	for _, p := range params {
		f.partString(TagParamName, p.name)
		f.partString(TagParamValue, p.value)
	}
}
