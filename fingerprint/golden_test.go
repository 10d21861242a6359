package fingerprint_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"testing"

	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

// vector is a request whose fingerprint never changes under its version.
type vector struct {
	Name    string             `json:"name"`
	Rule    policy.Fingerprint `json:"rule"`
	Secret  string             `json:"secret_hex,omitempty"`
	Method  string             `json:"method"`
	Path    string             `json:"path"`
	Query   string             `json:"query,omitempty"`
	Header  http.Header        `json:"header,omitempty"`
	Body    string             `json:"body,omitempty"`
	BodyHex string             `json:"body_hex,omitempty"`
	Sum     string             `json:"sum"`
}

func TestGoldenVectorsOfVersion1(t *testing.T) {
	text, err := os.ReadFile("testdata/v1.json")
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var vectors []vector
	if err := d.Decode(&vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 40 {
		t.Fatalf("only %d vectors: never take one away", len(vectors))
	}
	names := map[string]bool{}
	for _, v := range vectors {
		if names[v.Name] {
			t.Errorf("two vectors are called %q", v.Name)
		}
		names[v.Name] = true
		secret := unhex(t, v.Secret)
		if len(secret) == 0 {
			secret = nil
		}
		body := []byte(v.Body)
		if v.BodyHex != "" {
			body = unhex(t, v.BodyHex)
		}
		r := compile(t, v.Rule, fingerprint.Options{Secret: secret})
		fp, err := r.Sum(1, &fingerprint.Request{Method: v.Method, Path: v.Path, RawQuery: v.Query, Header: v.Header, Body: body})
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		if got := hex.EncodeToString(fp.Sum[:]); got != v.Sum {
			t.Errorf("%s: sum %s, want %s. Records in the field hold the old sum: a changed rule is a new version beside version 1, never a new vector", v.Name, got, v.Sum)
		}
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLayoutOfVersion1 spells one form out by hand, as doc.go describes it.
func TestLayoutOfVersion1(t *testing.T) {
	const form = "\x01\x19counterfoil fingerprint 1" +
		"\x02\x04POST" +
		"\x03\x09/v1/a%2Fb" +
		"\x05\x01a\x06\x012" +
		"\x05\x01b" +
		"\x08\x0bApi-Version\x09\x017" +
		"\x08\x03X-B" +
		"\x0a\x10application/json\x0b\x01v\x0c\x011" +
		"\x12\x17" + `{"a":[1,5e-1],"b":"é"}`
	req := &fingerprint.Request{
		Method: "POST", Path: "/v1/%61%2fb", RawQuery: "b&a=%32",
		Header: http.Header{"Content-Type": {"Application/json; charset=utf-8; v=1"}, "Api-Version": {"7"}},
		Body:   []byte("{\"b\" : \"\\u00e9\", \"a\": [1.0, 0.50]}"),
	}
	rule := policy.Fingerprint{Headers: []string{"x-b", "api-version"}}
	want := sha256.Sum256([]byte(form))
	if got := sum(t, compile(t, rule, fingerprint.Options{}), req); got.Sum != [16]byte(want[:16]) {
		t.Errorf("sum %x, want %x", got.Sum, want[:16])
		explain(t, compile(t, rule, fingerprint.Options{}), req)
	}
	secret := bytes.Repeat([]byte("k"), 32)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(form))
	if got := sum(t, compile(t, rule, fingerprint.Options{Secret: secret}), req); !bytes.Equal(got.Sum[:], mac.Sum(nil)[:16]) {
		t.Errorf("keyed sum %x, want %x", got.Sum, mac.Sum(nil)[:16])
	}
}

// TestLongPartsAreLaidOutAlike checks the path by which long texts go to the
// hash without a copy.
func TestLongPartsAreLaidOutAlike(t *testing.T) {
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	for _, n := range []int{127, 128, 511, 512, 513, 4095, 4096, 4097, 70_000} {
		body := bytes.Repeat([]byte("x"), n)
		form := []byte("\x01\x19counterfoil fingerprint 1\x02\x04POST\x03\x04/pay\x11")
		for v := n; ; v >>= 7 {
			if v < 128 {
				form = append(form, byte(v))
				break
			}
			form = append(form, byte(v)|128)
		}
		want := sha256.Sum256(append(form, body...))
		if got := sum(t, r, post("", string(body))); got.Sum != [16]byte(want[:16]) {
			t.Errorf("%d bytes: sum %x, want %x", n, got.Sum, want[:16])
		}
	}
}
