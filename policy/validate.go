package policy

import (
	"fmt"
	"regexp"
	"slices"
)

// Severity says whether a finding keeps a policy from being used.
type Severity string

// The severities: an error refuses the policy, a warning does not.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Finding is one fault of a policy.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	// Operation is empty for a fault of the policy as a whole.
	Operation string `json:"operation,omitempty"`
	// Field is the path below the operation, or below the policy, as policy.yaml
	// spells it: ttl.client_retry_budget[1].inside. It is empty for the
	// operation itself.
	Field string `json:"field,omitempty"`
	// Message says what is wrong, Remedy what to write instead.
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	// Other is the second place of a fault that two places share, such as two
	// patterns in conflict; zero otherwise.
	Other Place `json:"-"`
}

// Place is a field of an operation, or of the policy where Operation is empty.
type Place struct{ Operation, Field string }

// String is the finding on one line: "operations.NAME.FIELD: message; remedy".
func (f Finding) String() string {
	s := f.Message
	if f.Remedy != "" {
		s += "; " + f.Remedy
	}
	if path := f.Path(); path != "" {
		s = path + ": " + s
	}
	return s
}

// Path is the place of the finding from the top of policy.yaml.
func (f Finding) Path() string {
	switch {
	case f.Operation == "":
		return f.Field
	case f.Field == "":
		return "operations." + f.Operation
	}
	return "operations." + f.Operation + "." + f.Field
}

// Refuses reports whether any finding is an error.
func Refuses(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == SeverityError })
}

// Validate lists everything in which the policy contradicts itself, all at
// once: faults of the whole first, then operation by operation. It compares
// with nothing outside: not with measurements, brokers or a predecessor.
func (p *Policy) Validate() []Finding {
	c := &checker{}
	if p.Version == 0 {
		c.fail(CodeVersionMissing, "version", "write a whole number above zero and raise it with every change",
			"the policy has no version")
	}
	if len(p.Operations) == 0 {
		c.fail(CodeOperationsMissing, "operations", "name at least one operation", "the policy has no operations")
	}
	c.names(p)
	for i := range p.Operations {
		c.operation(&p.Operations[i])
	}
	c.op = ""
	c.families(p)
	c.routes(p)
	if !Refuses(c.findings) {
		if _, err := ParseText(p.Text()); err != nil {
			c.fail(CodeTextInvalid, "", "write valid UTF-8 only", "the policy cannot be written down: %v", err)
		}
	}
	return c.findings
}

// checker collects findings about the operation it is at.
type checker struct {
	op       string
	findings []Finding
}

func (c *checker) fail(code Code, field, remedy, format string, args ...any) {
	c.add(SeverityError, code, field, remedy, fmt.Sprintf(format, args...))
}

// clash is fail for a fault that this place shares with another.
func (c *checker) clash(code Code, field string, other Place, remedy, format string, args ...any) {
	c.fail(code, field, remedy, format, args...)
	c.findings[len(c.findings)-1].Other = other
}

func (c *checker) warn(code Code, field, remedy, format string, args ...any) {
	c.add(SeverityWarning, code, field, remedy, fmt.Sprintf(format, args...))
}

func (c *checker) add(s Severity, code Code, field, remedy, message string) {
	c.findings = append(c.findings, Finding{Severity: s, Code: code, Operation: c.op, Field: field, Message: message, Remedy: remedy})
}

// operation checks one operation by itself.
func (c *checker) operation(o *Operation) {
	c.op = o.Name
	c.scope(o)
	c.key(o)
	c.fingerprint(o)
	c.resource(o)
	c.lifetimes(o)
	c.unknown(o)
	c.answers(o)
	c.limits(o)
	c.closure(o)
}

// names checks the names of operations and their past.
func (c *checker) names(p *Policy) {
	living, heirs := map[string]bool{}, map[string]string{}
	for i, o := range p.Operations {
		c.op = o.Name
		c.name("operation", "", o.Name)
		if living[o.Name] {
			c.fail(CodeOperationDuplicate, "", "give each its own name", "two operations are named %q", o.Name)
		}
		living[o.Name] = true
		if i > 0 && p.Operations[i-1].Name > o.Name {
			c.fail(CodeOperationsUnsorted, "", "call Normalize before Validate",
				"operation %q stands after %q; they must be sorted by name", o.Name, p.Operations[i-1].Name)
		}
	}
	for _, o := range p.Operations {
		from := o.RenamedFrom
		if from == "" {
			continue
		}
		c.op = o.Name
		c.name("operation", "renamed_from", from)
		switch {
		case living[from]:
			c.fail(CodeRenamedFrom, "renamed_from", "leave renamed_from out, or take the old operation out",
				"operation %q still exists", from)
		case heirs[from] != "":
			c.fail(CodeRenamedFrom, "renamed_from", "let one of them inherit its records",
				"%q and %q are both renamed from %q", heirs[from], o.Name, from)
		}
		heirs[from] = o.Name
	}
	c.op = ""
}

// NamePattern is the name of an operation, family, gate or retrier, as a
// regular expression that JSON Schema and Go read alike.
const NamePattern = `^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`

var nameForm = regexp.MustCompile(NamePattern)

// name checks a name that becomes a label, a path segment or a column.
func (c *checker) name(what, field, name string) {
	if !nameForm.MatchString(name) {
		c.fail(CodeNameInvalid, field, "use 1 to 64 of a-z, A-Z, 0-9, _, - and . beginning with a letter or digit",
			"%q is no name for %s %s", name, article(what), what)
	}
}

func article(noun string) string {
	if slices.Contains([]byte("aeiou"), noun[0]) {
		return "an"
	}
	return "a"
}

// families checks that operations that share keys agree on what a key is:
// otherwise the same key would be two records, or none.
func (c *checker) families(p *Policy) {
	first := map[string]*Operation{}
	for i := range p.Operations {
		o := &p.Operations[i]
		f := first[o.Family()]
		if f == nil {
			first[o.Family()] = o
			continue
		}
		c.op = o.Name
		remedy := fmt.Sprintf("write the same as %q, or give it a family of its own", f.Name)
		differ := func(field, mine, theirs string) {
			if mine != theirs {
				c.clash(CodeFamilyDiffers, field, Place{f.Name, field}, remedy, "%q and %q share the keys of family %q, but one says %s and the other %s",
					f.Name, o.Name, o.Family(), theirs, mine)
			}
		}
		differ("scope.principal", o.Scope.Principal.String(), f.Scope.Principal.String())
		differ("key.header", o.Key.Header, f.Key.Header)
		differ("key.format", string(o.Key.Format), string(f.Key.Format))
	}
	c.op = ""
}
