package policyfile_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/invopop/jsonschema"

	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/policyfile"
)

var update = flag.Bool("update", false, "write policy.schema.json anew")

const schemaFile = "policy.schema.json"

// The schema in the package is what the generator makes of the reader's own
// types today. After a change of form.go: go test -run Schema -update
func TestSchemaFollowsTheForm(t *testing.T) {
	want := generate(t)
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(policyfile.Schema(), want) {
		t.Errorf("%s is out of date; run: go test -run Schema -update", schemaFile)
	}
}

func generate(t *testing.T) []byte {
	t.Helper()
	names := map[reflect.Type]string{}
	for name, typ := range policyfile.Leaves() {
		names[typ] = name
	}
	r := &jsonschema.Reflector{
		Anonymous: true, // no package paths as $id
		Mapper: func(typ reflect.Type) *jsonschema.Schema {
			if name, ok := names[typ]; ok {
				return ref(name)
			}
			return nil
		},
	}
	s := r.Reflect(&policyfile.FileForm{})
	s.ID = "https://counterfoil.dev/schemas/policy.json"
	s.Title = "Counterfoil policy"
	s.Description = "Lifetimes and rules of every operation: policy.yaml."

	inline := *r
	inline.DoNotReference = true
	inner := func(form any) *jsonschema.Schema {
		s := inline.Reflect(form)
		s.Version = ""
		return s
	}
	one := uint64(1)
	two := uint64(2)
	for name, def := range map[string]*jsonschema.Schema{
		"duration": {
			Description: "A duration with units from days to milliseconds, or ISO 8601 in days and smaller.",
			Type:        "string", MinLength: &two,
			AnyOf:    []*jsonschema.Schema{{Pattern: policy.DurationPattern}, {Pattern: policy.ISODurationPattern}},
			Not:      &jsonschema.Schema{Pattern: "T$"}, // PT says nothing
			Examples: []any{"500ms", "90s", "15m", "4h", "30d", "1h30m", "P30D"},
		},
		"size":      {Type: "string", Pattern: policy.SizePattern, Examples: []any{"64KiB", "1MiB", "1MB", "512B"}},
		"volume":    {Type: "string", Pattern: policyfile.VolumePattern, Examples: []any{"50000/d"}},
		"principal": {Type: "string", Pattern: policyfile.PrincipalPattern, Examples: []any{"header:X-Account-Id", "auth_request", "anonymous"}},
		"onUnknown": {OneOf: []*jsonschema.Schema{
			{Type: "string", Enum: []any{string(policy.UnknownClose), string(policy.UnknownHold)}}, inner(policyfile.Redispatch()),
		}},
		"input": {OneOf: []*jsonschema.Schema{
			ref("duration"), inner(policyfile.Sourced()), {Type: "array", Items: inner(policyfile.Retrier()), MinItems: &one},
		}},
		"gate":   ref("duration"),
		"ghosts": {Const: 0},
		"status": {Type: "integer", Minimum: "100", Maximum: "599"},
		"noEffect": {
			Type: "integer", Minimum: "100", Maximum: "599",
			Not: &jsonschema.Schema{Minimum: "200", Maximum: "299"},
		},
		"accept": {Type: "string", Enum: words(policy.Dangers())},
		"match":  {Type: "string", Pattern: policy.MatchPattern, Examples: []any{"POST /v1/payments/{payment}/capture"}},
		"header": {Type: "string", Pattern: policy.HeaderPattern},
		"name":   {Type: "string", Pattern: policy.NamePattern},
		"path":   {Type: "string", Pattern: `^\$`},
		"json":   jsonschema.TrueSchema,
	} {
		s.Definitions[name] = def
	}
	// What struct tags cannot say of a mapping.
	s.Definitions["ttlForm"].MinProperties = &one
	operations, _ := s.Definitions["fileForm"].Properties.Get("operations")
	operations.MinProperties, operations.PropertyNames = &one, ref("name")
	closure, _ := s.Definitions["operationForm"].Properties.Get("closure")
	closure.PropertyNames = ref("name")

	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

func ref(name string) *jsonschema.Schema { return &jsonschema.Schema{Ref: "#/$defs/" + name} }

func words(names []string) []any {
	out := make([]any, len(names))
	for i, n := range names {
		out[i] = n
	}
	return out
}
