package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/counterfoil/counterfoil/policy"
)

// parse turns the text into the node of its one document, or reports why not.
func (r *reader) parse(text []byte) *yaml.Node {
	refuse := func(code policy.Code, pos position, message, remedy string) *yaml.Node {
		r.add(policy.SeverityError, code, place{}, pos, message, remedy)
		return nil
	}
	if len(text) > MaxSize {
		return refuse(CodeTooLarge, position{}, "the file is larger than 1MiB", "split nothing: a policy this long is a mistake")
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return refuse(CodeEncoding, locate(text, i), "there is a NUL byte", "save the file as UTF-8 text")
	}
	if i := invalidUTF8(text); i >= 0 {
		return refuse(CodeEncoding, locate(text, i), fmt.Sprintf("byte 0x%02x is not UTF-8", text[i]), "save the file as UTF-8 text")
	}
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err != nil {
		return refuse(CodeSyntax, position{}, err.Error(), "")
	}
	var document, second yaml.Node
	switch err := loader.Load(&document); {
	case errors.Is(err, io.EOF):
		return refuse(CodeSyntax, position{1, 1}, "the file is empty", "write version and operations")
	case err != nil:
		return r.syntax(text, err)
	}
	switch err := loader.Load(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return r.syntax(text, err)
	default:
		return refuse(CodeSecondDocument, position{second.Line, second.Column}, "a second document begins here", "keep one document a file: take --- out, with what follows")
	}
	return document.Content[0]
}

// syntax reports what the YAML reader says, in words that help with tabs.
func (r *reader) syntax(text []byte, err error) *yaml.Node {
	pos, message, remedy := position{1, 1}, err.Error(), "mend the YAML here"
	if l := (*yaml.LoadError)(nil); errors.As(err, &l) {
		message = "not YAML: " + l.Message
		if l.ContextMsg != "" {
			message += " (" + l.ContextMsg + ")"
		}
		if l.Mark.Line > 0 {
			pos = position{l.Mark.Line, max(1, l.Mark.Column)}
		}
	}
	lines := strings.Split(string(text), "\n")
	if pos.line <= len(lines) {
		line := lines[pos.line-1]
		if indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]; strings.Contains(indent, "\t") {
			message, remedy = "the line is indented with a tab", "indent with spaces"
		}
	}
	r.add(policy.SeverityError, CodeSyntax, place{}, pos, message, remedy)
	return nil
}

// aliases refuses what makes a value stand elsewhere than where it is read:
// anchors, aliases and tags. A policy is read by people first, and an anchor
// can unfold into gigabytes.
func (r *reader) aliases(n *yaml.Node) {
	pos := position{n.Line, n.Column}
	const remedy = "write the value out where it belongs"
	switch {
	case n.Kind == yaml.AliasNode:
		r.add(policy.SeverityError, CodeAlias, place{}, pos, "alias *"+n.Value+" is not allowed", remedy)
	case n.Anchor != "":
		r.add(policy.SeverityError, CodeAlias, place{}, pos, "anchor &"+n.Anchor+" is not allowed", remedy)
	case n.Style&yaml.TaggedStyle != 0:
		r.add(policy.SeverityError, CodeAlias, place{}, pos, "tag "+n.Tag+" is not allowed", "take the tag out")
	}
	for _, child := range n.Content {
		r.aliases(child)
	}
}

// locate is the position of byte i.
func locate(text []byte, i int) position {
	before := text[:i]
	line := bytes.Count(before, []byte("\n")) + 1
	start := bytes.LastIndexByte(before, '\n') + 1
	return position{line, utf8.RuneCount(before[start:]) + 1}
}

// invalidUTF8 is the index of the first byte that is not UTF-8, or -1.
func invalidUTF8(text []byte) int {
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRune(text[i:])
		if c == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}
