package policyfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/policyfile"
)

// corpus reads testdata/kind/*.yaml. Files of bad say in comments what is to be
// found in them: "# want LINE:COLUMN CODE FIELD" for each error. A file that
// begins with P01 to P11 shows a row of dangers.md §4.3, one with C26 that case
// of cases.md. "# schema: REASON" marks what a JSON Schema cannot refuse.
func corpus(t testing.TB, kind string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", kind, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no corpus in testdata/%s: %v", kind, err)
	}
	files := map[string][]byte{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = text
	}
	return files
}

// comments are the texts behind "# KEY" at the beginning of lines.
func comments(text []byte, key string) []string {
	var found []string
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "# "+key+" "); ok {
			found = append(found, strings.TrimSpace(rest))
		}
	}
	return found
}

func TestGoodFiles(t *testing.T) {
	for name, text := range corpus(t, "good") {
		t.Run(name, func(t *testing.T) {
			p, err := policyfile.Parse(name, text)
			if err != nil {
				t.Fatal(err)
			}
			again, err := policy.ParseText(p.Text())
			if err != nil {
				t.Fatal(err)
			}
			if again.Digest() != p.Digest() {
				t.Error("the digest changed on the way through the normal form")
			}
		})
	}
}

func TestBadFiles(t *testing.T) {
	for name, text := range corpus(t, "bad") {
		t.Run(name, func(t *testing.T) {
			p, findings := policyfile.Check(name, text)
			if p != nil {
				t.Error("the file is accepted")
			}
			var got []string
			for _, f := range findings {
				if f.Severity != policy.SeverityError {
					continue
				}
				got = append(got, strings.TrimSpace(fmt.Sprintf("%d:%d %s %s", f.Line, f.Column, f.Code, f.Field)))
				if f.File != name || f.Message == "" || f.Remedy == "" {
					t.Errorf("incomplete: %+v", f)
				}
			}
			want := comments(text, "want")
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("found\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
			}
		})
	}
}

// The rows of dangers.md §4.3 and of cases.md that are about policy files.
func TestCorpusCoversTheCases(t *testing.T) {
	bad := corpus(t, "bad")
	for _, row := range []string{"P01", "P02", "P03", "P05", "P06", "P08", "C26"} {
		found := false
		for name := range bad {
			found = found || strings.HasPrefix(name, row+"_")
		}
		if !found {
			t.Errorf("no file for %s", row)
		}
	}
}
