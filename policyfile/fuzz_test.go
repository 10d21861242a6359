package policyfile_test

import (
	"errors"
	"testing"

	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/policyfile"
)

// Whatever the file, there is a valid policy or a refusal with a place. A valid
// policy survives its normal form, and the schema accepts its file.
func FuzzPolicyFile(f *testing.F) {
	s := compile(f)
	for _, kind := range []string{"good", "bad"} {
		for _, text := range corpus(f, kind) {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := policyfile.Parse("policy.yaml", text)
		if err != nil {
			var e *policyfile.Error
			if !errors.As(err, &e) || len(e.Findings) == 0 || err.Error() == "" {
				t.Fatalf("refused without a finding: %v", err)
			}
			return
		}
		if findings := p.Validate(); policy.Refuses(findings) {
			t.Fatalf("accepted, and not valid: %v", findings)
		}
		if err, document := judge(s, text); err != nil || !document {
			t.Fatalf("accepted, but not by the schema: %v", err)
		}
		again, err := policy.ParseText(p.Text())
		if err != nil {
			t.Fatalf("the normal form does not read back: %v", err)
		}
		if again.Digest() != p.Digest() || len(policy.Compare(p, again)) != 0 {
			t.Fatalf("the normal form means something else: %v", policy.Compare(p, again))
		}
	})
}
