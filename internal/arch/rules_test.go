package arch_test

import (
	"bytes"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestFileLength: a file has one noun; over 800 lines needs a reason.
func TestFileLength(t *testing.T) {
	for _, f := range read(t).goFiles {
		if f.lines >= 800 && !ast.IsGenerated(f.syntax) {
			t.Errorf("%s has %d lines; fewer than 800 are allowed", f.path, f.lines)
		}
	}
}

// sleepers are test files that sleep in earnest, and why that waits for
// nothing: everything else runs in a bubble of its own time.
var sleepers = map[string]string{
	"pebblestore/crash_test.go": "a disk that takes long is what the test is about",
	"pebblestore/fault_test.go": "asks again until a store with the wall clock is well",
}

// TestNoSleep: no test sleeps, unless its time is testing/synctest's. A
// benchmark may, for it measures what happens meanwhile.
func TestNoSleep(t *testing.T) {
	tr := read(t)
	for _, f := range tr.goFiles {
		if !f.test && room(f.dir) != "storetest" || sleepers[f.path] != "" || f.imported("testing/synctest") {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Benchmark") {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" && isName(sel.X, "time") {
					t.Errorf("%s: a test that sleeps is slow, or sometimes wrong; use testing/synctest or pass the time in", tr.at(n))
				}
				return true
			})
		}
	}
}

func (f *goFile) imported(p string) bool {
	for _, im := range f.imports {
		if im == p {
			return true
		}
	}
	return false
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// TestPebbleSyncs: no write of the embedded store goes without sync (P2, P3).
func TestPebbleSyncs(t *testing.T) {
	tr := read(t)
	for _, f := range tr.goFiles {
		if f.test || room(f.dir) != "pebblestore" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && (id.Name == "NoSync" || id.Name == "DisableWAL") {
				t.Errorf("%s: %s: what is acknowledged must be durable", tr.at(n), id.Name)
			}
			return true
		})
	}
}

// TestSentinels: every sentinel of the root package is in errors.go, with a
// code there that never changes.
func TestSentinels(t *testing.T) {
	tr := read(t)
	var sentinels []*ast.Ident
	coded := map[string]bool{}
	for _, f := range tr.goFiles {
		if f.dir != "." || f.test {
			continue
		}
		for _, d := range f.syntax.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				for _, name := range s.(*ast.ValueSpec).Names {
					switch {
					case name.Name == "codes":
						ast.Inspect(s, func(n ast.Node) bool {
							if id, ok := n.(*ast.Ident); ok {
								coded[id.Name] = true
							}
							return true
						})
					case !strings.HasPrefix(name.Name, "Err"):
					case f.path != "errors.go":
						t.Errorf("%s: %s belongs into errors.go", tr.at(name), name.Name)
					default:
						sentinels = append(sentinels, name)
					}
				}
			}
		}
	}
	for _, s := range sentinels {
		if !coded[s.Name] {
			t.Errorf("%s: %s has no code in codes", tr.at(s), s.Name)
		}
	}
	if len(sentinels) == 0 {
		t.Error("errors.go has no sentinel")
	}
}

// TestNoRegistries: nothing happens by being imported.
func TestNoRegistries(t *testing.T) {
	tr := read(t)
	for _, f := range tr.goFiles {
		if f.test {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: an init function; let the wiring call it", tr.at(fn))
			}
		}
		for _, im := range f.syntax.Imports {
			if p, _ := strconv.Unquote(im.Path.Value); im.Name != nil && im.Name.Name == "_" && p != "embed" {
				t.Errorf("%s: a blank import of %s; use a switch in the wiring", tr.at(im), p)
			}
		}
	}
}

// suspects are what machine looks around; most files hold none of them. Both
// are put together here so that they do not find themselves.
var suspects = []string{"/" + "work/", "/" + "root/", "/" + "home/", "/" + "Users/", "golang" + ".org", "registry" + ".npmjs", "deb" + ".debian"}

// machine finds what is true on one machine only.
var machine = regexp.MustCompile(
	`(^|[^A-Za-z0-9_.~/-])/(` + `work|root|home|Users)/[A-Za-z0-9_.]` +
		`|(proxy|sum)\.` + `golang\.org|registry\.` + `npmjs|deb\.` + `debian\.org`)

// TestNoMachinePaths: committed text names no folder of somebody's machine and
// no host of a package registry.
func TestNoMachinePaths(t *testing.T) {
	for _, p := range read(t).files {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p)))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text, 0) >= 0 || strings.HasSuffix(p, "go.sum") {
			continue
		}
		if !slices.ContainsFunc(suspects, func(s string) bool { return bytes.Contains(text, []byte(s)) }) {
			continue
		}
		n := 0
		for line := range bytes.Lines(text) {
			n++
			if m := machine.Find(line); m != nil {
				t.Errorf("%s:%d: %q is of one machine, or of a registry", p, n, bytes.TrimSpace(m))
			}
		}
	}
}
