package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/policyfile"
)

// reader fills a Config from YAML nodes. It goes on after a fault, so that one
// run shows them all.
type reader struct {
	config   Config
	name     string // of the file, or of the variable being read
	dir      string
	seen     map[string]place
	broken   map[string]bool
	findings []policyfile.Finding
}

// place is where a field was written; name is empty for one that was not.
type place struct {
	name         string
	line, column int
}

func newReader(path string) *reader {
	r := &reader{name: path, seen: map[string]place{}, broken: map[string]bool{}}
	r.config = Config{File: path}
	if path != "" {
		r.dir = filepath.Dir(path)
	}
	return r
}

// file reads the one document of a configuration file.
func (r *reader) file(text []byte) {
	root := r.parse(text)
	if root == nil {
		return
	}
	if root.Kind != yaml.MappingNode {
		r.fail(policyfile.CodeValueType, "", root, "the file is not a mapping", "write fields, one a line: upstream: http://127.0.0.1:9000")
		return
	}
	r.pairs(root, "", fieldNames(), func(name string, value *yaml.Node) {
		r.field(name, value)
	})
}

// parse turns text into the node of its one document, or reports why not.
func (r *reader) parse(text []byte) *yaml.Node {
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err != nil {
		r.syntax(err)
		return nil
	}
	var document, second yaml.Node
	switch err := loader.Load(&document); {
	case errors.Is(err, io.EOF):
		return &yaml.Node{Kind: yaml.MappingNode, Line: 1, Column: 1}
	case err != nil:
		r.syntax(err)
		return nil
	}
	if err := loader.Load(&second); err == nil {
		r.fail(policyfile.CodeSecondDocument, "", &second, "a second document begins here", "keep one document a file: take --- out, with what follows")
		return nil
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil
	}
	if n := unusual(document.Content[0]); n != nil {
		// An anchor can unfold into gigabytes, and hides what is written.
		r.fail(policyfile.CodeAlias, "", n, "anchors, aliases and tags are not allowed", "write the value out where it belongs")
		return nil
	}
	return document.Content[0]
}

func (r *reader) syntax(err error) {
	at, message := &yaml.Node{Line: 1, Column: 1}, err.Error()
	if l := (*yaml.LoadError)(nil); errors.As(err, &l) {
		message = "not YAML: " + l.Message
		if l.Mark.Line > 0 {
			at = &yaml.Node{Line: l.Mark.Line, Column: max(1, l.Mark.Column)}
		}
	}
	r.fail(policyfile.CodeSyntax, "", at, message, "mend the YAML here; indent with spaces")
}

// unusual is the first anchor, alias or tag, or nil.
func unusual(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		return n
	}
	for _, child := range n.Content {
		if bad := unusual(child); bad != nil {
			return bad
		}
	}
	return nil
}

// pairs calls each for every known key of a mapping and refuses the others.
func (r *reader) pairs(n *yaml.Node, within string, known []string, each func(name string, value *yaml.Node)) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field := within + key.Value
		switch line, again := first[key.Value]; {
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			r.fail(policyfile.CodeValueType, within, key, "a field's name must be plain text", "write a name")
		case again:
			r.fail(policyfile.CodeDuplicateKey, field, key, fmt.Sprintf("it is already written in line %d", line), "take one of them out")
		case !slices.Contains(known, key.Value):
			r.unknown(field, key, known)
		case value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null":
			r.fail(policyfile.CodeValueMissing, field, key, "the field has no value", "write one, or take the line out to get the default")
		default:
			first[key.Value] = key.Line
			r.seen[field] = place{r.name, value.Line, value.Column}
			each(key.Value, value)
		}
		if _, ok := first[key.Value]; !ok {
			first[key.Value] = key.Line
		}
	}
}

func (r *reader) unknown(field string, key *yaml.Node, known []string) {
	remedy := "known here: " + strings.Join(known, ", ")
	if near := policyfile.Nearest(key.Value, known); near != "" {
		remedy = "did you mean " + near + "? (" + remedy + ")"
	}
	r.fail(policyfile.CodeUnknownField, field, key, "unknown field", remedy)
}

// fail records a fault at a node.
func (r *reader) fail(code policy.Code, field string, n *yaml.Node, message, remedy string) {
	r.add(code, field, place{r.name, n.Line, n.Column}, message, remedy)
}

func (r *reader) add(code policy.Code, field string, at place, message, remedy string) {
	r.broken[field] = true
	r.findings = append(r.findings, policyfile.Finding{
		Severity: policy.SeverityError, Code: code, File: at.name, Line: at.line, Column: at.column,
		Field: field, Message: message, Remedy: remedy,
	})
}

// contradiction records a fault of a field that was read before.
func (r *reader) contradiction(code policy.Code, field, message, remedy string) {
	if r.broken[field] {
		return
	}
	at, ok := r.seen[field]
	if !ok {
		at = place{name: r.config.File}
	}
	r.add(code, field, at, message, remedy)
}

func (r *reader) sorted() []policyfile.Finding {
	slices.SortStableFunc(r.findings, func(a, b policyfile.Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.findings
}

// text is the scalar as written; a number or true is text too, as 8420 is a
// fair name of a file.
func (r *reader) text(field string, n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		r.fail(policyfile.CodeValueType, field, n, "it is a list or a mapping", "write one value")
		return "", false
	}
	if strings.TrimSpace(n.Value) == "" {
		r.fail(policyfile.CodeValueMissing, field, n, "it is empty", "write a value, or take the line out to get the default")
		return "", false
	}
	return n.Value, true
}

// texts are the items of a list.
func (r *reader) texts(field string, n *yaml.Node, each func(item *yaml.Node, s string)) {
	if n.Kind != yaml.SequenceNode {
		r.fail(policyfile.CodeValueType, field, n, "it is not a list", "write a list: [first, second]")
		return
	}
	for _, item := range n.Content {
		if s, ok := r.text(field, item); ok {
			each(item, s)
		}
	}
}
