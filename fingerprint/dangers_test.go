package fingerprint_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

func TestK17HeaderNameCase(t *testing.T) {
	r := compile(t, policy.Fingerprint{Headers: []string{"api-VERSION"}}, fingerprint.Options{})
	with := func(h http.Header) *fingerprint.Request {
		return &fingerprint.Request{Method: "POST", Path: "/", Header: h}
	}
	groups(t, r,
		[]*fingerprint.Request{with(http.Header{"Api-Version": {"1"}}), with(http.Header{"api-version": {"1"}}), with(http.Header{"API-VERSION": {"1"}})},
		[]*fingerprint.Request{with(http.Header{"Api-Version": {"2"}})},
		[]*fingerprint.Request{with(http.Header{"Api-Version": {"1", "2"}})},
		[]*fingerprint.Request{with(http.Header{"Api-Version": {"2", "1"}})},
		[]*fingerprint.Request{with(http.Header{"Api-Version": {"1, 2"}})},
		[]*fingerprint.Request{with(http.Header{"Api-Version": {""}})},
		[]*fingerprint.Request{with(http.Header{"Api-Version": {"", ""}})},
		[]*fingerprint.Request{with(nil), with(http.Header{"Api-Version": {}}), with(http.Header{"Other": {"1"}})},
	)
	// Spellings that only a map filled by hand can hold have an order too.
	both := with(http.Header{"api-version": {"1"}, "API-version": {"2"}, "API-VERSION": {"3"}})
	for range 50 {
		groups(t, r, []*fingerprint.Request{both, both})
	}
	// The order and the spelling in the policy do not count.
	a := compile(t, policy.Fingerprint{Headers: []string{"X-A", "X-B", "x-a"}}, fingerprint.Options{})
	b := compile(t, policy.Fingerprint{Headers: []string{"x-b", "X-A"}}, fingerprint.Options{})
	req := with(http.Header{"X-A": {"1"}, "X-B": {"2"}})
	if sum(t, a, req) != sum(t, b, req) {
		t.Error("the order of headers in the policy counts")
	}
	groups(t, a, []*fingerprint.Request{req}, []*fingerprint.Request{with(http.Header{"X-A": {"2"}, "X-B": {"1"}})})
}

func TestU09TooManyPairsCountAsSent(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	pairs := strings.Repeat("a=1&", 9_999)
	query := func(q string) *fingerprint.Request {
		return &fingerprint.Request{Method: "POST", Path: "/", RawQuery: q}
	}
	groups(t, r,
		[]*fingerprint.Request{query(pairs + "b=1"), query("b=1&" + strings.TrimSuffix(pairs, "&"))},
		[]*fingerprint.Request{query(pairs + "b=2")},
		[]*fingerprint.Request{query(pairs + "b=1&c=1")},
		[]*fingerprint.Request{query("c=1&" + pairs + "b=1")},
	)
	form := func(b string) *fingerprint.Request { return post(formType, b) }
	if got := tagOf(t, r, form(pairs+"a=1")); got != fingerprint.TagFormValue {
		t.Errorf("10,000 pairs end in %s", got)
	}
	if got := tagOf(t, r, form(pairs+"a=1&a=1")); got != fingerprint.TagFormRaw {
		t.Errorf("10,001 pairs end in %s", got)
	}
}

func TestPathSpelling(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	var all [][]*fingerprint.Request
	for _, list := range [][]string{
		{"/", ""},
		{"/a/b"},
		{"/a%2Fb", "/a%2fb"},
		{"/a%252Fb"},
		{"/a/b/"},
		{"//a/b"},
		{"/~u", "/%7Eu", "/%7eu"},
		{"/pay;to=a"},
		{"/pay%3Bto=a", "/pay%3bto=a"},
		{"/\u00e9", "/%C3%A9", "/%c3%a9"},
		{"/a b", "/a%20b"},
		{"/a+b"},
		{"/a%2Bb"},
		{"/a%zz"},
		{"/a%zy"},
		{"/a%"},
		{"/a%25"},
		{"/a/../b", "/a/%2e%2E/b"},
		{"/b"},
		{"/a%00"},
	} {
		var g []*fingerprint.Request
		for _, p := range list {
			g = append(g, &fingerprint.Request{Method: "POST", Path: p})
		}
		all = append(all, g)
	}
	groups(t, r, all...)
}

func TestB05FormPairs(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	groups(t, r, bodies(formType,
		[]string{"amount=10&to=a+b", "to=a%20b&amount=1%30"},
		[]string{"amount=11&to=a+b"},
		[]string{"a=1&a=2"}, []string{"a=2&a=1"}, []string{"a"}, []string{"a="},
		[]string{"a=1;b=2"}, []string{"a=%zz"}, []string{""},
	)...)
	// A form is not the query of the same text.
	query := post(formType, "")
	query.RawQuery = "a=1"
	groups(t, r, []*fingerprint.Request{query}, bodies(formType, []string{"a=1"})[0])
}

func TestB06JSONWithoutCanonicalForm(t *testing.T) {
	deep := func(n int, space string) string {
		return strings.Repeat("[", n) + space + strings.Repeat("]", n)
	}
	for _, p := range []policy.Fingerprint{
		{},
		{Fields: []string{"$.a"}, Ignore: []string{"$.b", "$..c"}, Defaults: []policy.Default{{Path: "$.d", Value: "1"}}},
	} {
		r := compile(t, p, fingerprint.Options{})
		var all [][]*fingerprint.Request
		for _, b := range []string{
			`{"a":1,"a":2}`, `{"a":2,"a":1}`, `{"a":1,"\u0061":1}`, `{"a":NaN}`, `{"a":Infinity}`, `{"a":01}`, `{"a":.5}`,
			`{"x":{"b":1,"b":1}}`, `{"a":'1'}`, `{"a":1,}`, `// x`, ` `, "\x00", "{\"a\":\"\t\"}",
			deep(257, ""), deep(257, " "), deep(10_000, ""), deep(10_000, " "), deep(100_000, ""),
			strings.Repeat(`{"a":`, 10_000) + `1` + strings.Repeat(`}`, 10_000),
			`{"a":1e9999999999999999999}`,
		} {
			req := post(jsonType, b)
			if got := tagOf(t, r, req); got != fingerprint.TagJSONRaw {
				t.Errorf("%q ends in %s, not raw", show(req), got)
			}
			all = append(all, []*fingerprint.Request{req})
		}
		groups(t, r, all...)
	}
	// Brackets that do not nest, or stand in a string, do not count as depth.
	flat, text := strings.Repeat(`{"x":[]},`, 1000), strings.Repeat(`\"[{`, 1000)
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	groups(t, r, bodies(jsonType,
		[]string{deep(256, ""), deep(256, " ")}, []string{deep(255, "")},
		[]string{`[` + flat + `1]`, `[` + flat + ` 1.0]`}, []string{`["` + text + `"]`, `["` + text + `" ]`},
	)...)
}

func TestB06NestedMembersOutOfOrder(t *testing.T) {
	// The canonicaliser moves members once for each level around them: without a
	// bound on depth this takes seconds, and an attacker chooses it.
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	for _, depth := range []int{256, 10_000} {
		body := strings.Repeat(`{"b":`, depth) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat(`,"a":0}`, depth)
		begin := time.Now()
		sum(t, r, post(jsonType, body))
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("depth %d took %v", depth, d)
		}
	}
}

func TestB07MultipartWithNewBoundary(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	body := func(b string) *fingerprint.Request {
		return post("multipart/mixed; boundary="+b, "--"+b+"\r\nContent-Type: application/json\r\n\r\n{}\r\n--"+b+"--\r\n")
	}
	groups(t, r, []*fingerprint.Request{body("x"), body("another-one")})
}

func TestB08NoBody(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	for _, mt := range []string{"", jsonType, formType, "text/plain", "multipart/form-data; boundary=b"} {
		absent, empty, zero := post(mt, ""), post(mt, ""), post(mt, "")
		absent.Body, empty.Body = nil, []byte{}
		zero.Header.Set("Content-Length", "0")
		groups(t, r, []*fingerprint.Request{absent, empty, zero}, []*fingerprint.Request{post(mt, " ")}, []*fingerprint.Request{post(mt, "\x00")})
	}
}

func TestB09LengthPrefixes(t *testing.T) {
	r := compile(t, policy.Fingerprint{Headers: []string{"X-A", "X-B"}}, fingerprint.Options{})
	req := func(method, path, query, a, b, body string) []*fingerprint.Request {
		return []*fingerprint.Request{{Method: method, Path: path, RawQuery: query, Header: http.Header{"X-A": {a}, "X-B": {b}}, Body: []byte(body)}}
	}
	groups(t, r,
		req("POST", "/a", "", "a:b", "c", ""), req("POST", "/a", "", "a", "b:c", ""),
		req("POST", "/a", "b=c", "", "", ""), req("POST", "/ab=c", "", "", "", ""),
		req("POST/", "a", "b=c", "", "", ""), req("POST", "/a", "", "", "", "b=c"),
		req("POST", "/a", "ab=c", "", "", ""), req("POST", "/a", "a=bc", "", "", ""),
		req("PUT", "/a", "", "", "", ""), req("post", "/a", "", "", "", ""),
	)
	// A body that spells out another request's parts is only a body.
	one := &fingerprint.Request{Method: "POST", Path: "/a", Body: []byte("x")}
	parts, err := r.Explain(1, one)
	if err != nil {
		t.Fatal(err)
	}
	var spelled []byte
	for _, p := range parts {
		spelled = append(append(spelled, byte(p.Tag), byte(len(p.Text))), p.Text...)
	}
	groups(t, r, []*fingerprint.Request{one}, req("POST", "/a", "", "", "", string(spelled)))
}

func TestH19MediaType(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	var all [][]*fingerprint.Request
	for _, list := range [][]string{
		{
			"application/json", "Application/JSON", "application/json; charset=utf-8", "application/json;charset=UTF-8",
			`application/json ; Charset="utf-8"`, "application/json;",
		},
		{"application/json; charset=utf8"},
		{"application/json; charset=iso-8859-1"},
		{"application/json; v=1; w=2", "application/json;w=2;V=\"1\"; charset=utf-8"},
		{"application/json; v=2; w=1"},
		{"application/json; v=1"},
		{"application/vnd.api+json"},
		{"text/plain", "text/plain; charset=utf-8"},
		{"application/octet-stream"},
		{"text/plain; boundary=a"},
		{"text/plain; boundary=b"},
		{`text/plain; x="a\b"`},
		{`text/plain; x="a\\b"`},
		{"text/plain; x*=utf-8''a"},
		{"text/plain; x=a"},
		{"not a type"},
		{"not a Type"},
		{";"},
		{""},
		{"application/json; v"},
		{"application/json, text/plain"},
	} {
		var g []*fingerprint.Request
		for _, mt := range list {
			req := post("", `{"a":1}`)
			req.Header["Content-Type"] = []string{mt}
			g = append(g, req)
		}
		all = append(all, g)
	}
	twice := post("", `{"a":1}`)
	twice.Header["Content-Type"] = []string{jsonType, jsonType}
	all = append(all, []*fingerprint.Request{twice}, []*fingerprint.Request{post("", `{"a":1}`)})
	groups(t, r, all...)

	// A charset that is not UTF-8 leaves the body as sent.
	for _, mt := range []string{jsonType, formType} {
		if got := tagOf(t, r, post(mt+"; charset=shift_jis", `a=1`)); got != fingerprint.TagRaw {
			t.Errorf("%s in Shift JIS ends in %s", mt, got)
		}
	}
}

func TestManyRequestsAtOnce(t *testing.T) {
	r := compile(t, policy.Fingerprint{Ignore: []string{"$.z"}}, fingerprint.Options{Secret: make([]byte, 32)})
	for g := range 8 {
		t.Run(fmt.Sprint(g), func(t *testing.T) {
			t.Parallel()
			want := sum(t, r, post(jsonType, fmt.Sprintf(`{"g":%d,"z":0}`, g)))
			for i := range 200 {
				if got := sum(t, r, post(jsonType, fmt.Sprintf(`{"z":%d,"g":%d.0}`, i, g))); got != want {
					t.Fatalf("round %d: %x, want %x", i, got, want)
				}
			}
		})
	}
}
