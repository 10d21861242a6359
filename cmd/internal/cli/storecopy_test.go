package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/wire"
	"github.com/counterfoil/counterfoil/storecopy"
)

// TestStoreCopy moves real records from one directory to another and serves
// from there.
func TestStoreCopy(t *testing.T) {
	s := newSite(t)
	from, to := "pebble:"+filepath.Join(s.dir, "data"), "pebble:"+filepath.Join(s.dir, "moved")
	s.serve(t)
	paid := s.pay(t, "k-1", 201)
	lost := s.pay(t, "k-2", 500)

	used := run(t, "store", "copy", "--from", from, "--to", to).want(t, 1)
	if !strings.Contains(used.stderr, "--from: ") || !strings.Contains(used.stderr, "stop it") || used.stdout != "" {
		t.Errorf("a store in use: %s%s", used.stdout, used.stderr)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "moved")); err == nil {
		t.Error("the target was made before the source could be opened")
	}
	s.stop()

	if r := run(t, "store", "copy", "--from", from, "--to", to, "--verify-only").want(t, 2); !strings.Contains(r.stderr, "copy first") {
		t.Errorf("comparing with nothing: %s", r.stderr)
	}
	table := run(t, "store", "copy", "--from", from, "--to", to).want(t, 0)
	for _, want := range []string{"copied            2", "responses copied  1", "OPERATION  STATE      RECORDS", "pay        completed  1", "pay        unknown    1", "both stores hold the same, digest "} {
		if !strings.Contains(table.stdout, want) {
			t.Errorf("the table lacks %q:\n%s", want, table.stdout)
		}
	}
	if table.stderr != "" {
		t.Errorf("stderr: %s", table.stderr)
	}
	again := run(t, "store", "copy", "--from", from, "--to", to, "-o", "json").want(t, 0).items(t)
	if len(again) != 1 || again[0]["copied"] != 0.0 || again[0]["present"] != 2.0 || again[0]["verified"] != true || again[0]["left_over"] != 0.0 {
		t.Errorf("again: %v", again)
	}
	verified := run(t, "store", "copy", "--from", from, "--to", to, "--verify-only", "-o", "json").want(t, 0).items(t)
	if verified[0]["digest"] != again[0]["digest"] || verified[0]["records"] != 2.0 {
		t.Errorf("verified: %v", verified)
	}

	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.config, fmt.Appendf(text, "store: %s\n", to), 0o600); err != nil {
		t.Fatal(err)
	}
	s.serve(t)
	if id := s.pay(t, "k-1", 201); id != paid {
		t.Errorf("the retry got record %s, want %s", id, paid)
	}
	if show := s.run(t, "record", "show", lost).want(t, 0).stdout; !strings.Contains(show, lost+"  pay  unknown") {
		t.Errorf("record show:\n%s", show)
	}
	own := s.pay(t, "k-3", 201)
	s.stop()

	for _, args := range [][]string{nil, {"--verify-only"}} {
		r := run(t, append([]string{"store", "copy", "--from", from, "--to", to}, args...)...).want(t, 1)
		if !strings.Contains(r.stdout, own) || !strings.Contains(r.stdout, "the source does not have it") || r.stderr == "" {
			t.Errorf("a target that was served from (%v):\n%s%s", args, r.stdout, r.stderr)
		}
	}
}

// TestStoreCopyLeavesOtherDirectoriesAlone: reading must not make a store.
func TestStoreCopyLeavesOtherDirectoriesAlone(t *testing.T) {
	dir := t.TempDir()
	r := run(t, "store", "copy", "--from", "pebble:"+dir, "--to", "pebble:"+filepath.Join(dir, "to")).want(t, 2)
	if !strings.Contains(r.stderr, "is not the directory of a store") {
		t.Errorf("stderr: %s", r.stderr)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	r = run(t, "store", "copy", "--from", "pebble:"+dir, "--to", "pebble:"+filepath.Join(dir, "link")).want(t, 2)
	if !strings.Contains(r.stderr, "are the same store") {
		t.Errorf("stderr: %s", r.stderr)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%d files in the directory, %v", len(files), err)
	}
}

// TestStoreCopyHalfDone: serve does not start on it.
func TestStoreCopyHalfDone(t *testing.T) {
	s := newSite(t)
	data := filepath.Join(s.dir, "data")
	s.serve(t)
	s.pay(t, "k-1", 201)
	s.stop()
	half := filepath.Join(s.dir, "half")
	halfCopy(t, data, half)
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(s.dir, "half.yaml")
	if err := os.WriteFile(config, fmt.Appendf(text, "store: pebble:%s\n", half), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, "serve", "--config", config).want(t, 2)
	if !strings.Contains(r.stderr, "unfinished copy") {
		t.Errorf("serve: %s", r.stderr)
	}
	run(t, "store", "copy", "--from", "pebble:"+half, "--to", "pebble:"+filepath.Join(s.dir, "third")).want(t, 1)
	run(t, "store", "copy", "--from", "pebble:"+data, "--to", "pebble:"+half, "--verify-only").want(t, 1)
	run(t, "store", "copy", "--from", "pebble:"+data, "--to", "pebble:"+half).want(t, 0)
}

// halfCopy stops a copy before its end.
func halfCopy(t *testing.T, from, to string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	open := func(dir string) counterfoil.Store {
		s, err := wire.OpenStore(t.Context(), "pebble:"+dir, wire.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	source, target := open(from), open(to)
	if _, err := storecopy.Run(ctx, source, target, storecopy.Options{Progress: func(storecopy.Progress) { stop() }}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := errors.Join(source.Close(), target.Close()); err != nil {
		t.Fatal(err)
	}
}
