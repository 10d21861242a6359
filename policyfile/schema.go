package policyfile

import (
	"bytes"
	_ "embed"
)

// schemaText is made by the test TestSchemaFollowsTheForm from the types of
// form.go, so that services do not carry the generator with them.
//
//go:embed policy.schema.json
var schemaText []byte

// Schema is the JSON Schema (2020-12) of policy.yaml, for editors. It accepts
// every file that [Parse] does. What a schema cannot say, such as a lease that
// is longer than the horizon, only Parse refuses. The caller owns the bytes.
func Schema() []byte { return bytes.Clone(schemaText) }
