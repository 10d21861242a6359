package fingerprint

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"mime/multipart"
	"net/textproto"
	"slices"
)

const (
	// maxParts is the greatest number of parts that is taken apart; the bytes of
	// a longer body count as sent.
	maxParts = 10_000
	// maxBoundary is the longest boundary of RFC 2046 §5.1.1, in bytes.
	maxBoundary = 70
)

// formPart is one part of a multipart body.
type formPart struct {
	header textproto.MIMEHeader
	body   []byte
}

// multipart writes the parts in order, so that the boundary, new on every
// attempt, does not count (cases.md C21). A body that does not parse counts as
// sent, and then its boundary counts too.
func (f *form) multipart(boundary string, body []byte) {
	parts, ok := parseMultipart(boundary, body)
	if !ok {
		f.partString(TagMultipartBoundary, boundary)
		f.part(TagMultipartRaw, body)
		return
	}
	for _, p := range parts {
		f.part(TagPart, nil)
		for _, name := range slices.Sorted(maps.Keys(p.header)) {
			f.partHeader(name, p.header[name])
		}
		f.part(TagPartBody, p.body)
	}
	f.part(TagMultipartEnd, nil)
}

// partHeader writes one header field of a part. Content-Type counts as that of
// a request does, Content-Disposition (which holds name and filename) without
// the order of its parameters, all else as sent.
func (f *form) partHeader(name string, lines []string) {
	switch {
	case name == "Content-Type":
		f.media(parseMedia(lines))
		return
	case name == "Content-Disposition" && len(lines) == 1:
		if typ, params, ok := parseParams(lines[0]); ok {
			f.partString(TagPartDisposition, typ)
			f.params(params)
			return
		}
	}
	f.partString(TagPartHeaderName, name)
	for _, v := range lines {
		f.partString(TagPartHeaderValue, v)
	}
}

// parseMultipart takes a body apart. It refuses what package mime/multipart
// would skip in silence: text before the first boundary and after the last.
func parseMultipart(boundary string, body []byte) ([]formPart, bool) {
	if boundary == "" || len(boundary) > maxBoundary || !bytes.HasPrefix(body, []byte("--"+boundary)) {
		return nil, false
	}
	last := []byte("\n--" + boundary + "--")
	end := bytes.Index(body, last)
	if end < 0 || len(bytes.TrimLeft(body[end+len(last):], " \t\r\n")) > 0 {
		return nil, false
	}
	var parts []formPart
	for r := multipart.NewReader(bytes.NewReader(body), boundary); ; {
		// The raw part leaves quoted-printable alone: its spelling may matter.
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return parts, true
		}
		if err != nil || len(parts) == maxParts {
			return nil, false
		}
		content, err := io.ReadAll(p)
		if err != nil {
			return nil, false
		}
		parts = append(parts, formPart{header: p.Header, body: content})
	}
}
