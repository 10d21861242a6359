package httpguard_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/policy"
)

func TestParseKey(t *testing.T) {
	for value, want := range map[string]string{
		`k-1`: "k-1", `"k-1"`: "k-1", ` "k-1"	`: "k-1", `"a,b;c"`: "a,b;c", `"a\"b"`: `a"b`, `"a\\b"`: `a\b`,
		`../../etc/passwd`: "../../etc/passwd", `%00`: "%00", `'OR'1'='1`: `'OR'1'='1`, `{a}{b}`: "{a}{b}", `*`: "*",
		`:YWJj:`: ":YWJj:", `?1`: "?1", `(a b)`: "", strings.Repeat("a", 255): strings.Repeat("a", 255),
		`"` + strings.Repeat("a", 255) + `"`: strings.Repeat("a", 255),
	} {
		k, err := httpguard.ParseKey(value)
		if string(k) != want || (err != nil) != (want == "") {
			if want != "" || err == nil {
				t.Errorf("%q: %q, %v; want %q", value, k, err, want)
			}
		}
	}
	for _, value := range []string{
		``, ` `, `""`, `"`, `"a`, `a"`, `a"b`, `"a"b`, `"a";x=1`, `"a", "b"`, `"a";x`, `a,b`, `a;b`, `a\b`,
		"a b", "a\tb", "\"a\tb\"", "\"a b\"", "k\xff", "k\x00", "é", "\"é\"", `"a\n"`, strings.Repeat("a", 256),
		`"` + strings.Repeat("a", 256) + `"`,
	} {
		if k, err := httpguard.ParseKey(value); !errors.Is(err, counterfoil.ErrKeyInvalid) {
			t.Errorf("%q: %q, %v; want ErrKeyInvalid", value, k, err)
		} else if len(value) > 3 && strings.Contains(err.Error(), value) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{`k`, `"k"`, `"k";a=1`, `"\"k"`, "\xff", `""`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		k, err := httpguard.ParseKey(value)
		if err != nil {
			if !errors.Is(err, counterfoil.ErrKeyInvalid) {
				t.Fatal(err)
			}
			return
		}
		if err := k.Validate(); err != nil {
			t.Fatal(err)
		}
		// Written as a string, every key reads back.
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(string(k)) + `"`
		if again, err := httpguard.ParseKey(quoted); err != nil || again != k {
			t.Fatalf("%q: %q, %v", quoted, again, err)
		}
	})
}

// refused checks that a request is answered so, and that nothing came of it.
func (f *fixture) refused(t *testing.T, a *answer, status int, problem string) {
	t.Helper()
	a.wants(t, status, problem, "")
	if n := f.pay.count(); n != 0 {
		t.Errorf("%d effects", n)
	}
}

func TestK01AbsentKey(t *testing.T) {
	f := newFixture(t, setup{})
	a := f.post("/pay", "", "{}")
	f.refused(t, a, 400, "key-missing")
	if a.problem(t)["safe_new_key"] != true || a.header.Get("Idempotency-Record") != "" {
		t.Errorf("%s %v", a.body, a.header)
	}
	if got := f.kinds(); got != "invalid" {
		t.Errorf("counted as %q", got)
	}
}

// K02, K03, K06, K07, K08, K10, K12, K13, K14 and C14: a field that is there
// and wrong is refused on optional routes too.
func TestK02MalformedKeys(t *testing.T) {
	for _, required := range []bool{true, false} {
		f := newFixture(t, setup{policy: func(p *policy.Policy) { p.Operations[0].Key.Required = required }})
		for _, value := range []string{
			"", "   ", `""`, `"a", "b"`, `"a";x=1`, strings.Repeat("a", 256), strings.Repeat("a", 9000),
			"a\tb", "k\xff", "k 1", "a,b", strings.Repeat("é", 255),
		} {
			r := request("POST", "/pay", "", "{}")
			r.Header["Idempotency-Key"] = []string{value}
			a := do(f.handler, r)
			f.refused(t, a, 400, "key-invalid")
			if a.problem(t)["safe_new_key"] != true {
				t.Errorf("%q: %s", value, a.body)
			}
		}
	}
}

func TestK05TwoLines(t *testing.T) {
	f := newFixture(t, setup{})
	for _, lines := range [][]string{{"a", "b"}, {"a", "a"}, {"", "a"}} {
		r := request("POST", "/pay", "", "{}")
		r.Header["Idempotency-Key"] = lines
		f.refused(t, do(f.handler, r), 400, "key-invalid")
	}
}

func TestK04QuotedAndBareAreOneKey(t *testing.T) {
	f := newFixture(t, setup{})
	f.post("/pay", "abc", "{}").wants(t, 201, "", "created")
	f.post("/pay", `"abc"`, "{}").wants(t, 201, "", "replayed")
}

func TestC13KeysOfEveryLength(t *testing.T) {
	f := newFixture(t, setup{})
	for _, n := range []int{1, 36, 64, 128, 255} {
		f.post("/pay", strings.Repeat("a", n), "{}").wants(t, 201, "", "created")
		f.post("/pay", strings.Repeat("a", n), "{}").wants(t, 201, "", "replayed")
	}
}

func TestK16UnderscoreVariants(t *testing.T) {
	f := newFixture(t, setup{})
	for _, name := range []string{"Idempotency_Key", "idempotency_key", "IDEMPOTENCY_KEY"} {
		r := request("POST", "/pay", "k", "{}")
		r.Header[http.CanonicalHeaderKey(name)] = []string{"other"}
		f.refused(t, do(f.handler, r), 400, "key-invalid")
		r.Header.Del("Idempotency-Key")
		f.refused(t, do(f.handler, r), 400, "key-invalid")
	}
	f.refused(t, f.post("/pay", "k", "{}", "X_account", "acct-2"), 400, "key-invalid")
	f.post("/pay", "k", "{}", "X_other", "1").wants(t, 201, "", "created")
}

func TestK17CaseOfTheName(t *testing.T) {
	f := newFixture(t, setup{})
	srv := f.serve()
	for i, mark := range []string{"created", "replayed"} {
		a := raw(t, srv, "POST /pay HTTP/1.1\r\nHost: x\r\nx-ACCOUNT: acct-1\r\n"+[]string{"idempotency-key", "IDEMPOTENCY-KEY"}[i]+": k\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", 1)[0]
		a.wants(t, 201, "", mark)
	}
}

func TestK19KeysAreOpaque(t *testing.T) {
	f := newFixture(t, setup{})
	for _, key := range []string{"../../etc/passwd", "%00", "'OR'1'='1", "{a}{b}", "*", "a:b", "a/b", "<script>"} {
		f.post("/pay", key, "{}").wants(t, 201, "", "created")
		f.post("/pay", key, "{}").wants(t, 201, "", "replayed")
	}
}

func TestK20SeparatorTricks(t *testing.T) {
	f := newFixture(t, setup{})
	f.post("/pay", "c", "{}", "X-Account", "", "X-Account", "a:b").wants(t, 201, "", "created")
	f.post("/pay", "b:c", "{}", "X-Account", "", "X-Account", "a").wants(t, 201, "", "created")
}

func TestK21KeyElsewhereIsIgnored(t *testing.T) {
	f := newFixture(t, setup{})
	f.refused(t, f.post("/pay?Idempotency-Key=k", "", `{"Idempotency-Key":"k"}`), 400, "key-missing")
}

func TestK22KeyInATrailer(t *testing.T) {
	f := newFixture(t, setup{})
	srv := f.serve()
	const head = "POST /pay HTTP/1.1\r\nHost: x\r\nX-Account: acct-1\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
	f.refused(t, raw(t, srv, head+"Trailer: Idempotency-Key\r\n\r\n2\r\n{}\r\n0\r\nIdempotency-Key: k2\r\n\r\n", 1)[0], 400, "request-invalid")
	// Sent without being announced.
	f.refused(t, raw(t, srv, head+"\r\n2\r\n{}\r\n0\r\nX_Account: k2\r\n\r\n", 1)[0], 400, "request-invalid")
	raw(t, srv, head+"Trailer: X-Sum\r\n\r\n2\r\n{}\r\n0\r\nX-Sum: 1\r\n\r\n", 1)[0].wants(t, 201, "", "created")
}

func TestK23C12KeyElsewhere(t *testing.T) {
	f := newFixture(t, setup{})
	f.post("/pay", "c12", `{"a":1}`).wants(t, 201, "", "created")
	f.post("/refund", "c12", `{"a":1}`).wants(t, 201, "", "created")
	f.send("PATCH", "/pay", "c12", `{"a":1}`).wants(t, 422, "key-reused", "mismatch")
	f.post("/pay/1", "c12b", `{}`).wants(t, 201, "", "created")
	f.post("/pay/2", "c12b", `{}`).wants(t, 422, "key-reused", "mismatch")
	// One family shares keys.
	f = newFixture(t, setup{policy: func(p *policy.Policy) {
		p.Operations[0].Scope.Family, p.Operations[1].Scope.Family = "money", "money"
	}})
	f.post("/pay", "k", `{}`).wants(t, 201, "", "created")
	f.post("/refund", "k", `{}`).wants(t, 422, "key-reused", "mismatch")
}

// K24, C11 and P7.
func TestP7NoAnswerCrossesAScope(t *testing.T) {
	f := newFixture(t, setup{})
	a1 := f.post("/pay", "1", `{"to":"x"}`, "X-Account", "", "X-Account", "alice")
	a2 := f.post("/pay", "1", `{"to":"x"}`, "X-Account", "", "X-Account", "bob")
	a1.wants(t, 201, "", "created")
	a2.wants(t, 201, "", "created")
	if a1.body == a2.body || f.pay.count() != 2 {
		t.Errorf("%q and %q, %d effects", a1.body, a2.body, f.pay.count())
	}
	if a1.header.Get("Idempotency-Record") == a2.header.Get("Idempotency-Record") {
		t.Error("one record for two accounts")
	}
	do(f.handler, request("GET", "/.well-known/idempotency/pay", "1", "", "X-Account", "", "X-Account", "carol")).wants(t, 404, "not-seen", "")
	f.post("/pay", "1", `{"to":"x"}`, "X-Account", "").wants(t, 401, "scope-missing", "")
}

func TestKeyFormats(t *testing.T) {
	f := newFixture(t, setup{policy: func(p *policy.Policy) { p.Operations[0].Key.Format = policy.KeyUUID }})
	f.post("/pay", "k", "{}").wants(t, 400, "key-invalid", "")
	f.post("/pay", "0190b8a0-0000-4000-8000-000000000000", "{}").wants(t, 201, "", "created")
}

func TestKeyFromTheFuture(t *testing.T) {
	f := newFixture(t, setup{})
	const future = "7fffffff-ffff-7000-8000-000000000000"
	a := f.post("/pay", future, "{}")
	a.wants(t, 400, "key-invalid", "")
	if a.problem(t)["safe_new_key"] != true {
		t.Errorf("%s", a.body)
	}
	a = f.post("/pay", "k", "{}", "Idempotency-First-Sent", time.Now().Add(time.Hour).Format(time.RFC3339))
	a.wants(t, 400, "key-invalid", "")
	if a.problem(t)["safe_new_key"] != false {
		t.Errorf("%s", a.body)
	}
	for _, bad := range []string{"yesterday", "0001-01-01T00:00:00Z", "1700000000"} {
		f.post("/pay", "k", "{}", "Idempotency-First-Sent", bad).wants(t, 400, "request-invalid", "")
	}
	if f.pay.count() != 0 {
		t.Error("the handler ran")
	}
}

func TestC14MissingKeyOnAnOptionalRoute(t *testing.T) {
	f := newFixture(t, setup{policy: func(p *policy.Policy) { p.Operations[0].Key.Required = false }})
	a1, a2 := f.post("/pay", "", "{}"), f.post("/pay", "", "{}")
	if a1.body == a2.body || f.pay.count() != 2 {
		t.Errorf("%q and %q", a1.body, a2.body)
	}
}

// Keys, principals and bodies appear in no answer.
func TestP15NothingIsEchoed(t *testing.T) {
	f := newFixture(t, setup{handler: answering(500)})
	const secret = "s3cr3t"
	var answers []*answer
	answers = append(answers,
		f.post("/pay", secret+"-k", secret, "X-Account", "", "X-Account", secret+"-p"),
		f.post("/pay", secret+"-k", secret, "X-Account", "", "X-Account", secret+"-p"),
		f.post("/pay", secret+"-k", secret+"2", "X-Account", "", "X-Account", secret+"-p"),
		f.post("/pay", secret+" x", secret),
		f.post("/pay", `"`+secret+`";a=1`, secret),
		f.send("GET", "/.well-known/idempotency/pay", secret+"-k", "", "X-Account", "", "X-Account", secret+"-p"),
	)
	for i, a := range answers {
		if strings.Contains(a.body, secret) {
			t.Errorf("answer %d shows it: %s", i, a.body)
		}
		for name, lines := range a.header {
			if strings.Contains(strings.Join(lines, " "), secret) {
				t.Errorf("answer %d shows it in %s", i, name)
			}
		}
	}
}
