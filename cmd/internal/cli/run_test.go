package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// result is what one run of the command line left behind.
type result struct {
	code           int
	stdout, stderr string
}

// run runs one command in this process, without an environment.
func run(t *testing.T, args ...string) result {
	t.Helper()
	return runWith(t, nil, args...)
}

func runWith(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	p := &Program{
		Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &errs, Version: "1.2.3", Commit: "abc",
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}
	code := p.Run(ctx, args)
	return result{code, out.String(), errs.String()}
}

// want fails unless the run ended with that code.
func (r result) want(t *testing.T, code int) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	return r
}

// items parses the JSON form of a result.
func (r result) items(t *testing.T) []map[string]any {
	t.Helper()
	var doc struct {
		Version int              `json:"version"`
		Items   []map[string]any `json:"items"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || doc.Version != 1 || doc.Items == nil {
		t.Fatalf("not the JSON form of a result (%v): %s", err, r.stdout)
	}
	return doc.Items
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; go test -update writes it anew\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}
