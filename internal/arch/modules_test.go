package arch_test

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// modFile is what a go.mod says.
type modFile struct {
	module   string
	goLine   string
	require  map[string]bool
	replace  map[string]string
	sumKnown bool // there is a go.sum
}

func readMod(t *testing.T, dir string) modFile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	m := modFile{require: map[string]bool{}, replace: map[string]string{}}
	block := ""
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "//")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
			continue
		case words[0] == ")":
			block = ""
			continue
		case len(words) == 2 && words[1] == "(":
			block = words[0]
			continue
		case block != "":
			words = append([]string{block}, words...)
		}
		switch words[0] {
		case "module":
			m.module = words[1]
		case "go":
			m.goLine = words[1]
		case "require":
			m.require[words[1]] = true
		case "replace":
			m.replace[words[1]] = words[len(words)-1]
		}
	}
	_, err = os.Stat(filepath.Join(root, dir, "go.sum"))
	m.sumKnown = err == nil
	return m
}

// TestModules: every module is named after its folder, finds the others of this
// repository beside it, and says what it needs, so that it builds alone.
func TestModules(t *testing.T) {
	tr := read(t)
	for _, dir := range tr.modules {
		m := readMod(t, dir)
		if want := path.Join(home, dir); m.module != want && !strings.HasPrefix(dir, "examples/") {
			t.Errorf("%s/go.mod: module %s, want %s", dir, m.module, want)
		}
		if m.goLine != "1.26" && !strings.HasPrefix(m.goLine, "1.26.") {
			t.Errorf("%s/go.mod: go %s, want 1.26", dir, m.goLine)
		}
		if dir == "." {
			if len(m.require) > 0 || len(m.replace) > 0 {
				t.Errorf("go.mod requires %v: the root module needs nothing", m.require)
			}
			continue
		}
		for required := range m.require {
			target, ok := ours(required)
			if !ok {
				if !m.sumKnown {
					t.Errorf("%s: no go.sum for %s", dir, required)
				}
				continue
			}
			if got := path.Join(dir, m.replace[required]); m.replace[required] == "" || got != target {
				t.Errorf("%s/go.mod: %s is replaced by %q, want the folder %s of this repository", dir, required, m.replace[required], target)
			}
		}
	}
	mods := map[string]modFile{}
	for _, f := range tr.goFiles {
		m, ok := mods[f.module]
		if !ok {
			m = readMod(t, f.module)
			mods[f.module] = m
		}
		for _, im := range f.imports {
			if standard(im) || im == m.module || strings.HasPrefix(im, m.module+"/") && moduleOf(tr, im) == f.module {
				continue
			}
			if !provided(tr, m, im) {
				t.Errorf("%s imports %s: no require in %s/go.mod has it", f.path, im, f.module)
			}
		}
	}
}

// moduleOf is the module of ours that a package is in.
func moduleOf(tr *tree, imported string) string {
	dir, ok := ours(imported)
	if !ok {
		return ""
	}
	best := "."
	for _, m := range tr.modules {
		if (dir == m || strings.HasPrefix(dir, m+"/")) && len(m) > len(best) {
			best = m
		}
	}
	return best
}

func provided(tr *tree, m modFile, imported string) bool {
	if mod := moduleOf(tr, imported); mod != "" {
		return m.require[path.Join(home, mod)]
	}
	for p := imported; p != "."; p = path.Dir(p) {
		if m.require[p] {
			return true
		}
	}
	return false
}

// TestNoWorkspaceNeeded: a go.work may join the modules for editors; none of
// its lines names what is not here.
func TestNoWorkspaceNeeded(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	if os.IsNotExist(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	modules := read(t).modules
	for line := range strings.Lines(string(text)) {
		word := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "use "))
		if dir, ok := strings.CutPrefix(word, "./"); ok && !slices.Contains(modules, path.Clean(dir)) {
			t.Errorf("go.work uses %s, which has no go.mod", word)
		}
	}
}
