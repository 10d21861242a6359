package fingerprint

import (
	"fmt"
	"net/http"

	"github.com/counterfoil/counterfoil"
)

// Current is the newest version of the rules. A new claim is made under it; a
// standing record is compared under its own version, with [Rule.Sum].
const Current uint8 = 1

// rulesV1 begins every form of version 1. It keeps these digests apart from
// all else that is keyed with the same secret.
const rulesV1 = "counterfoil fingerprint 1"

// Request is the part of an HTTP request that a fingerprint may see. The
// package reads it during a call only, and never changes it.
type Request struct {
	// Method is counted byte by byte, as sent.
	Method string
	// Path is the concrete path as sent, with its escapes, as from
	// url.URL.EscapedPath; never the pattern it matched.
	Path string
	// RawQuery is the query as sent, without the question mark.
	RawQuery string
	// Header holds the fields. Names are compared without regard to case.
	Header http.Header
	// Body is the body as received, within the door's limit. Nil and empty are
	// the same.
	Body []byte
}

// Sum is the fingerprint of a request under one version of the rules. The
// error wraps [ErrVersion] or [ErrTooLarge]; nothing else fails, since what
// has no canonical form is counted as the bytes that were sent.
func (r *Rule) Sum(version uint8, req *Request) (counterfoil.Fingerprint, error) {
	return r.sum(version, req, nil)
}

// Explain lists the parts that the fingerprint is made of, in order, for tests
// and for people who ask why two requests differ. The parts hold what the
// caller sent: they are secrets, never to be logged. Errors are those of
// [Rule.Sum].
func (r *Rule) Explain(version uint8, req *Request) ([]Part, error) {
	parts := []Part{}
	if _, err := r.sum(version, req, &parts); err != nil {
		return nil, err
	}
	return parts, nil
}

func (r *Rule) sum(version uint8, req *Request, parts *[]Part) (counterfoil.Fingerprint, error) {
	if version != 1 {
		return counterfoil.Fingerprint{}, fmt.Errorf("%w: %d; this program knows 1 to %d", ErrVersion, version, Current)
	}
	f := r.forms.Get().(*form)
	defer func() {
		f.reset()
		r.forms.Put(f)
	}()
	f.parts = parts

	f.partString(TagRules, rulesV1)
	f.partString(TagMethod, req.Method)
	f.path(req.Path)
	f.query(req.RawQuery)
	f.header(r.headers, req.Header)
	m := parseMedia(fieldLines(req.Header, "Content-Type"))
	f.media(m)
	if err := f.body(r, m, req); err != nil {
		return counterfoil.Fingerprint{}, err
	}
	return counterfoil.Fingerprint{Version: version, Sum: f.finish()}, nil
}

// body writes the body in the form of its media type, after its content coding
// is undone where that can be done.
func (f *form) body(r *Rule, m media, req *Request) error {
	body := req.Body
	if len(body) > 0 {
		codings := contentCodings(fieldLines(req.Header, "Content-Encoding"))
		if len(codings) == 1 && codings[0] == "gzip" {
			plain, err := f.gunzip(body, r.maxBody)
			if err != nil {
				return err
			}
			if plain != nil {
				body, codings = plain, nil
			}
		}
		if len(codings) > 0 {
			for _, c := range codings {
				f.partString(TagEncoding, c)
			}
			f.part(TagEncodingRaw, body)
			return nil
		}
	}
	switch {
	case len(body) == 0:
		f.part(TagEmpty, nil)
	case m.isJSON():
		f.json(r, body)
	case m.isForm():
		f.urlencoded(body)
	case m.isMultipart():
		f.multipart(m.boundary, body)
	default:
		f.part(TagRaw, body)
	}
	return nil
}
