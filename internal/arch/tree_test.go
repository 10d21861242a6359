package arch_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// home is the module path of the root.
const home = "github.com/counterfoil/counterfoil"

// root is the root of the repository, as seen from this package.
const root = "../.."

// goFile is one parsed file. Paths are relative to the root, with slashes.
type goFile struct {
	path    string
	dir     string // "." for the root package
	module  string // the folder of its go.mod
	test    bool
	lines   int
	syntax  *ast.File
	imports []string
}

// tree is every file that is, or may come to be, committed.
type tree struct {
	fset    *token.FileSet
	files   []string // all of them, Go or not
	goFiles []*goFile
	modules []string // folders with a go.mod, the root's first
}

// read is the repository, walked and parsed once for all tests.
func read(t *testing.T) *tree {
	t.Helper()
	tr, err := readOnce()
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

var readOnce = sync.OnceValues(walk)

func walk() (*tree, error) {
	tr := &tree{fset: token.NewFileSet()}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case d.IsDir() && skipped(rel):
			return fs.SkipDir
		case d.IsDir() || !d.Type().IsRegular():
			return nil
		}
		tr.files = append(tr.files, rel)
		if path.Base(rel) == "go.mod" {
			tr.modules = append(tr.modules, path.Dir(rel))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(tr.modules)
	for _, f := range tr.files {
		// go vet and the compiler do not look into testdata either.
		if strings.HasSuffix(f, ".go") && !slices.Contains(strings.Split(f, "/"), "testdata") {
			if err := tr.parse(f); err != nil {
				return nil, err
			}
		}
	}
	if len(tr.goFiles) < 20 || !slices.Contains(tr.modules, ".") {
		return nil, fmt.Errorf("found %d Go files and the modules %v: this is not the repository", len(tr.goFiles), tr.modules)
	}
	return tr, nil
}

// skipped are the folders that git does not keep.
func skipped(rel string) bool {
	switch rel {
	case ".git", ".tools", ".test", "bin", "soak":
		return true
	}
	parts := strings.Split(rel, "/")
	return len(parts) == 3 && parts[0] == "examples" && parts[2] == "data"
}

func (tr *tree) parse(rel string) error {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(rel)))
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(tr.fset, rel, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &goFile{path: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"), syntax: syntax}
	f.lines = strings.Count(string(text), "\n")
	for _, m := range tr.modules {
		if m == "." || f.dir == m || strings.HasPrefix(f.dir, m+"/") {
			if len(m) > len(f.module) || f.module == "" {
				f.module = m
			}
		}
	}
	for _, im := range syntax.Imports {
		p, err := strconv.Unquote(im.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		f.imports = append(f.imports, p)
	}
	tr.goFiles = append(tr.goFiles, f)
	return nil
}

// ours turns an import path into a folder of the repository.
func ours(imported string) (dir string, ok bool) {
	if imported == home {
		return ".", true
	}
	return strings.CutPrefix(imported, home+"/")
}

// standard reports whether the path is one of the standard library: those have
// no dot in their first part.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// room is the part of the house that a folder belongs to.
func room(dir string) string {
	first, rest, _ := strings.Cut(dir, "/")
	if first == "internal" {
		next, _, _ := strings.Cut(rest, "/")
		return "internal/" + next
	}
	return first
}

// at is where a node stands, for messages.
func (tr *tree) at(n ast.Node) token.Position { return tr.fset.Position(n.Pos()) }
