package policyfile_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/counterfoil/counterfoil/policyfile"
)

func compile(t testing.TB) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(policyfile.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("policy.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// judge says what the schema makes of a file as an editor sees it: nil, or why
// it is refused. ok is false for what is no single YAML document.
func judge(s *jsonschema.Schema, text []byte) (refusal error, ok bool) {
	var value any
	if err := yaml.Load(text, &value); err != nil {
		return err, false
	}
	return s.Validate(plain(value)), true
}

// plain gives mappings with other keys than strings the form that the validator
// knows; such a key is then a field that no schema has.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	case map[any]any:
		m := map[string]any{}
		for k, value := range v {
			m[fmt.Sprint(k)] = plain(value)
		}
		return m
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}

// The schema and the reader accept and refuse the same files, but for faults
// that a schema cannot express: their files say so, and the test holds them to
// it, so that the list stays true.
func TestSchemaAgreesWithTheReader(t *testing.T) {
	s := compile(t)
	for name, text := range corpus(t, "good") {
		if err, _ := judge(s, text); err != nil {
			t.Errorf("%s: accepted by the reader, refused by the schema: %v", name, err)
		}
	}
	for name, text := range corpus(t, "bad") {
		refusal, document := judge(s, text)
		cannot := len(comments(text, "schema:")) > 0
		switch {
		case document && refusal == nil && !cannot:
			t.Errorf("%s: refused by the reader, accepted by the schema", name)
		case document && refusal != nil && cannot:
			t.Errorf("%s: says that the schema cannot refuse it, but it does: %v", name, refusal)
		case !document && !cannot:
			t.Errorf("%s: no single YAML document (%v); say so in a comment: # schema: not YAML", name, refusal)
		}
	}
}
