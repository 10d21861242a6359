package counterfoil_test

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages are the Markdown files of the root and of docs.
func pages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	read := func(path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.ToSlash(path)] = string(b)
	}
	root, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range root {
		read(path)
	}
	err = filepath.WalkDir("docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			read(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 10 {
		t.Fatalf("found only %d pages", len(pages))
	}
	return pages
}

var (
	fences = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	links  = regexp.MustCompile(`\]\(([^)\s]+)\)|(?m)^\[[^\]\n]+\]: (\S+)$`)
	// anything that is not part of an anchor, as GitHub makes them
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Every relative link leads somewhere, anchors included.
func TestLinksResolve(t *testing.T) {
	all := pages(t)
	for path, text := range all {
		for _, m := range links.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
			link := m[1] + m[2]
			u, err := url.Parse(link)
			if err != nil {
				t.Errorf("%s: link %s: %v", path, link, err)
				continue
			}
			if u.Scheme != "" || u.Host != "" {
				continue
			}
			to := path
			if u.Path != "" {
				to = filepath.ToSlash(filepath.Join(filepath.Dir(path), u.Path))
				if strings.HasPrefix(to, "..") {
					t.Errorf("%s: link %s leads out of the repository", path, link)
					continue
				}
				if _, err := os.Stat(to); err != nil {
					t.Errorf("%s: link %s: %v", path, link, err)
					continue
				}
			}
			if u.Fragment != "" && !anchors(all[to])[u.Fragment] {
				t.Errorf("%s: link %s: %s has no such heading", path, link, to)
			}
		}
	}
}

func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(fences.ReplaceAllString(text, "")) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		title = notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
		found[strings.ReplaceAll(title, " ", "-")] = true
	}
	return found
}

// Every page, and every decision record, is in the index, under its own title.
func TestIndexIsComplete(t *testing.T) {
	all := pages(t)
	index := all["docs/README.md"]
	for path, text := range all {
		name, inside := strings.CutPrefix(path, "docs/")
		if !inside || name == "README.md" {
			continue
		}
		if !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
		number, decision := strings.CutPrefix(name, "decisions/")
		if !decision {
			continue
		}
		number, _, _ = strings.Cut(number, "-")
		heading, _, _ := strings.Cut(text, "\n")
		title, ok := strings.CutPrefix(heading, "# "+number+": ")
		if !ok {
			t.Errorf("%s begins with %q, want # %s: and its title", path, heading, number)
		}
		if !strings.Contains(index, "| ["+number+"]("+name+") | "+title+" |") {
			t.Errorf("docs/README.md does not list %s as %q", name, title)
		}
		for _, part := range []string{"Context", "Decision", "Consequences", "Refused"} {
			if !strings.Contains(text, "\n## "+part+"\n") {
				t.Errorf("%s has no part %s", path, part)
			}
		}
	}
}

// A block of a page that is marked with a file is that file, or the part of it
// between "README: begin" and "README: end".
var marked = regexp.MustCompile("(?ms)^<!-- file: (\\S+) -->\n```\\w*\n(.*?)^```$")

func TestBlocksAreFiles(t *testing.T) {
	n := 0
	for path, text := range pages(t) {
		for _, m := range marked.FindAllStringSubmatch(text, -1) {
			n++
			b, err := os.ReadFile(m[1])
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			want := string(b)
			if _, after, ok := strings.Cut(want, "README: begin\n"); ok {
				want, _, _ = strings.Cut(after, "// README: end")
				want = strings.TrimRight(want, "\n") + "\n"
			}
			if m[2] != want {
				t.Errorf("%s: the block of %s differs from the file; it should be\n%s", path, m[1], want)
			}
		}
	}
	if n < 3 {
		t.Errorf("found %d blocks that are files, want the README's three at least", n)
	}
}
