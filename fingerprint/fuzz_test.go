package fingerprint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

// FuzzFingerprint looks for panics, for slow inputs, for forms and sums that
// disagree, and, where the body is JSON, for respellings that change the sum
// and changes that do not.
func FuzzFingerprint(f *testing.F) {
	mt, parts := multipartBody(f, [4]string{"a", "", "", "1"}, [4]string{"f", "x.txt", "text/plain", "hello"})
	for _, s := range []struct{ mediaType, coding, path, query, body string }{
		{jsonType, "", "/pay", "a=1&b", `{"b":1.50,"a":[1,"é",null,{"t":true}]}`},
		{jsonType, "", "/", "", `{"a":1,"a":2}`},
		{jsonType, "", "/%2F%zz", "a=%zz", `[1e400,-0,1E+2,0.10,1e-99999999999999999999]`},
		{jsonType, "", "", ";", `"\ud800"`},
		{jsonType, "gzip", "/", "", string(zip(f, 9, "n", []byte(`{"a":1}`)))},
		{jsonType, "gzip", "/", "", string(zip(f, 9, "", make([]byte, 1<<17)))},
		{formType, "", "/", "&=&", "a=1&a=2&b=%41+"},
		{mt, "", "/", "", parts},
		{"multipart/form-data; boundary=b", "", "/", "", "--b\n\n--b--"},
		{"text/plain; a=\"\\b\"; c*0=d", "br, gzip", "/a/../b", "?", "\x00\xff"},
		{jsonType, "", "/", "", strings.Repeat("[", 300)},
	} {
		f.Add(s.mediaType, s.coding, s.path, s.query, []byte(s.body))
	}
	o := fingerprint.Options{MaxBody: 1 << 16}
	r := compile(f, policy.Fingerprint{Headers: []string{"Content-Encoding"}}, o)
	reducing := compile(f, policy.Fingerprint{
		Fields: []string{"$.a", "$..t", "$[*]"}, Ignore: []string{"$.a[0]", "$..id"},
		Defaults: []policy.Default{{Path: "$.a.b", Value: "1"}},
	}, o)
	f.Fuzz(func(t *testing.T, mediaType, coding, path, query string, body []byte) {
		begin := time.Now()
		req := &fingerprint.Request{Method: "POST", Path: path, RawQuery: query, Body: body, Header: http.Header{"Content-Type": {mediaType}}}
		if coding != "" {
			req.Header.Set("Content-Encoding", coding)
		}
		before := bytes.Clone(body)
		fp, err := r.Sum(1, req)
		if err != nil {
			if !errors.Is(err, fingerprint.ErrTooLarge) || coding == "" {
				t.Fatal(err)
			}
			return
		}
		partsOf := func(req *fingerprint.Request) []fingerprint.Part {
			parts, err := r.Explain(1, req)
			if err != nil {
				t.Fatal(err)
			}
			return parts
		}
		parts := partsOf(req)
		if sum(t, r, req) != fp || !reflect.DeepEqual(parts, partsOf(req)) {
			t.Error("one request, two forms")
		}
		if first, second := sum(t, reducing, req), sum(t, reducing, req); first != second {
			t.Error("one request, two reduced sums")
		}
		if !bytes.Equal(before, body) {
			t.Error("the body was written to")
		}
		longer := *req
		longer.Body = append(bytes.Clone(body), 'x')
		if fp2, err := r.Sum(1, &longer); err == nil && (fp2 == fp) != reflect.DeepEqual(parts, partsOf(&longer)) {
			t.Error("sums and forms disagree")
		}
		if last := parts[len(parts)-1]; last.Tag == fingerprint.TagJSON && coding == "" {
			checkJSON(t, r, reducing, req, last.Text)
		}
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// checkJSON respells a JSON body, and then changes a scalar in it.
func checkJSON(t *testing.T, r, reducing *fingerprint.Rule, req *fingerprint.Request, canon []byte) {
	same := *req
	want, reduced := sum(t, r, req), sum(t, reducing, req)
	again := func(what string, body []byte) {
		same.Body = body
		if sum(t, r, &same) != want || sum(t, reducing, &same) != reduced {
			t.Errorf("%s changes the sum of %q: %q", what, req.Body, body)
			explain(t, r, req, &same)
			explain(t, reducing, req, &same)
		}
	}
	again("the canonical form", canon)
	var spaced bytes.Buffer
	if err := json.Indent(&spaced, req.Body, " ", "\t"); err != nil {
		t.Fatal(err)
	}
	again("white space", spaced.Bytes())

	d := json.NewDecoder(bytes.NewReader(req.Body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	again("another order", appendReversed(nil, v))
	changed, ok := changeScalar(v)
	if !ok {
		return
	}
	same.Body = appendReversed(nil, changed)
	if sum(t, r, &same) == want {
		t.Errorf("a scalar changed, the sum did not: %q, %q", req.Body, same.Body)
	}
}

// appendReversed writes a value with its members in descending order.
func appendReversed(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		var names []string
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		slices.Reverse(names)
		b = append(b, '{')
		for i, name := range names {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendReversed(b, name), ':')
			b = appendReversed(b, v[name])
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendReversed(b, e)
		}
		return append(b, ']')
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return append(b, text...)
}

// changeScalar changes the first scalar it meets, in place where it can.
func changeScalar(v any) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if changed, ok := changeScalar(member); ok {
				v[name] = changed
				return v, true
			}
		}
		return v, false
	case []any:
		for i, e := range v {
			if changed, ok := changeScalar(e); ok {
				v[i] = changed
				return v, true
			}
		}
		return v, false
	case json.Number:
		if s := v.String(); s[0] == '-' {
			return json.Number("1" + s[1:]), true
		}
		return json.Number("-1" + v.String()), true
	case string:
		return v + "x", true
	case bool:
		return !v, true
	}
	return "null", true
}
