package policyfile_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/policyfile"
)

// The policies that the documents and examples show are accepted, without a
// warning but the one that every policy without a resolver gets. The pages lie
// outside this module, so that the test cache does not see them change.
func TestDocumentedPolicies(t *testing.T) {
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	policies := map[string]string{}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, "../README.md") {
		for _, m := range blocks.FindAllStringSubmatch(read(t, path), -1) {
			switch {
			case strings.Contains(m[1], "operations:"):
				policies[path] = m[1]
			case strings.HasPrefix(m[1], "fingerprint:"):
				policies[path] = "version: 1\noperations:\n  sample:\n    scope: {principal: header:X-Account-Id}\n    ttl: {safety_margin: 1h}\n    " +
					strings.ReplaceAll(m[1], "\n", "\n    ")
			}
		}
	}
	files, err := filepath.Glob("../examples/*/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		policies[path] = read(t, path)
	}
	if policies["../README.md"] == "" || len(files) == 0 {
		t.Fatal("the README or the examples show no policy")
	}
	for path, text := range policies {
		p, findings := policyfile.Check(path, []byte(text))
		if p == nil {
			t.Errorf("%s is refused: %v", path, findings)
			continue
		}
		for _, f := range findings {
			if f.Code != "keys-spent" {
				t.Errorf("%s: %v", path, f)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
