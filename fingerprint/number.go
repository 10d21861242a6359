package fingerprint

import (
	"bytes"
	"strconv"
)

// maxExponentDigits bounds the exponents that are added up: 18 digits fit an
// int64 with room for the length of any body. A longer exponent has no
// canonical form, so the body counts as sent.
const maxExponentDigits = 18

// exactNumbers returns canonical JSON with each number in exact form (see
// [appendNumber]), or false where a number has none. It returns canon itself
// where nothing changes. canon must be compact, valid JSON.
func (f *form) exactNumbers(canon []byte) ([]byte, bool) {
	out, done := f.numbers[:0], 0 // canon[:done] is in out
	for i := 0; i < len(canon); {
		switch c := canon[i]; {
		case c == '"':
			i = afterString(canon, i)
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(canon) && isNumberByte(canon[end]) {
				end++
			}
			if !isExact(canon[i:end]) {
				out = append(out, canon[done:i]...)
				var ok bool
				if out, ok = appendNumber(out, canon[i:end]); !ok {
					return nil, false
				}
				done = end
			}
			i = end
		default:
			i++
		}
	}
	if done == 0 {
		return canon, true
	}
	f.numbers = append(out, canon[done:]...)
	return f.numbers, true
}

// afterString returns the index behind the string that begins at b[i].
func afterString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func isNumberByte(c byte) bool {
	return '0' <= c && c <= '9' || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E'
}

// isExact reports whether a number is plainly in exact form already: "0", or
// digits that do not end in 0.
func isExact(n []byte) bool {
	if len(n) == 1 {
		return true
	}
	for _, c := range n[1:] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return n[len(n)-1] != '0'
}

// appendNumber appends the exact form of a valid JSON number: the sign, the
// digits without zeros at either end, and "e" with the power of ten unless it
// is zero. All zeros are "0". Equal numbers have one form and different ones
// have two, at any size, and nothing is expanded (cases.md C18). It reports
// false for an exponent of more than 18 digits.
func appendNumber(dst, n []byte) ([]byte, bool) {
	negative := n[0] == '-'
	if negative {
		n = n[1:]
	}
	mantissa, power := n, []byte(nil)
	if i := bytes.IndexAny(n, "eE"); i >= 0 {
		mantissa, power = n[:i], n[i+1:]
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))

	// Digits are whole and fraction in a row; drop the zeros at both ends.
	exponent := -int64(len(fraction))
	fraction = bytes.TrimRight(fraction, "0")
	dropped := len(mantissa) - len(whole) - len(fraction)
	if dropped > 0 && len(mantissa) > len(whole) {
		dropped-- // the point
	}
	if len(fraction) == 0 {
		trimmed := bytes.TrimRight(whole, "0")
		dropped += len(whole) - len(trimmed)
		whole = trimmed
	}
	exponent += int64(dropped)
	if whole = bytes.TrimLeft(whole, "0"); len(whole) == 0 {
		fraction = bytes.TrimLeft(fraction, "0")
	}
	if len(whole)+len(fraction) == 0 {
		return append(dst, '0'), true
	}
	if len(power) > 0 {
		p, ok := parseExponent(power)
		if !ok {
			return dst, false
		}
		exponent += p
	}

	if negative {
		dst = append(dst, '-')
	}
	dst = append(dst, whole...)
	dst = append(dst, fraction...)
	if exponent != 0 {
		dst = append(dst, 'e')
		dst = strconv.AppendInt(dst, exponent, 10)
	}
	return dst, true
}

func parseExponent(b []byte) (int64, bool) {
	negative := b[0] == '-'
	if negative || b[0] == '+' {
		b = b[1:]
	}
	b = bytes.TrimLeft(b, "0")
	if len(b) > maxExponentDigits {
		return 0, false
	}
	var e int64
	for _, c := range b {
		e = e*10 + int64(c-'0')
	}
	if negative {
		e = -e
	}
	return e, true
}
