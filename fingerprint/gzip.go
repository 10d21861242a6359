package fingerprint

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"strings"
	"sync"
)

// contentCodings lists the codings of a body in lower case, in the order they
// were applied (RFC 9110 §8.4). Identity says nothing, so it is left out.
func contentCodings(lines []string) []string {
	var codings []string
	for _, line := range lines {
		for c := range strings.SplitSeq(line, ",") {
			c = strings.ToLower(strings.Trim(c, " \t"))
			switch c {
			case "", "identity":
				continue
			case "x-gzip": // RFC 9110 §8.4.1.3
				c = "gzip"
			}
			codings = append(codings, c)
		}
	}
	return codings
}

// inflaters keeps decoders between requests: each is 40 KB of tables.
var inflaters = sync.Pool{New: func() any { return new(gzip.Reader) }}

// gunzip undoes gzip. It returns nil where the body is not whole and sound
// gzip, and [ErrTooLarge] where the result is longer than limit; it never
// holds more than that. The result is valid until the form is reset.
func (f *form) gunzip(body []byte, limit int64) ([]byte, error) {
	zr := inflaters.Get().(*gzip.Reader)
	defer inflaters.Put(zr)
	if err := zr.Reset(bytes.NewReader(body)); err != nil {
		return nil, nil
	}
	if limit < math.MaxInt64 {
		limit++ // one byte more shows that there is more
	}
	n, err := f.plain.ReadFrom(io.LimitReader(zr, limit))
	if n == limit {
		return nil, ErrTooLarge
	}
	if err != nil {
		return nil, nil
	}
	if n == 0 {
		return []byte{}, nil
	}
	return f.plain.Bytes(), nil
}
