package arch_test

import (
	"slices"
	"strings"
	"testing"
)

// arrows say which rooms the code of a room may import, beside its own
// packages: cmd → doors, workers, stores → counterfoil → policy. A room that is
// not listed has no place in the house yet; give it one here and in
// docs/architecture.md.
var arrows = map[string][]string{
	"policy":        {},
	".":             {"policy"},
	"internal/loop": {},
	"internal/arch": {},

	"memstore":    {".", "policy"},
	"pebblestore": {".", "policy"},
	"pgstore":     {".", "policy"},
	"redisstore":  {".", "policy"},
	"remote":      {".", "policy"},
	"storetest":   {".", "policy", "memstore"}, // the oracle of the model

	"reconcile": {".", "policy", "internal/loop"},
	"sweep":     {".", "policy", "internal/loop"},
	"storecopy": {".", "policy", "internal/loop"},

	"fingerprint": {".", "policy"},
	"policyfile":  {"policy"},
	"httpguard":   {".", "policy", "fingerprint"},
	"grpcguard":   {".", "policy", "fingerprint"},
	"consumer":    {".", "policy", "fingerprint"},
	"retry":       {},
	"measure":     {".", "policy"},
	"promtrace":   {".", "policy", "reconcile", "sweep"},

	"cmd":      anything,
	"proof":    anything,
	"bench":    anything,
	"examples": anything,
	"deploy":   anything, // generator programs
}

// anything may import every room but those of finished programs.
var anything = []string{"*"}

// stores are named by cmd/internal/wire alone, and by what tries them out.
var stores = []string{"memstore", "pebblestore", "pgstore", "redisstore"}

// ends are what nothing outside imports.
var ends = []string{"cmd", "proof", "bench", "examples", "deploy"}

func TestArrows(t *testing.T) {
	for _, f := range read(t).goFiles {
		from := room(f.dir)
		may, known := arrows[from]
		if !known {
			t.Errorf("%s: the room %s is not in this table", f.path, from)
			continue
		}
		for _, im := range f.imports {
			dir, ok := ours(im)
			if !ok || room(dir) == from {
				continue
			}
			to := room(dir)
			switch {
			case slices.Contains(ends, to):
				t.Errorf("%s imports %s: nothing imports %s", f.path, im, to)
			case f.test:
				// Tests may use any room as their counterpart.
			case !slices.Contains(may, to) && !slices.Contains(may, "*"):
				t.Errorf("%s imports %s: %s may import %v", f.path, im, from, may)
			case from == "cmd" && slices.Contains(stores, to) && !strings.HasPrefix(f.dir, "cmd/internal/wire"):
				t.Errorf("%s imports %s: cmd/internal/wire is the one place that names stores", f.path, im)
			}
		}
	}
}

// TestRootModule: the root module imports the standard library only, its tests
// too.
func TestRootModule(t *testing.T) {
	tr := read(t)
	for _, f := range tr.goFiles {
		if f.module != "." {
			continue
		}
		for _, im := range f.imports {
			dir, ok := ours(im)
			if !ok && !standard(im) {
				t.Errorf("%s imports %s: this module uses the standard library only", f.path, im)
			}
			for _, m := range tr.modules {
				if ok && m != "." && (dir == m || strings.HasPrefix(dir, m+"/")) {
					t.Errorf("%s imports %s, which is of the module %s", f.path, im, m)
				}
			}
		}
	}
}

// TestNoDrawers: a package is named after what it is about.
func TestNoDrawers(t *testing.T) {
	drawers := []string{"util", "utils", "common", "helper", "helpers", "shared", "types", "models", "model", "misc", "lib", "base"}
	for _, f := range read(t).goFiles {
		name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		last := f.dir[strings.LastIndex(f.dir, "/")+1:]
		if slices.Contains(drawers, name) || slices.Contains(drawers, last) {
			t.Errorf("%s: %q is a drawer; name the package after the thing in it", f.path, name)
		}
	}
}
