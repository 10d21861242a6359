package fingerprint_test

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

// value is a JSON value that can be spelled in many ways: nil, bool, string,
// number, []value or []member.
type value any

type number struct {
	digits   int64
	exponent int
}

type member struct {
	name  string
	value value
}

var names = []string{"amount", "to", "memo", "é", "a\"b", "x/y", "", "items", "\U0001f600", "\uffff", "id"}

func randomValue(rng *rand.Rand, depth int) value {
	n := 7
	if depth == 0 {
		n = 5
	}
	switch rng.Intn(n) {
	case 0:
		return nil
	case 1:
		return rng.Intn(2) == 0
	case 2:
		return []string{"", "alice", "é<>&", "10", "\u2028\\\"", "e\u0301", "\x01"}[rng.Intn(7)] + strconv.Itoa(rng.Intn(3))
	case 3:
		return number{digits: int64(rng.Intn(4000) - 2000)}
	case 4:
		return number{digits: rng.Int63() - 1<<62, exponent: rng.Intn(40) - 20}
	case 5:
		list := make([]value, rng.Intn(4))
		for i := range list {
			list[i] = randomValue(rng, depth-1)
		}
		return list
	}
	return randomObject(rng, depth)
}

func randomObject(rng *rand.Rand, depth int) []member {
	object := make([]member, 0, 6)
	for _, i := range rng.Perm(len(names))[:rng.Intn(6)] {
		object = append(object, member{names[i], randomValue(rng, depth-1)})
	}
	return object
}

// spell writes a value in a random spelling.
func spell(rng *rand.Rand, v value) string {
	space := func() string { return []string{"", "", "", " ", "\n\t", "\r\n  "}[rng.Intn(6)] }
	var b strings.Builder
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		fmt.Fprint(&b, v)
	case string:
		b.WriteString(spellString(rng, v))
	case number:
		b.WriteString(spellNumber(rng, v))
	case []value:
		b.WriteString("[" + space())
		for i, e := range v {
			if i > 0 {
				b.WriteString("," + space())
			}
			b.WriteString(spell(rng, e) + space())
		}
		b.WriteString("]")
	case []member:
		b.WriteString("{" + space())
		for i, j := range rng.Perm(len(v)) {
			if i > 0 {
				b.WriteString("," + space())
			}
			b.WriteString(spellString(rng, v[j].name) + space() + ":" + space() + spell(rng, v[j].value) + space())
		}
		b.WriteString("}")
	}
	return space() + b.String() + space()
}

func spellString(rng *rand.Rand, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r > 0xffff && rng.Intn(2) == 0:
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		case r < 0x20, r == '"', r == '\\', r <= 0xffff && rng.Intn(4) == 0:
			fmt.Fprintf(&b, []string{`\u%04x`, `\u%04X`}[rng.Intn(2)], r)
		case r == '/' && rng.Intn(2) == 0:
			b.WriteString(`\/`)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func spellNumber(rng *rand.Rand, n number) string {
	sign, digits := "", strconv.FormatInt(n.digits, 10)
	if n.digits < 0 {
		sign, digits = "-", digits[1:]
	}
	exponent := n.exponent
	for range rng.Intn(3) {
		digits, exponent = digits+"0", exponent-1
	}
	if n.digits == 0 {
		exponent = rng.Intn(100) - 50
	}
	if rng.Intn(2) == 0 {
		shift := rng.Intn(len(digits) + 3)
		exponent += shift
		padded := strings.Repeat("0", max(0, shift-len(digits)+1)) + digits
		digits = padded[:len(padded)-shift]
		if shift > 0 {
			digits += "." + padded[len(padded)-shift:]
		}
	}
	switch {
	case exponent == 0 && rng.Intn(2) == 0:
		return sign + digits
	case exponent >= 0 && rng.Intn(2) == 0:
		return fmt.Sprintf("%s%sE+%02d", sign, digits, exponent)
	}
	return fmt.Sprintf("%s%se%d", sign, digits, exponent)
}

// request is an abstract request: what it means, not how it is spelled.
type request struct {
	method, path string
	query        [][2]string
	version      string
	mediaVersion string
	body         value
}

func randomRequest(rng *rand.Rand) request {
	r := request{
		method:  []string{"POST", "PUT", "PATCH"}[rng.Intn(3)],
		path:    []string{"/pay", "/v1/pay~ments/p1", "/a/é"}[rng.Intn(3)],
		version: strconv.Itoa(rng.Intn(3)), mediaVersion: strconv.Itoa(rng.Intn(3)),
		body: randomValue(rng, 3),
	}
	for range rng.Intn(4) {
		r.query = append(r.query, [2]string{[]string{"to", "a b", "ü"}[rng.Intn(3)], strconv.Itoa(rng.Intn(5)) + "/+ "})
	}
	return r
}

// send spells a request in a random way.
func send(t testing.TB, rng *rand.Rand, r request) *fingerprint.Request {
	escape := func(s string, reserved bool) string {
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			c := s[i]
			letter := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
			switch {
			case c == ' ' && reserved && rng.Intn(2) == 0:
				b.WriteByte('+')
			case (c == '/' || letter || c == '~' || c >= 0x80) && rng.Intn(3) > 0:
				b.WriteByte(c)
			case letter || c == '~' || c >= 0x80 || reserved:
				fmt.Fprintf(&b, []string{"%%%02x", "%%%02X"}[rng.Intn(2)], c)
			default:
				b.WriteByte(c)
			}
		}
		return b.String()
	}
	// Shuffle the query, but keep the order within a name.
	var pairs []string
	rest := slices.Clone(r.query)
	for len(rest) > 0 {
		i := rng.Intn(len(rest))
		i = slices.IndexFunc(rest, func(p [2]string) bool { return p[0] == rest[i][0] })
		pairs = append(pairs, escape(rest[i][0], true)+"="+escape(rest[i][1], true))
		rest = slices.Delete(rest, i, i+1)
	}
	req := &fingerprint.Request{
		Method: r.method, Path: escape(r.path, false), RawQuery: strings.Join(pairs, "&"), Header: http.Header{},
		Body: []byte(spell(rng, r.body)),
	}
	req.Header[[]string{"Api-Version", "api-version"}[rng.Intn(2)]] = []string{r.version}
	req.Header.Set("Date", strconv.Itoa(rng.Int()))
	req.Header.Set("Content-Type", fmt.Sprintf([]string{
		"application/json;v=%s", "Application/Json; charset=UTF-8; V=\"%s\"", "application/json; v=%s; charset=\"utf-8\"",
	}[rng.Intn(3)], r.mediaVersion))
	if rng.Intn(50) == 0 { // seldom: a compressor costs more than all the rest
		req.Header.Set("Content-Encoding", "gzip")
		req.Body = zip(t, 1+rng.Intn(9), "", req.Body)
	}
	return req
}

// other returns a request that means something else, and what was changed.
func other(rng *rand.Rand, r request) (request, string) {
	r.query = slices.Clone(r.query)
	switch rng.Intn(9) {
	case 0:
		r.method += "X"
		return r, "method"
	case 1:
		r.path += "/x"
		return r, "path"
	case 2:
		r.query = append(r.query, [2]string{"to", "0"})
		return r, "one pair more"
	case 3:
		r.version += "1"
		return r, "header"
	case 4:
		r.mediaVersion += "1"
		return r, "media type"
	}
	var what string
	r.body, what = otherValue(rng, r.body)
	return r, what
}

// otherValue copies a value with one change in it.
func otherValue(rng *rand.Rand, v value) (value, string) {
	switch v := v.(type) {
	case bool:
		return !v, "bool"
	case string:
		return v + "x", "string"
	case number:
		if rng.Intn(2) == 0 && v.digits != 0 {
			return number{-v.digits, v.exponent}, "sign"
		}
		return number{v.digits + 1, v.exponent}, "number"
	case []value:
		if len(v) > 0 && rng.Intn(3) > 0 {
			list, what := slices.Clone(v), ""
			i := rng.Intn(len(v))
			list[i], what = otherValue(rng, v[i])
			return list, what + " in a list"
		}
		return append(slices.Clone(v), nil), "one element more"
	case []member:
		if len(v) > 0 && rng.Intn(3) > 0 {
			object, what := slices.Clone(v), ""
			i := rng.Intn(len(v))
			if rng.Intn(4) == 0 {
				return slices.Delete(object, i, i+1), "one member less"
			}
			object[i].value, what = otherValue(rng, v[i].value)
			return object, what + " in an object"
		}
		return append(slices.Clone(v), member{"new", nil}), "one member more"
	}
	return []value{v}, "wrapped"
}

// TestP6SameAndOtherRequests spells random requests anew, which must keep the
// sum, and changes one thing in them, which must not (design.md §8, P6).
func TestP6SameAndOtherRequests(t *testing.T) {
	pairs := 20_000
	if raceEnabled {
		pairs /= 10 // nothing here runs at once; the detector only slows it down
	}
	rng := rand.New(rand.NewSource(6))
	r := compile(t, policy.Fingerprint{Headers: []string{"Api-Version"}}, fingerprint.Options{Secret: make([]byte, 32)})
	// A rule that has nothing to do goes the long way round to the same sums.
	idle := compile(t, policy.Fingerprint{Headers: []string{"Api-Version"}, Ignore: []string{"$.nothing"}}, fingerprint.Options{Secret: make([]byte, 32)})
	changes := map[string]int{}
	for i := range pairs {
		abstract := randomRequest(rng)
		first, again := send(t, rng, abstract), send(t, rng, abstract)
		want := sum(t, r, first)
		if got := sum(t, r, again); got != want {
			explain(t, r, first, again)
			t.Fatalf("pair %d: one request, two sums", i)
		}
		if i%10 == 0 && sum(t, idle, again) != want {
			explain(t, r, again)
			explain(t, idle, again)
			t.Fatalf("pair %d: an idle rule changes the sum", i)
		}
		changed, what := other(rng, abstract)
		changes[what]++
		if second := send(t, rng, changed); sum(t, r, second) == want {
			explain(t, r, first, second)
			t.Fatalf("pair %d: %s changed, the sum did not", i, what)
		}
		if first.Header.Get("Content-Encoding") == "" && !json.Valid(first.Body) {
			t.Fatalf("pair %d: the generator made %q", i, first.Body)
		}
	}
	for _, what := range []string{"method", "path", "header", "media type", "one pair more", "bool", "string", "sign", "number", "one member less", "number in an object"} {
		if changes[what] == 0 {
			t.Errorf("no pair differed by %q; the generator has gone dull", what)
		}
	}
}
