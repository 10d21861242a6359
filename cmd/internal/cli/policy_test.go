package cli

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	golden(t, "explain.golden", run(t, "policy", "explain", "--policy", "testdata/policy.yaml").want(t, 0).stdout)
	one := run(t, "policy", "explain", "refund", "--policy", "testdata/policy.yaml").want(t, 0).stdout
	if strings.Contains(one, "payment_capture") || !strings.Contains(one, "= max(30s, 2m) + 5m + 5m") {
		t.Errorf("explain of one operation:\n%s", one)
	}
}

func TestExplainAsJSON(t *testing.T) {
	golden(t, "explain.json.golden", run(t, "policy", "explain", "-o", "json", "--policy", "testdata/policy.yaml").want(t, 0).stdout)
}

func TestExplainReadsThePolicyOfTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("testdata/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"counterfoil.yaml": "upstream: http://127.0.0.1:9000\npolicy: mine.yaml\n", "mine.yaml": string(text)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := run(t, "policy", "explain", "-o", "json", "--config", filepath.Join(dir, "counterfoil.yaml")).want(t, 0).items(t); len(got) != 2 {
		t.Errorf("%d operations", len(got))
	}
	// Without a file the environment alone is enough.
	t.Chdir(dir)
	env := map[string]string{"COUNTERFOIL_UPSTREAM": "http://127.0.0.1:9000", "COUNTERFOIL_POLICY": "mine.yaml"}
	if err := os.Remove("counterfoil.yaml"); err != nil {
		t.Fatal(err)
	}
	runWith(t, env, "policy", "explain").want(t, 0)
}

func TestWindowsAreWellFormed(t *testing.T) {
	svg := run(t, "policy", "explain", "--svg", "--policy", "testdata/policy.yaml").want(t, 0).stdout
	golden(t, "windows.svg", svg)
	bars, titles := 0, ""
	d := xml.NewDecoder(strings.NewReader(svg))
	d.Strict = true
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			for _, a := range tok.Attr {
				if a.Name.Local == "class" && a.Value == "window" {
					bars++
				}
			}
		case xml.CharData:
			titles += string(tok) + "\n"
		}
	}
	// Both operations: budget, broker, three pieces of ttl, replay, horizon; one gate.
	if bars != 7+7+1 {
		t.Errorf("%d bars", bars)
	}
	for _, want := range []string{"retry budget", "ttl", "replay", "horizon", "gate provider_reference", "120d", "safety_margin 17h"} {
		if !strings.Contains(titles, want) {
			t.Errorf("the drawing lacks %q", want)
		}
	}
}

func TestEscapeLeavesNothingThatXMLWouldRead(t *testing.T) {
	if got := escape(`<a href="x">&`); strings.ContainsAny(got, `<>"`) {
		t.Errorf("escape: %s", got)
	}
}

func TestCheck(t *testing.T) {
	golden(t, "check.golden", run(t, "policy", "check", "--policy", "testdata/policy.yaml").want(t, 0).stdout)
	golden(t, "check-bad.golden", run(t, "policy", "check", "--policy", "testdata/bad.yaml").want(t, 1).stdout)

	// Every finding has all members of contract.md §1, and no others.
	for _, f := range run(t, "policy", "check", "-o", "json", "--policy", "testdata/bad.yaml").want(t, 1).items(t) {
		for _, name := range []string{"severity", "code", "file", "line", "field", "message", "remedy"} {
			if _, ok := f[name]; !ok {
				t.Errorf("%v lacks %s", f, name)
			}
		}
		if len(f) != 7 {
			t.Errorf("%v has %d members", f, len(f))
		}
	}
	syntax := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(syntax, []byte("version: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "policy", "check", "--policy", syntax).want(t, 2)
}

func TestCheckAgainstThePrevious(t *testing.T) {
	golden(t, "check-next.golden", run(t, "policy", "check", "--policy", "testdata/next.yaml", "--previous", "testdata/policy.yaml").want(t, 0).stdout)
	golden(t, "check-forgets.golden", run(t, "policy", "check", "--policy", "testdata/forgets.yaml", "--previous", "testdata/policy.yaml").want(t, 1).stdout)
	run(t, "policy", "check", "--policy", "testdata/policy.yaml", "--previous", "testdata/policy.yaml").want(t, 0)
	run(t, "policy", "check", "--policy", "testdata/policy.yaml", "--previous", "testdata/bad.yaml").want(t, 2)
}

func TestDiff(t *testing.T) {
	golden(t, "diff.golden", run(t, "policy", "diff", "testdata/policy.yaml", "testdata/next.yaml").want(t, 0).stdout)
	if same := run(t, "policy", "diff", "testdata/policy.yaml", "testdata/policy.yaml").want(t, 0); same.stdout != "" {
		t.Errorf("equal policies differ: %s", same.stdout)
	}
	for _, c := range run(t, "policy", "diff", "-o", "json", "testdata/policy.yaml", "testdata/next.yaml").want(t, 0).items(t) {
		if c["operation"] == "" || c["for_new"] == "" || c["for_existing"] == "" {
			t.Errorf("change %v", c)
		}
	}
}

func TestSchemaIsJSON(t *testing.T) {
	var s map[string]any
	if err := json.Unmarshal([]byte(run(t, "policy", "schema").want(t, 0).stdout), &s); err != nil || s["$schema"] == nil {
		t.Errorf("schema: %v, %v", s["$schema"], err)
	}
}

func TestAges(t *testing.T) {
	for s, want := range map[float64]string{0.4: "0s", 59: "59s", 60: "1m", 90: "1m30s", 150: "2m", 7199: "1h59m", 7260: "2h", 200000: "2d"} {
		if got := age(s); got != want {
			t.Errorf("age(%v) = %s, want %s", s, got, want)
		}
	}
}
