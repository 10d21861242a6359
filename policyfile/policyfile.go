// Package policyfile reads policy.yaml into a [policy.Policy], strictly: what
// it does not know, cannot act on or finds contradictory it refuses, naming
// line, column and field, and what to write instead. It lists every fault at
// once.
//
// [Load] reads a file for a service, [Check] has the findings for tools and
// editors, and [Schema] the JSON Schema of the file.
package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/counterfoil/counterfoil/policy"
)

// MaxSize is the most a policy file may hold, in bytes.
const MaxSize = 1 << 20

// Load reads the policy file at path. The file must be a regular one that not
// everybody can write, and no symbolic link may lead out of its directory: who
// can change the policy can have effects run twice. Refusals are an [*Error];
// other errors are those of the file system, wrapped.
func Load(path string) (*policy.Policy, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

func readFile(path string) ([]byte, error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("policy file: %w", err)
	}
	defer dir.Close()
	base := filepath.Base(path)

	// Stat before Open: opening a pipe would wait for its writer.
	info, err := dir.Stat(base)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("policy file: %w", err)
		}
		return nil, unsafeFile(path, err.Error(), "keep the file itself, or the end of a relative link, in the directory that is named")
	}
	if err := safe(path, info); err != nil {
		return nil, err
	}
	f, err := dir.Open(base)
	if err != nil {
		return nil, fmt.Errorf("policy file: %w", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("policy file: %w", err)
	}
	if err := safe(path, info); err != nil { // what was opened, should it have been swapped
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("policy file: %w", err)
	}
	return text, nil
}

// safe judges the file that links led to.
func safe(path string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return unsafeFile(path, "it is not a regular file", "name a file")
	case info.Mode().Perm()&0o002 != 0:
		return unsafeFile(path, fmt.Sprintf("everybody can write it (mode %04o)", info.Mode().Perm()), "take that away: chmod o-w")
	}
	return nil
}

func unsafeFile(path, message, remedy string) error {
	return &Error{[]Finding{{Severity: policy.SeverityError, Code: CodeFileUnsafe, File: path, Message: message, Remedy: remedy}}}
}

// Parse reads the text of a policy file; name stands for it in messages. A
// refusal is an [*Error] with every finding; warnings alone refuse nothing.
func Parse(name string, text []byte) (*policy.Policy, error) {
	p, findings := Check(name, text)
	if p == nil {
		return nil, &Error{findings}
	}
	return p, nil
}

// Check reads the text of a policy file and lists what is wrong with it, in
// the order of the file. The policy is nil if any finding is an error, and
// otherwise in normal form ([policy.Policy.Normalize]).
func Check(name string, text []byte) (*policy.Policy, []Finding) {
	r := &reader{file: name, at: map[place]position{{}: {1, 1}}, broken: map[place]bool{}}
	root := r.parse(text)
	if root == nil {
		return nil, r.findings
	}
	r.aliases(root)
	var form fileForm
	r.value(root, place{}, reflect.ValueOf(&form).Elem())
	p := build(&form)
	for _, f := range p.Validate() {
		if r.follows(f) {
			continue
		}
		message, at := f.Message, place{f.Operation, f.Field}
		if f.Other != (policy.Place{}) {
			message += fmt.Sprintf(" (line %d)", r.nearest(place{f.Other.Operation, f.Other.Field}).line)
		}
		r.add(f.Severity, f.Code, at, r.nearest(at), message, f.Remedy)
	}
	slices.SortStableFunc(r.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if refused(r.findings) {
		return nil, r.findings
	}
	p.Normalize()
	return p, r.findings
}

// nearest is the position of a place, or of what is around it if the file does
// not have it.
func (r *reader) nearest(at place) position {
	for {
		if pos, ok := r.at[at]; ok {
			return pos
		}
		at = at.parent()
	}
}

// comparing are the findings that set several fields against each other. They
// say nothing while one of the fields could not be read.
var comparing = []policy.Code{
	policy.CodeTTLZero, policy.CodeProtectBelowTTL, policy.CodeReplayBeyondHorizon, policy.CodeLeaseBeyondHorizon,
	policy.CodeLeaseLong, policy.CodeWaitLong, policy.CodeRedispatchWindow, policy.CodePrincipalCredential,
	policy.CodeHoldNeedsOperator, policy.CodeKeysSpent, policy.CodeSeeOtherNeedsResource, policy.CodeResourceInvalid,
	policy.CodeFamilyDiffers,
}

// follows reports whether a finding of policy.Validate only follows from what
// could not be read: the value there is a default, or nothing.
func (r *reader) follows(f policy.Finding) bool {
	if r.broken[place{}] {
		return true
	}
	for at := (place{f.Operation, f.Field}); at != (place{}); at = at.parent() {
		if r.broken[at] {
			return true
		}
	}
	compares := slices.Contains(comparing, f.Code)
	for b := range r.broken {
		if compares && (b.operation == f.Operation || f.Code == policy.CodeFamilyDiffers) {
			return true
		}
		// A finding about a whole follows from a part of it that is broken.
		for at := b; at != (place{}); at = at.parent() {
			if f.Field != "" && at == (place{f.Operation, f.Field}) {
				return true
			}
		}
	}
	return false
}
