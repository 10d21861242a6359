package policyfile

import (
	"fmt"
	"strings"

	"github.com/counterfoil/counterfoil/policy"
)

// Codes of faults in the file itself, beside those of package policy. They
// never change their meaning.
const (
	// CodeFileUnsafe: others can change the file, or it lies elsewhere.
	CodeFileUnsafe policy.Code = "file-unsafe"
	// CodeTooLarge: more than [MaxSize] bytes.
	CodeTooLarge policy.Code = "file-too-large"
	// CodeEncoding: not UTF-8, or with NUL bytes.
	CodeEncoding policy.Code = "encoding-invalid"
	// CodeSyntax: not YAML, or no document in it.
	CodeSyntax policy.Code = "yaml-syntax"
	// CodeSecondDocument: something after the first document.
	CodeSecondDocument policy.Code = "yaml-second-document"
	// CodeAlias: anchors, aliases and tags, which hide what is written.
	CodeAlias policy.Code = "yaml-alias"
	// CodeDuplicateKey: one field twice.
	CodeDuplicateKey policy.Code = "duplicate-key"
	// CodeUnknownField: a field that nobody reads.
	CodeUnknownField policy.Code = "unknown-field"
	// CodeNotInThisVersion: a documented field whose behaviour is not built.
	CodeNotInThisVersion policy.Code = "not-in-this-version"
	// CodeValueMissing: a field without value.
	CodeValueMissing policy.Code = "value-missing"
	// CodeValueType: a list where a number belongs, and the like.
	CodeValueType policy.Code = "value-type"
	// CodeDurationInvalid: a duration that cannot be read (no unit, months).
	CodeDurationInvalid policy.Code = "duration-invalid"
	// CodeSizeInvalid: a size that cannot be read.
	CodeSizeInvalid policy.Code = "size-invalid"
)

// Finding is one fault of a policy file with its place.
type Finding struct {
	Severity policy.Severity `json:"severity"`
	Code     policy.Code     `json:"code"`
	File     string          `json:"file"`
	// Line and Column count from 1, columns in characters; both are 0 where the
	// fault is of the file as a whole.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Field is the path from the top: operations.payment_capture.lease.
	Field   string `json:"field"`
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
}

// String is the finding on one line, in the form that editors jump to.
func (f Finding) String() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File + ":")
	}
	if f.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", f.Line, f.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if f.Severity == policy.SeverityWarning {
		b.WriteString("warning: ")
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	b.WriteString(f.Message)
	if f.Remedy != "" {
		b.WriteString("; " + f.Remedy)
	}
	return b.String()
}

// Error is returned by [Load] and [Parse] when a file is refused. It holds all
// findings in the order of the file, warnings too; its text lists the errors.
type Error struct{ Findings []Finding }

// Error lists every error, one a line.
func (e *Error) Error() string {
	var lines []string
	for _, f := range e.Findings {
		if f.Severity == policy.SeverityError {
			lines = append(lines, f.String())
		}
	}
	return strings.Join(lines, "\n")
}

func refused(findings []Finding) bool {
	for _, f := range findings {
		if f.Severity == policy.SeverityError {
			return true
		}
	}
	return false
}
