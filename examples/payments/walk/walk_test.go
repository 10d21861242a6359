package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// build builds one program of this repository.
func build(t *testing.T, dir, pkg, to string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", to, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
}

// TestWalk runs the whole walk with real programs. The walk itself fails when
// an answer or the ledger is not as it says; what people read is looked at
// here.
func TestWalk(t *testing.T) {
	bin := t.TempDir()
	build(t, "../../../cmd", "./counterfoil", filepath.Join(bin, "counterfoil"))
	build(t, "..", ".", filepath.Join(bin, "payments"))

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	err := run(ctx, options{
		counterfoil: filepath.Join(bin, "counterfoil"), payments: filepath.Join(bin, "payments"),
		policy: "../policy.yaml", once: true,
	}, &printer{w: &out})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Log("\n" + out.String())
	text := out.String()
	if strings.Contains(text, "\x1b") {
		t.Error("colours where there is no terminal")
	}
	at := 0
	for _, want := range []string{
		"1. A first request", "201 Created", "Idempotency-Status: created", "The ledger holds 1 charge.",
		"2. A retry", "Idempotency-Status: replayed", "Compared with the first answer", "The ledger holds 1 charge.",
		"3. The same key with another body", "422", "key-reused", "The ledger holds 1 charge.",
		"4. Two at once", "A: 201", "created", "B: 201", "replayed", "The ledger holds 2 charges.",
		"5. The guard is killed", "kill -9", "503", "outcome-unknown", "The ledger holds 3 charges.",
		"6. A person", "record resolve", "--absent", "exit code 1", "--applied", "The ledger holds 3 charges.",
		"7. The retry", "201", "already-processed", "The ledger holds 3 charges.",
	} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("the walk does not show %q in its place", want)
		}
		at += i + len(want)
	}
}

func TestWalkSaysWhatFailed(t *testing.T) {
	for name, o := range map[string]options{
		"no API":   {payments: "/does/not/exist", counterfoil: "/does/not/exist", policy: "../policy.yaml"},
		"no guard": {payments: "/bin/echo", counterfoil: "/does/not/exist", policy: "../policy.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), o, &printer{w: &bytes.Buffer{}})
			if err == nil || !strings.Contains(err.Error(), "does/not/exist") {
				t.Errorf("error: %v", err)
			}
		})
	}
}
