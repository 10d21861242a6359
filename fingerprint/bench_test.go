package fingerprint_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

// body200 is 200 bytes of JSON as a client writes it, members out of order.
const body200 = `{"amount":12550,"currency":"EUR","customer":{"id":"cus_8812","email":"jo@example.org","vip":false},"items":[{"sku":"A-1","qty":2,"price":50.25},{"sku":"B-7","qty":1,"price":25}],"captured":true,"n":1}`

func BenchmarkSum(b *testing.B) {
	header := func(mediaType string) http.Header {
		return http.Header{
			"Content-Type": {mediaType}, "Idempotency-Key": {"k-1"}, "Authorization": {"Bearer x"}, "Accept": {"*/*"},
			"User-Agent": {"client/1.0"}, "Content-Length": {"200"}, "X-Account-Id": {"acct_1"},
		}
	}
	reduce := policy.Fingerprint{Ignore: []string{"$.n"}, Defaults: []policy.Default{{Path: "$.mode", Value: `"auto"`}}}
	mt, parts := multipartBody(b, [4]string{"amount", "", "", "10"}, [4]string{"f", "a.txt", "text/plain", strings.Repeat("x", 150)})
	zipped := header(jsonType)
	zipped.Set("Content-Encoding", "gzip")
	large := []byte(`[` + strings.Repeat(body200+",", 5000) + `1]`)
	for _, bb := range []struct {
		name   string
		rule   policy.Fingerprint
		secret []byte
		header http.Header
		body   []byte
	}{
		{"JSON200", policy.Fingerprint{}, nil, header(jsonType), []byte(body200)},
		{"JSON200/keyed", policy.Fingerprint{}, make([]byte, 32), header(jsonType), []byte(body200)},
		{"JSON200/reduced", reduce, nil, header(jsonType), []byte(body200)},
		{"JSON1MiB", policy.Fingerprint{}, nil, header(jsonType), large},
		{"Gzip200", policy.Fingerprint{}, nil, zipped, zip(b, 6, "", []byte(body200))},
		{"Form", policy.Fingerprint{}, nil, header(formType), []byte("to=a+b&amount=10&currency=EUR&memo=%C3%A9t%C3%A9")},
		{"Multipart", policy.Fingerprint{}, nil, header(mt), []byte(parts)},
		{"Bytes200", policy.Fingerprint{}, nil, header("application/octet-stream"), bytes.Repeat([]byte("x"), 200)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r := compile(b, bb.rule, fingerprint.Options{Secret: bb.secret, MaxBody: 2 << 20})
			req := &fingerprint.Request{Method: "POST", Path: "/v1/payments/pay_1/capture", Header: bb.header, Body: bb.body}
			b.SetBytes(int64(len(bb.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Sum(1, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestSmallJSONAllocatesNothing(t *testing.T) {
	most := 1.0
	if raceEnabled { // the race detector empties pools at random
		most = 100
	}
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{Secret: make([]byte, 32)})
	req := post(jsonType, body200)
	if n := testing.AllocsPerRun(1000, func() { sum(t, r, req) }); n > most {
		t.Errorf("%v allocations for %d bytes of JSON", n, len(body200))
	}
	if len(body200) != 200 {
		t.Error(fmt.Sprint("body200 has ", len(body200), " bytes"))
	}
}
