package fingerprint_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

func TestCompileNamesEveryFault(t *testing.T) {
	_, err := fingerprint.Compile(policy.Fingerprint{
		Fields: []string{"$.ok", "amount", "$.a["},
		Ignore: []string{"$", "$..", "$.ok"},
		Defaults: []policy.Default{
			{Path: "$.a", Value: "true"},
			{Path: "$['a']", Value: "1"},
			{Path: "$.b[0]", Value: "1"},
			{Path: "$..c", Value: "1"},
			{Path: "$.d.*", Value: "1"},
			{Path: "$", Value: "{}"},
			{Path: "$.e", Value: "auto"},
			{Path: "$.f", Value: ""},
			{Path: "$['g','h']", Value: "1"},
			{Path: "$.i", Value: `{"x":1,"x":2}`},
			{Path: "$.j", Value: "[1, 2]"},
			{Path: "k", Value: "1"},
		},
		Headers: []string{"X-Ok", "", "a b", "host", "X:"},
	}, fingerprint.Options{Secret: []byte("short"), MaxBody: -1})
	if err == nil {
		t.Fatal("no fault found")
	}
	faults := strings.Split(err.Error(), "\n")
	want := []string{
		"max body:", "secret:", "fields[1] ", "fields[2] ", "ignore[0] ", "ignore[1] ",
		"defaults[1] ", "defaults[2] ", "defaults[3] ", "defaults[4] ", "defaults[5] ", "defaults[6] ",
		"defaults[7] ", "defaults[8] ", "defaults[9] ", "defaults[11] ",
		"headers[1] ", "headers[2] ", "headers[3] ", "headers[4] ",
	}
	if len(faults) != len(want) {
		t.Fatalf("%d faults, want %d:\n%v", len(faults), len(want), err)
	}
	for i, w := range want {
		if !strings.HasPrefix(faults[i], w) {
			t.Errorf("fault %d is %q, want it to begin %q", i, faults[i], w)
		}
	}
}

func TestSecretKeysTheSum(t *testing.T) {
	secret := bytes.Repeat([]byte{1}, 32)
	req := post(jsonType, `{"a":1}`)
	seen := map[[16]byte]bool{}
	for _, s := range [][]byte{nil, secret, bytes.Repeat([]byte{2}, 32)} {
		seen[sum(t, compile(t, policy.Fingerprint{}, fingerprint.Options{Secret: s}), req).Sum] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d different sums under three keys", len(seen))
	}
	want := sum(t, compile(t, policy.Fingerprint{}, fingerprint.Options{Secret: secret}), req)
	r := compile(t, policy.Fingerprint{}, fingerprint.Options{Secret: secret})
	clear(secret) // before the rule has made its first hash
	if sum(t, r, req) != want {
		t.Error("the rule keeps the caller's secret by reference, or one key gives two sums")
	}
}

func TestIgnore(t *testing.T) {
	for _, tt := range []struct {
		ignore []string
		groups [][]string
	}{
		{[]string{"$.a.t"}, [][]string{{`{"a":{"t":1,"x":1}}`, `{"a":{"t":{},"x":1}}`, `{"a":{"x":1}}`}, {`{"a":{"x":2}}`}, {`{"a":{}}`, `{"a":{"t":1}}`}, {`{}`}, {`{"a":1}`}, {`{"a":[{"t":1}]}`}}},
		{[]string{"$..t"}, [][]string{{`{"a":{"t":1},"t":2}`, `{"a":{}}`, `{"a":{"t":{"t":1}}}`}, {`{"b":[{"t":1},2]}`, `{"b":[{},2.0]}`}, {`[{"t":9}]`, `[{}]`}}},
		{[]string{"$.items[*].at", "$.items[1]"}, [][]string{{`{"items":[{"at":1,"n":1},{"at":2,"n":2}]}`, `{"items":[{"n":1},5]}`, `{"items":[{"n":1}]}`}, {`{"items":[{"n":2}]}`}}},
		{[]string{"$.l[?@.v==1e0]"}, [][]string{{`{"l":[{"v":1},{"v":2}]}`, `{"l":[{"v":2},{"v":1.0}]}`, `{"l":[{"v":2}]}`}, {`{"l":[{"v":3}]}`}}},
		{[]string{"$.l[0,2]", "$.l[-1]"}, [][]string{{`{"l":[1,2,3,4]}`, `{"l":[9,2,9,9]}`}, {`{"l":[1,3,3,4]}`}}},
		{[]string{"$.id", "$['id']", "$.id.x"}, [][]string{{`{"id":{"x":1}}`, `{}`, `{"id":5}`}}},
		{[]string{`$['a\'b']`, "$['\u00e9']"}, [][]string{{`{"a'b":1,"x":1,"\u00e9":5}`, `{"x":1}`}, {`{"x":2}`}}},
		{[]string{"$.x"}, [][]string{{`9007199254740993`}, {`9007199254740992`}, {`"a"`}, {`null`}, {`[]`}, {`{"n":9007199254740993,"x":1}`, `{"n":9007199254740993}`}, {`{"n":9007199254740992}`}}},
		{[]string{"$.*"}, [][]string{{`{"a":1}`, `{}`, `{"b":2}`}, {`[]`, `[1]`}, {`1`}}},
	} {
		t.Run(strings.Join(tt.ignore, " "), func(t *testing.T) {
			r := compile(t, policy.Fingerprint{Ignore: tt.ignore}, fingerprint.Options{})
			groups(t, r, bodies(jsonType, tt.groups...)...)
		})
	}
}

func TestIgnoreLeavesOtherBodiesAlone(t *testing.T) {
	plain := compile(t, policy.Fingerprint{}, fingerprint.Options{})
	r := compile(t, policy.Fingerprint{Ignore: []string{"$.t"}, Defaults: []policy.Default{{Path: "$.d", Value: "1"}}}, fingerprint.Options{})
	for _, req := range []*fingerprint.Request{
		post(formType, "t=1"), post("text/plain", `{"t":1}`), post(jsonType, ""), post(jsonType, `{"t":1,"t":2}`),
		post(jsonType, `{"t":"\ud800"}`), post(jsonType, `{"é":"<>&\u2028","d":1,"\ud83d\ude00":1,"\uffff":2,"n":1e400}`),
	} {
		if sum(t, r, req) != sum(t, plain, req) {
			t.Errorf("%s: a rule that finds nothing changes the sum", show(req))
			explain(t, plain, req)
			explain(t, r, req)
		}
	}
}

func TestFields(t *testing.T) {
	for _, tt := range []struct {
		rule   policy.Fingerprint
		groups [][]string
	}{
		{policy.Fingerprint{Fields: []string{"$.amount", "$.to"}}, [][]string{
			{`{"amount":10,"to":"a"}`, `{"to":"a","amount":10.0,"memo":"x"}`},
			{`{"amount":11,"to":"a"}`},
			{`{"amount":10,"to":"b"}`},
			{`{"amount":10}`, `{"amount":10,"memo":1}`},
			{`{"amount":10,"to":null}`},
			{`{"to":10}`},
			// No field is there: the whole body counts, or a slip in the policy makes all one.
			{`{"amuont":10}`},
			{`{"amuont":11}`},
			{`[1]`},
			{`[2]`},
			{`"a"`},
			{`{}`},
		}},
		{policy.Fingerprint{Fields: []string{"$.items[*].sku"}}, [][]string{
			{`{"items":[{"sku":"a","n":1},{"sku":"b"}]}`, `{"items":[{"sku":"a"},{"sku":"b","n":2}]}`},
			{`{"items":[{"sku":"b"},{"sku":"a"}]}`},
			{`{"items":[{"sku":"ab"}]}`},
			{`{"items":[{"n":1},{"sku":"a"}]}`},
			{`{"items":[{"sku":"a"},{"n":1}]}`},
		}},
		{policy.Fingerprint{Fields: []string{"$.a", "$.a.b", "$..b"}, Ignore: []string{"$.a.t"}}, [][]string{
			{`{"a":{"b":1,"t":1},"x":1}`, `{"a":{"t":2,"b":1}}`}, {`{"a":{"b":2}}`}, {`{"a":{"b":1,"c":1}}`}, {`{"a":{"b":1},"c":{"b":1}}`}, {`{"a":{"b":1},"d":{"b":1}}`},
		}},
		{policy.Fingerprint{Fields: []string{"$.a"}, Ignore: []string{"$.a", "$.t"}}, [][]string{
			{`{"a":1,"b":1}`, `{"a":2,"b":1,"t":1}`}, {`{"a":1,"b":2}`},
		}},
		{policy.Fingerprint{Fields: []string{"$"}}, [][]string{{`{"a":1}`, `{"a":1.0}`}, {`{"a":2}`}, {`1`}}},
	} {
		t.Run(strings.Join(tt.rule.Fields, " "), func(t *testing.T) {
			groups(t, compile(t, tt.rule, fingerprint.Options{}), bodies(jsonType, tt.groups...)...)
		})
	}
	// The order of the paths in the policy does not count.
	a := compile(t, policy.Fingerprint{Fields: []string{"$.a", "$.b"}}, fingerprint.Options{})
	b := compile(t, policy.Fingerprint{Fields: []string{"$['b']", "$['a']"}}, fingerprint.Options{})
	if req := post(jsonType, `{"a":1,"b":2}`); sum(t, a, req) != sum(t, b, req) {
		t.Error("the order of fields in the policy counts")
	}
}

func TestDefaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rule   policy.Fingerprint
		groups [][]string
	}{
		{"top", policy.Fingerprint{Defaults: []policy.Default{{Path: "$.capture", Value: " true "}}}, [][]string{
			{`{"a":1}`, `{"a":1,"capture":true}`}, {`{"a":1,"capture":false}`}, {`{"a":1,"capture":null}`}, {`{"a":1,"capture":"true"}`}, {`[]`}, {`5`},
		}},
		{"nested", policy.Fingerprint{Defaults: []policy.Default{{Path: "$.a.b.c", Value: `{"z":1.0,"y":[]}`}}}, [][]string{
			{`{}`, `{"a":{}}`, `{"a":{"b":{}}}`, `{"a":{"b":{"c":{"y":[],"z":1}}}}`}, {`{"a":null}`}, {`{"a":1}`}, {`{"a":{"b":[]}}`}, {`{"a":{"b":{"c":1}}}`},
		}},
		{"outer first", policy.Fingerprint{Defaults: []policy.Default{{Path: "$.a.b", Value: "1"}, {Path: "$.a", Value: `{"c":2}`}}}, [][]string{
			{`{}`, `{"a":{"b":1,"c":2}}`}, {`{"a":{}}`, `{"a":{"b":1}}`},
		}},
		{"seen by fields", policy.Fingerprint{Fields: []string{"$.mode"}, Defaults: []policy.Default{{Path: "$.mode", Value: `"auto"`}}}, [][]string{
			{`{"x":1}`, `{"mode":"auto","x":2}`}, {`{"mode":"manual"}`},
		}},
		{"ignored", policy.Fingerprint{Ignore: []string{"$.a.t"}, Defaults: []policy.Default{{Path: "$.a.t", Value: "1"}}}, [][]string{
			{`{}`, `{"a":{}}`, `{"a":{"t":7}}`}, {`{"a":{"u":7}}`},
		}},
		{"a value of its own each time", policy.Fingerprint{Ignore: []string{"$.a.t"}, Defaults: []policy.Default{{Path: "$.a", Value: `{"t":1,"u":2}`}}}, [][]string{
			{`{}`, `{"a":{"u":2}}`, `{ }`, `{"a":{"t":5,"u":2}}`},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			groups(t, compile(t, tt.rule, fingerprint.Options{}), bodies(jsonType, tt.groups...)...)
		})
	}
}

func TestTagNames(t *testing.T) {
	seen := map[string]bool{}
	for tag := fingerprint.TagRules; tag <= fingerprint.TagMultipartRaw; tag++ {
		if name := tag.String(); name == "unknown" || seen[name] {
			t.Errorf("tag %d is called %q", tag, name)
		} else {
			seen[name] = true
		}
	}
	if got := fingerprint.Tag(0).String() + fingerprint.Tag(200).String(); got != "unknownunknown" {
		t.Errorf("tags that do not exist are called %q", got)
	}
}
