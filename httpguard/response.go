package httpguard

import (
	"encoding/binary"
	"errors"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// responseFormat is the version of the stored form.
//
// History: 1, the first.
const responseFormat = 1

// stored is an answer as it is kept for replays: without the fields that are
// never stored.
//
// Its form is one byte of version, then, all numbers being unsigned varints and
// all texts preceded by their length: the status; the number of fields, and for
// each its name, the number of its values and the values in order; the trailers
// in the same way, each name preceded by a byte that is 1 where the Trailer
// field announced it; the body.
type stored struct {
	status   int
	fields   []field
	trailers []trailer
	body     []byte
	// spare are empty values behind those that were read, for who wants to add
	// fields in the same allocation.
	spare []string
}

// trailer is a field that comes after the body.
type trailer struct {
	field
	announced bool
}

var errStored = errors.New("httpguard: not a stored response of a known version")

func (s *stored) encode() []byte {
	size := 32 + len(s.body)
	for _, f := range s.fields {
		size += f.size()
	}
	for _, t := range s.trailers {
		size += 1 + t.size()
	}
	b := make([]byte, 0, size)
	b = append(b, responseFormat)
	b = binary.AppendUvarint(b, uint64(s.status))
	b = binary.AppendUvarint(b, uint64(len(s.fields)))
	for _, f := range s.fields {
		b = f.append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(s.trailers)))
	for _, t := range s.trailers {
		if t.announced {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
		b = t.append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(s.body)))
	return append(b, s.body...)
}

func (f field) size() int {
	n := len(f.name) + 6
	for _, v := range f.values {
		n += len(v) + 3
	}
	return n
}

func (f field) append(b []byte) []byte {
	b = appendText(b, f.name)
	b = binary.AppendUvarint(b, uint64(len(f.values)))
	for _, v := range f.values {
		b = appendText(b, v)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// decode reads what encode wrote. The body is part of b; the fields stand in
// room where they fit, and after all their values as many more as spare says.
// Bytes that encode never writes are refused: they are damage, or another
// version.
func decode(b []byte, room []field, spare int) (stored, error) {
	if len(b) == 0 || b[0] != responseFormat {
		return stored{}, errStored
	}
	// Read twice, first to see how much there is: then all names and values are
	// cut from one text, and all values stand in one slice.
	d := decoder{b: b, at: 1}
	s := d.read(room)
	if d.bad || d.at < len(b) || s.status < 101 {
		return stored{}, errStored
	}
	d = decoder{b: b, at: 1, text: string(b[:len(b)-len(s.body)]), values: make([]string, 0, d.found+spare)}
	s = d.read(room)
	s.spare = d.values[d.found : d.found+spare]
	return s, nil
}

// decoder reads numbers and texts; after a fault it reads nothing.
type decoder struct {
	b     []byte
	at    int
	bad   bool
	found int // values so far
	// text is b as far as names and values go; empty while they are only
	// counted. values are those cut from it.
	text   string
	values []string
}

func (d *decoder) read(room []field) stored {
	s := stored{status: int(d.number(999))}
	n := d.count()
	s.fields = slices.Grow(room[:0], n)
	for range n {
		s.fields = append(s.fields, d.field())
	}
	if n = d.count(); n > 0 {
		s.trailers = make([]trailer, n)
	}
	for i := range s.trailers {
		s.trailers[i].announced = d.flag()
		s.trailers[i].field = d.field()
	}
	s.body = d.bytes()
	return s
}

func (d *decoder) number(limit uint64) uint64 {
	v, n := binary.Uvarint(d.b[d.at:])
	if d.bad || n <= 0 || v > limit || n > 1 && d.b[d.at+n-1] == 0 { // a padded number is not ours
		d.bad = true
		return 0
	}
	d.at += n
	return v
}

// left is how many bytes there still are.
func (d *decoder) left() uint64 { return uint64(len(d.b) - d.at) }

// count is a number of things that take at least two bytes each.
func (d *decoder) count() int { return int(d.number(d.left() / 2)) }

func (d *decoder) flag() bool { return d.number(1) == 1 }

func (d *decoder) bytes() []byte {
	n := d.number(d.left())
	if n > d.left() {
		d.bad = true
		return nil
	}
	from := d.at
	d.at += int(n)
	return d.b[from:d.at:d.at]
}

func (d *decoder) string() string {
	n := len(d.bytes())
	if d.text == "" {
		return ""
	}
	return d.text[d.at-n : d.at]
}

func (d *decoder) field() field {
	f := field{name: d.string()}
	n := int(d.number(d.left())) // a value takes at least the byte of its length
	d.found += n
	from := len(d.values)
	for range n {
		if v := d.string(); d.text != "" {
			d.values = append(d.values, v)
		}
	}
	if to := len(d.values); to > from {
		f.values = d.values[from:to:to]
	}
	return f
}

// kept is the answer in the recorder as it is to be stored. outer holds the
// fields that were there before the handler: those that it left alone belong to
// whoever set them, and are set anew with every answer.
func (rec *recorder) kept(outer http.Header) []byte {
	var room [len(rec.inline)]field
	s := stored{status: rec.status, body: rec.body, trailers: rec.trailers(), fields: room[:0]}
	hop := map[string]bool(nil)
	for _, f := range rec.fields {
		if http.CanonicalHeaderKey(f.name) == "Connection" {
			tokens(f.values, func(name string) bool {
				if hop == nil {
					hop = map[string]bool{}
				}
				hop[textproto.CanonicalMIMEHeaderKey(name)] = true
				return true
			})
		}
	}
	for _, f := range rec.fields {
		name := http.CanonicalHeaderKey(f.name)
		if unstored[name] || hop[name] {
			continue
		}
		if v, ok := outer[f.name]; ok && slices.Equal(v, f.values) {
			continue
		}
		s.fields = append(s.fields, f)
	}
	return s.encode()
}

// trailers are the fields that the handler set for after the body, as net/http
// understands them: announced in the Trailer field, or marked by a prefix.
func (rec *recorder) trailers() []trailer {
	var out []trailer
	add := func(key, name string, announced bool) {
		name = http.CanonicalHeaderKey(name)
		if values := rec.header[key]; len(values) > 0 && !unstored[name] && !ours[name] {
			out = append(out, trailer{field{name, validValues(values)}, announced})
		}
	}
	for _, f := range rec.fields {
		if http.CanonicalHeaderKey(f.name) == "Trailer" {
			tokens(f.values, func(name string) bool {
				name = http.CanonicalHeaderKey(name)
				add(name, name, true)
				return true
			})
		}
	}
	for key := range rec.header {
		if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok {
			add(key, name, false)
		}
	}
	if len(out) > 1 {
		slices.SortStableFunc(out, func(a, b trailer) int { return strings.Compare(a.name, b.name) })
	}
	return out
}

// setTrailers hands the trailers to the server once the body is written.
func setTrailers(h http.Header, trailers []trailer) {
	for _, t := range trailers {
		if t.announced {
			h[t.name] = t.values
		} else {
			h[http.TrailerPrefix+t.name] = t.values
		}
	}
}
