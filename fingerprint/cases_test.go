package fingerprint_test

import (
	"bytes"
	"errors"
	"fmt"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

func TestC16MemberOrderAndWhiteSpace(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	groups(t, r, bodies(jsonType,
		[]string{
			`{"name":"J","addr":{"s":"5th","n":123}}`,
			`{"addr":{"n":123,"s":"5th"},"name":"J"}`,
			" {\t\"addr\" : {\r\n\"n\":123, \"s\":\"5th\"} ,\"name\":\"J\"}\n",
		},
		[]string{`{"a":[1,2]}`, `{ "a" : [ 1 , 2 ] }`},
		[]string{`{"a":[2,1]}`},
		[]string{`{"a":[12]}`},
	)...)
	// Vendor types with +json are JSON; other types are bytes.
	groups(t, r, bodies("application/merge-patch+json", []string{`{"a":1,"b":2}`, `{"b":2,"a":1}`})...)
	groups(t, r, bodies("text/plain", []string{`{"a":1,"b":2}`}, []string{`{"b":2,"a":1}`})...)
}

func TestC17LargeIntegers(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	groups(t, r, bodies(jsonType,
		[]string{`{"id":9007199254740992}`},
		[]string{`{"id":9007199254740993}`, `{"id":9007199254740993.0}`},
		[]string{`{"id":100000000000000000000001}`},
		[]string{`{"id":100000000000000000000000}`, `{"id":1e23}`, `{"id":0.1E24}`},
		[]string{`{"id":0.1}`},
		[]string{`{"id":0.1000000000000000055511151231257827}`},
		[]string{`{"id":0.30000000000000004}`},
		[]string{`{"id":0.3}`},
	)...)
}

func TestC18NumbersSpelledDifferently(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	groups(t, r, bodies(jsonType,
		[]string{`{"a":1}`, `{"a":1.0}`, `{"a":1e0}`, `{"a":10e-1}`, `{"a":1E-0}`, `{"a":0.01e2}`, `{"a":1.000e+000}`},
		[]string{`{"a":-1}`, `{"a":-1.0}`, `{"a":-0.1e1}`},
		[]string{`{"a":100}`, `{"a":1e2}`, `{"a":1E+2}`, `{"a":100.00}`, `{"a":10000e-2}`},
		[]string{`{"a":0}`, `{"a":-0}`, `{"a":0.0}`, `{"a":0e5}`, `{"a":-0.000E-7}`, `{"a":0e99999999999999999999}`},
		[]string{`{"a":10}`}, []string{`{"a":1000}`}, []string{`{"a":0.1}`}, []string{`{"a":1.05}`},
		[]string{`{"a":105}`}, []string{`{"a":15}`}, []string{`{"a":1e-2}`, `{"a":0.01}`},
		[]string{`{"a":"1"}`}, []string{`{"a":true}`}, []string{`{"a":[1]}`},
		[]string{`{"a":null}`}, []string{`{}`},
		[]string{`{"a":"1.0"}`}, []string{`{"1.0":1}`}, []string{`{"1":1}`},
		[]string{`{"a":1e400}`, `{"a":10E399}`}, []string{`{"a":1e401}`}, []string{`{"a":-1e400}`},
		[]string{`{"a":1e999999999}`, `{"a":0.1e1000000000}`}, []string{`{"a":1e-999999999}`},
		[]string{`{"a":1e999999999999999999999999}`}, []string{`{"a":1e999999999999999999999998}`},
	)...)
}

func TestC18HostileNumbersCostLittle(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	zeros := strings.Repeat("0", 1<<20)
	begin := time.Now()
	groups(t, r, bodies(jsonType,
		[]string{`{"a":0.` + zeros + `1}`, fmt.Sprintf(`{"a":1e-%d}`, len(zeros)+1), `{"a":0.` + zeros + `1000}`},
		[]string{`{"a":1` + zeros + `}`, fmt.Sprintf(`{"a":1e%d}`, len(zeros))},
		[]string{`{"a":1e` + zeros + `}`, `{"a":1}`},
		[]string{`{"a":1e` + strings.Repeat("9", 1<<20) + `}`},
		[]string{`{"a":[` + strings.Repeat("1e999999999,", 1<<16) + `1]}`},
	)...)
	// big.Rat needs 0.12 s for 1e1000000 alone; 16 MiB of text must not.
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("hostile numbers took %v", d)
	}
}

func TestC19TextThatCollapses(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	groups(t, r, bodies(jsonType,
		[]string{"{\"a\":\"\xff\"}"}, []string{"{\"a\":\"\xfe\"}"},
		[]string{`{"a":"\ud800"}`}, []string{`{"a":"\udbff"}`},
		[]string{`{"a":"\ude00\ud83d"}`}, []string{`{"a":"\ufffd\ufffd"}`}, []string{`{"a":"\ufffd"}`},
		[]string{"{\"a\":\"\u00e9\"}", `{"a":"\u00e9"}`, `{"a":"\u00E9"}`, `{"\u0061":"\u00e9"}`},
		[]string{"{\"a\":\"e\u0301\"}"}, // NFD
		[]string{`{"a":1`}, []string{`{"a":2`},
		[]string{`{"a":"\/<>&\u2028"}`, "{\"a\":\"/\\u003c>&\u2028\"}"},
		[]string{`{"a":"\ud83d\ude00"}`, "{\"a\":\"\U0001f600\"}"},
		[]string{"\ufeff{\"a\":1}"}, []string{`{"a":1}`}, []string{`{"a":1}{}`},
		[]string{`{"a":"\\u0041"}`}, []string{`{"a":"A"}`, `{"a":"\u0041"}`},
	)...)
}

// multipartBody writes parts of name, filename, content type and content.
func multipartBody(t testing.TB, parts ...[4]string) (string, string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		h := textproto.MIMEHeader{}
		d := fmt.Sprintf(`form-data; name="%s"`, p[0])
		if p[1] != "" {
			d += fmt.Sprintf(`; filename="%s"`, p[1])
		}
		h.Set("Content-Disposition", d)
		if p[2] != "" {
			h.Set("Content-Type", p[2])
		}
		pw, err := w.CreatePart(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pw.Write([]byte(p[3])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.String()
}

func TestC21MultipartBoundary(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	form := func(parts ...[4]string) *fingerprint.Request { return post(multipartBody(t, parts...)) }
	amount := func(n string) [4]string { return [4]string{"amount", "", "", n} }
	file := [4]string{"f", "a.txt", "text/plain", "hello\r\n--not a boundary\r\n"}
	edit := func(i int, s string) [4]string { p := file; p[i] = s; return p }

	quoted := post(`Multipart/Form-Data; boundary="b 1"`, "--b 1\r\ncontent-disposition: form-data; filename=a.txt; name=f\r\nContent-type: Text/Plain;charset=UTF-8\r\n\r\nhello\r\n--not a boundary\r\n\r\n--b 1--")
	groups(t, r,
		[]*fingerprint.Request{form(amount("10"), file), form(amount("10"), file)},
		[]*fingerprint.Request{form(amount("11"), file)},
		[]*fingerprint.Request{form(file, amount("10"))},
		[]*fingerprint.Request{form(amount("10"), edit(0, "g"))},
		[]*fingerprint.Request{form(amount("10"), edit(1, "b.txt"))},
		[]*fingerprint.Request{form(amount("10"), edit(1, ""))},
		[]*fingerprint.Request{form(amount("10"), edit(2, "text/html"))},
		[]*fingerprint.Request{form(amount("10"), edit(2, ""))},
		[]*fingerprint.Request{form(amount("10"), edit(3, "hellp"))},
		[]*fingerprint.Request{form(amount("10"), file, file)},
		[]*fingerprint.Request{form(file), quoted},
		[]*fingerprint.Request{form(edit(1, "a1")), form(edit(1, "a1"))},
		[]*fingerprint.Request{form()},
	)
}

func TestC21UnparseableMultipartCountsAsSent(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	const part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n"
	const mt = "multipart/form-data; boundary=b"
	if got := tagOf(t, r, post(mt, part+"--b--\r\n")); got != fingerprint.TagMultipartEnd {
		t.Fatalf("the sound body ends in %s", got)
	}
	raw := []*fingerprint.Request{
		post(mt, part), // truncated
		post(mt, part+"--b--\r\nepilogue"),
		post(mt, part+"--b--\r\n"+part+"--b--\r\n"), // hides parts behind the end
		post(mt, "preamble\r\n"+part+"--b--\r\n"),
		post("multipart/form-data; boundary=c", part+"--b--\r\n"),
		post("multipart/form-data", part+"--b--\r\n"),
		post(mt, "--b\r\nno header"),
		post(mt, "--b\r\nbroken header\r\n\r\n1\r\n--b--\r\n"),
		post("multipart/form-data; boundary="+strings.Repeat("b", 71), strings.ReplaceAll(part+"--b--\r\n", "--b", "--"+strings.Repeat("b", 71))),
		post(mt, strings.Repeat("--b\r\n\r\n\r\n", 10_001)+"--b--\r\n"),
	}
	all := [][]*fingerprint.Request{{post(mt, part+"--b--\r\n")}}
	for _, req := range raw {
		if got := tagOf(t, r, req); got != fingerprint.TagMultipartRaw {
			t.Errorf("%q ends in %s, not raw", show(req), got)
		}
		all = append(all, []*fingerprint.Request{req})
	}
	groups(t, r, all...)
}

func TestC23CompressedBody(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{MaxBody: 1000})
	plain := []byte(`{"amount":100,"to":"alice","memo":"` + strings.Repeat("x", 200) + `"}`)
	coded := func(coding string, body []byte) *fingerprint.Request {
		req := post(jsonType, string(body))
		req.Header.Set("Content-Encoding", coding)
		return req
	}
	a, b := zip(t, 1, "", plain), zip(t, 9, "body.json", plain)
	if bytes.Equal(a, b) {
		t.Fatal("the two compressions are equal; the test shows nothing")
	}
	spaced := bytes.ReplaceAll(plain, []byte(","), []byte(" , "))
	other := bytes.Replace(plain, []byte("100"), []byte("101"), 1)
	corrupt := bytes.Clone(a)
	corrupt[len(corrupt)-5] ^= 1 // the checksum
	groups(t, r,
		[]*fingerprint.Request{
			post(jsonType, string(plain)), coded("gzip", a), coded("gzip", b), coded("GZIP", b), coded("x-gzip", b),
			coded("identity", plain), coded("", plain), coded("gzip", zip(t, 5, "", spaced)),
			coded("gzip", append(zip(t, 5, "", plain[:40]), zip(t, 5, "", plain[40:])...)), // two members
		},
		[]*fingerprint.Request{coded("gzip", zip(t, 1, "", other)), post(jsonType, string(other))},
		[]*fingerprint.Request{coded("br", a), coded("BR", a)},
		[]*fingerprint.Request{coded("zstd", a)},
		[]*fingerprint.Request{coded("gzip, br", a)},
		[]*fingerprint.Request{coded("br, gzip", a)},
		[]*fingerprint.Request{coded("gzip", corrupt)},
		[]*fingerprint.Request{coded("gzip", a[:len(a)-9])},
		[]*fingerprint.Request{coded("gzip", append(bytes.Clone(a), "tail"...))},
		[]*fingerprint.Request{coded("gzip", plain)},
		[]*fingerprint.Request{post("", string(plain))},
		[]*fingerprint.Request{post(jsonType, ""), coded("gzip", nil), coded("gzip", zip(t, 1, "", nil)), coded("br", nil)},
	)
}

func TestC23GzipBomb(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{MaxBody: 1000})
	for _, tt := range []struct {
		size int
		want error
	}{{999, nil}, {1000, nil}, {1001, fingerprint.ErrTooLarge}, {8 << 20, fingerprint.ErrTooLarge}} {
		req := post(jsonType, string(zip(t, 9, "", make([]byte, tt.size))))
		req.Header.Set("Content-Encoding", "gzip")
		if _, err := r.Sum(1, req); !errors.Is(err, tt.want) {
			t.Errorf("%d bytes decoded: error %v, want %v", tt.size, err, tt.want)
		}
		if _, err := r.Explain(1, req); !errors.Is(err, tt.want) {
			t.Errorf("%d bytes decoded: Explain's error %v, want %v", tt.size, err, tt.want)
		}
	}
	// The rule works on after a refusal, and the default limit is 1 MiB.
	sum(t, r, post(jsonType, `{}`))
	r = compile(t, policy.Fingerprint{}, fingerprint.Options{})
	req := post(jsonType, string(zip(t, 9, "", make([]byte, fingerprint.DefaultMaxBody))))
	req.Header.Set("Content-Encoding", "gzip")
	sum(t, r, req)
	req.Body = zip(t, 9, "", make([]byte, fingerprint.DefaultMaxBody+1))
	if _, err := r.Sum(1, req); !errors.Is(err, fingerprint.ErrTooLarge) {
		t.Errorf("a byte over the default limit: error %v", err)
	}
}

func TestC60QueryString(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	// More pairs than an insertion sort takes: it would be stable by chance.
	var many, others []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("%c=%d", 'a'+i%3, i))
		others = append(others, fmt.Sprintf("%c=%d", 'a'+i/20, i%20*3+i/20))
	}
	swapped := slices.Clone(many)
	swapped[30], swapped[33] = swapped[33], swapped[30]
	var all [][]*fingerprint.Request
	for _, list := range [][]string{
		{strings.Join(many, "&"), strings.Join(others, "&")},
		{strings.Join(swapped, "&")},
		{"to=alice"},
		{"to=mallory"},
		{""},
		{"a=1&b=2", "b=2&a=1", "%61=1&b=%32"},
		{"p=%2F", "p=/", "p=%2f"},
		{"n=1+2", "n=1%202", "%6e=1%202"},
		{"n=1%2B2"},
		{"n=12"},
		{"a=1&a=2", "%61=1&a=2"},
		{"a=2&a=1"}, // U10
		{"a=1"},
		{"a=1&a=1"},
		{"a=1&"},
		{"a=1&&a=1"},
		{"a"},
		{"a="},
		{"a=&a"},
		{"a&a="},
		{"=a"},
		{"="},
		{"&"},
		{"a=b=c", "a=b%3Dc"},
		{"a%3Db=c"},
		{"a=1&c=3&a=2", "c=3&a=1&a=2", "a=1&a=2&c=3"},
		{"a=1;b=2"},
		{"a=1;b=3"},
		{"a=1%3Bb=2"}, // U07
		{"a=%zz"},
		{"a=%zy"},
		{"a=%"},
		{"a=%4"},
		{"a=%25"},
		{"a=%2525"}, // U08
		{"q=%C3%A9", "q=%c3%a9", "q=\u00e9"},
		{"q=%FF"},
		{"q=%EF%BF%BD"},
	} {
		var g []*fingerprint.Request
		for _, q := range list {
			req := post(jsonType, `{"amount":100}`)
			req.RawQuery = q
			g = append(g, req)
		}
		all = append(all, g)
	}
	groups(t, r, all...)
}

func TestC66VolatileMembers(t *testing.T) {
	one := []string{
		`{"jsonrpc":"2.0","id":1,"method":"pay","params":{"amount":10}}`,
		`{"jsonrpc":"2.0","id":2,"method":"pay","params":{"amount":10}}`,
	}
	other := []string{`{"jsonrpc":"2.0","id":2,"method":"pay","params":{"amount":11}}`}
	groups(t, compile(t, policy.Fingerprint{Ignore: []string{"$.id", "$.sent_at"}}, fingerprint.Options{}),
		bodies(jsonType, one, other,
			[]string{`{"amount":10,"sent_at":"10:00:00"}`, `{"amount":10,"sent_at":"10:00:07"}`, `{"amount":10}`},
			[]string{`{"amount":10,"x":{"sent_at":1}}`}, []string{`{"amount":10,"x":{"sent_at":2}}`},
		)...)
	groups(t, compile(t, policy.Fingerprint{}, fingerprint.Options{}),
		bodies(jsonType, one[:1], one[1:], other)...)

	// Header fields do not count unless the policy names them (H16 among them).
	volatile := func(n string) *fingerprint.Request {
		req := post(jsonType, `{"amount":10}`)
		for _, h := range []string{"Authorization", "Traceparent", "User-Agent", "Date", "Accept-Encoding", "Idempotency-Key", "Content-Length"} {
			req.Header.Set(h, n)
		}
		return req
	}
	groups(t, compile(t, policy.Fingerprint{}, fingerprint.Options{}),
		[]*fingerprint.Request{volatile("1"), volatile("2"), post(jsonType, `{"amount":10}`)})
}

func TestC68UnknownVersion(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	req := post(jsonType, `{}`)
	for _, v := range []uint8{0, fingerprint.Current + 1, 255} {
		fp, err := r.Sum(v, req)
		if !errors.Is(err, fingerprint.ErrVersion) {
			t.Errorf("version %d: error %v, want ErrVersion", v, err)
		}
		if fp.Sum != [16]byte{} {
			t.Errorf("version %d: a sum came with the error", v)
		}
		if _, err := r.Explain(v, req); !errors.Is(err, fingerprint.ErrVersion) {
			t.Errorf("version %d: Explain's error %v, want ErrVersion", v, err)
		}
	}
	if fp := sum(t, r, req); fp.Version != fingerprint.Current {
		t.Errorf("the fingerprint says version %d", fp.Version)
	}
	// What the query decides is in version 1 already.
	dry := post(jsonType, `{}`)
	dry.RawQuery = "dry=1"
	groups(t, r, []*fingerprint.Request{req}, []*fingerprint.Request{dry})
}

func TestC95OneKeyTwoOrders(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	groups(t, r, bodies(jsonType, []string{`{"order":1}`}, []string{`{"order":2}`})...)
}
