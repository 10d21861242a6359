package fingerprint

import (
	"bytes"
	"slices"
	"strings"
)

// maxPairs is the greatest number of pairs of a query or a form that is taken
// apart. It is net/url's own limit (CVE-2026-39825): a handler sees nothing of
// a longer one, so its bytes count (dangers.md row U09).
const maxPairs = 10_000

// path writes the path after the normalisation of RFC 3986 §6.2.2: escapes of
// unreserved characters are undone, hexadecimal digits are upper case, and
// what may not stand in a URL is escaped. Escapes of reserved characters stay,
// so %2F is never a slash. The result holds % only where an escape begins.
func (f *form) path(p string) {
	if p == "" {
		p = "/" // RFC 3986 §6.2.3
	}
	b := f.text[:0]
	for i := 0; i < len(p); i++ {
		c := p[i]
		if c == '%' {
			x, ok := unhex(p, i)
			if !ok {
				f.partString(TagPathRaw, p)
				return
			}
			i += 2
			if isUnreserved(x) {
				b = append(b, x)
			} else {
				b = appendEscape(b, x)
			}
			continue
		}
		if isUnreserved(c) || isReserved(c) {
			b = append(b, c)
		} else {
			b = appendEscape(b, c)
		}
	}
	f.text = b
	f.part(TagPath, b)
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

func isReserved(c byte) bool { return strings.IndexByte(":/?#[]@!$&'()*+,;=", c) >= 0 }

func appendEscape(b []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(b, '%', digits[c>>4], digits[c&15])
}

// unhex reads the escape whose % is at s[i].
func unhex[S ~string | ~[]byte](s S, i int) (byte, bool) {
	if i+2 >= len(s) {
		return 0, false
	}
	hi, lo := hexDigit(s[i+1]), hexDigit(s[i+2])
	return hi<<4 | lo&15, hi < 16 && lo < 16
}

// hexDigit returns the value of a hexadecimal digit, or 255.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// pair is one name and value of a query or form, decoded, as offsets into the
// text they were decoded to.
type pair struct {
	name, eq, end int // name is text[name:eq], value is text[eq:end]
	hasValue      bool
}

// query writes the query string as pairs, or as sent where it does not parse.
func (f *form) query(raw string) {
	if raw == "" {
		return
	}
	if !parsePairs(f, raw) {
		f.partString(TagQueryRaw, raw)
		return
	}
	f.writePairs(TagQueryName, TagQueryValue)
}

// urlencoded writes a form body as pairs, or as sent where it does not parse.
func (f *form) urlencoded(body []byte) {
	if !parsePairs(f, body) {
		f.part(TagFormRaw, body)
		return
	}
	f.part(TagForm, nil)
	f.writePairs(TagFormName, TagFormValue)
}

// parsePairs decodes pairs into f. It reports false for a bad escape, for a
// semicolon (half the world's parsers split there, net/url refuses), and for
// more than maxPairs.
func parsePairs[S ~string | ~[]byte](f *form, raw S) bool {
	text, pairs := f.text[:0], f.pairs[:0]
	p := pair{}
	for i := 0; i <= len(raw); i++ {
		if i == len(raw) || raw[i] == '&' {
			p.end = len(text)
			if !p.hasValue {
				p.eq = p.end
			}
			if len(pairs) == maxPairs {
				return false
			}
			pairs = append(pairs, p)
			p = pair{name: p.end}
			continue
		}
		switch c := raw[i]; {
		case c == '=' && !p.hasValue:
			p.eq, p.hasValue = len(text), true
		case c == ';':
			return false
		case c == '+':
			text = append(text, ' ')
		case c == '%':
			x, ok := unhex(raw, i)
			if !ok {
				return false
			}
			text = append(text, x)
			i += 2
		default:
			text = append(text, c)
		}
	}
	f.text, f.pairs = text, pairs
	return true
}

// writePairs sorts the pairs by name, so that the order of different names does
// not count and the order within one name does (cases.md C60).
func (f *form) writePairs(name, value Tag) {
	text := f.text
	if len(f.pairs) > 1 {
		slices.SortStableFunc(f.pairs, func(a, b pair) int {
			return bytes.Compare(text[a.name:a.eq], text[b.name:b.eq])
		})
	}
	for _, p := range f.pairs {
		f.part(name, text[p.name:p.eq])
		if p.hasValue {
			f.part(value, text[p.eq:p.end])
		}
	}
}
