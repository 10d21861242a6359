package config

import (
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/counterfoil/counterfoil/policyfile"
)

// Variable is the environment variable that overrides a field.
func Variable(field string) string { return "COUNTERFOIL_" + strings.ToUpper(field) }

// lists are the fields that a variable may spell as words between commas.
var lists = map[string]bool{"trusted_peers": true, "accept": true}

// environment reads one variable per field. A value is what would stand after
// the colon in the file; lists may also be written a, b. Relative paths are
// resolved as in the file, so that moving a line into the environment does not
// change its meaning.
func (r *reader) environment(lookup func(string) (string, bool)) {
	for _, field := range fieldNames() {
		text, ok := lookup(Variable(field))
		if !ok {
			continue
		}
		// The variable wins: what the file said of this field is of no account.
		r.drop(field)
		r.name = Variable(field)
		r.seen[field] = place{name: r.name}
		if n := r.value(field, text); n != nil {
			r.field(field, n)
		}
	}
	r.name = r.config.File
}

// drop forgets the faults of a field and of what is below it.
func (r *reader) drop(field string) {
	kept := r.findings[:0]
	for _, f := range r.findings {
		if f.Field == field && f.Code != policyfile.CodeDuplicateKey || strings.HasPrefix(f.Field, field+".") {
			delete(r.broken, f.Field)
			continue
		}
		kept = append(kept, f)
	}
	r.findings = kept
}

// value is the node that a variable's text stands for; nil if it is reported
// as unreadable.
func (r *reader) value(field, text string) *yaml.Node {
	scalar := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	switch trimmed := strings.TrimSpace(text); {
	case strings.HasPrefix(trimmed, "[") && lists[field], strings.HasPrefix(trimmed, "{") && field == "auth_request":
		return r.parse([]byte(text))
	case lists[field]:
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, word := range strings.Split(trimmed, ",") {
			if word = strings.TrimSpace(word); word != "" {
				list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: word})
			}
		}
		return list
	}
	return scalar
}
