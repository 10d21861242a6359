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

// decode reads what encode wrote. The body is part of b. Bytes that encode
// never writes are refused: they are damage, or another version.
func decode(b []byte) (*stored, error) {
	if len(b) == 0 || b[0] != responseFormat {
		return nil, errStored
	}
	d := decoder{b: b[1:]}
	s := &stored{status: int(d.number(999))}
	if n := d.count(); n > 0 {
		s.fields = make([]field, n)
	}
	for i := range s.fields {
		s.fields[i] = d.field()
	}
	if n := d.count(); n > 0 {
		s.trailers = make([]trailer, n)
	}
	for i := range s.trailers {
		s.trailers[i].announced = d.flag()
		s.trailers[i].field = d.field()
	}
	s.body = d.bytes()
	if d.bad || len(d.b) > 0 || s.status < 101 {
		return nil, errStored
	}
	return s, nil
}

// decoder reads numbers and texts; after a fault it reads nothing.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) number(limit uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if d.bad || n <= 0 || v > limit || n > 1 && d.b[n-1] == 0 { // a padded number is not ours
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count is a number of things that take at least two bytes each.
func (d *decoder) count() int { return int(d.number(uint64(len(d.b)) / 2)) }

func (d *decoder) flag() bool { return d.number(1) == 1 }

func (d *decoder) bytes() []byte {
	n := d.number(uint64(len(d.b)))
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) field() field {
	f := field{name: string(d.bytes())}
	// A value takes at least the byte of its length.
	if n := int(d.number(uint64(len(d.b)))); n > 0 {
		f.values = make([]string, n)
		for i := range f.values {
			f.values[i] = string(d.bytes())
		}
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
