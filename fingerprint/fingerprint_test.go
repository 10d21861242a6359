package fingerprint_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

const (
	jsonType = "application/json"
	formType = "application/x-www-form-urlencoded"
)

func compile(t testing.TB, p policy.Fingerprint, o fingerprint.Options) *fingerprint.Rule {
	t.Helper()
	r, err := fingerprint.Compile(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sum(t testing.TB, r *fingerprint.Rule, req *fingerprint.Request) counterfoil.Fingerprint {
	t.Helper()
	fp, err := r.Sum(fingerprint.Current, req)
	if err != nil {
		t.Fatal(err)
	}
	return fp
}

// post is a request with a body of one media type; "" sends none.
func post(mediaType, body string) *fingerprint.Request {
	req := &fingerprint.Request{Method: "POST", Path: "/pay", Header: http.Header{}, Body: []byte(body)}
	if mediaType != "" {
		req.Header.Set("Content-Type", mediaType)
	}
	return req
}

// groups checks that requests within a group are one request, and that those
// of different groups are not.
func groups(t *testing.T, r *fingerprint.Rule, all ...[]*fingerprint.Request) {
	t.Helper()
	seen := map[counterfoil.Fingerprint]int{}
	for g, requests := range all {
		want := sum(t, r, requests[0])
		if other, ok := seen[want]; ok {
			t.Errorf("group %d (%s) has the fingerprint of group %d (%s)", g, show(requests[0]), other, show(all[other][0]))
		}
		seen[want] = g
		for _, req := range requests[1:] {
			if got := sum(t, r, req); got != want {
				t.Errorf("group %d: %s and %s differ", g, show(requests[0]), show(req))
				explain(t, r, requests[0], req)
			}
		}
	}
}

func show(req *fingerprint.Request) string {
	body := req.Body
	if len(body) > 80 {
		body = body[:80]
	}
	return req.Method + " " + req.Path + "?" + req.RawQuery + " " + string(body)
}

func explain(t *testing.T, r *fingerprint.Rule, requests ...*fingerprint.Request) {
	t.Helper()
	for _, req := range requests {
		parts, _ := r.Explain(fingerprint.Current, req)
		for _, p := range parts {
			text := p.Text
			if len(text) > 200 {
				text = text[:200]
			}
			t.Logf("  %s %q", p.Tag, text)
		}
		t.Log("  --")
	}
}

// bodies turns lists of bodies of one media type into groups.
func bodies(mediaType string, all ...[]string) [][]*fingerprint.Request {
	var out [][]*fingerprint.Request
	for _, list := range all {
		var g []*fingerprint.Request
		for _, b := range list {
			g = append(g, post(mediaType, b))
		}
		out = append(out, g)
	}
	return out
}

// tagOf is the tag of the last part: the form that the body took.
func tagOf(t *testing.T, r *fingerprint.Rule, req *fingerprint.Request) fingerprint.Tag {
	t.Helper()
	parts, err := r.Explain(fingerprint.Current, req)
	if err != nil {
		t.Fatal(err)
	}
	return parts[len(parts)-1].Tag
}

func zip(t testing.TB, level int, name string, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	w.Name = name
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
