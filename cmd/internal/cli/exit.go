package cli

import (
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil/cmd/internal/config"
	"github.com/counterfoil/counterfoil/policyfile"
)

// usageError is wrong usage or unreadable input: exit 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// silentError ends a run whose output has said everything already.
type silentError struct{ code int }

func (e *silentError) Error() string { return "the check failed" }

// hintedError carries a line for the person who must act.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

func hint(err error) string {
	var h *hintedError
	if errors.As(err, &h) {
		return h.hint
	}
	return ""
}

// exitCode is the one place where errors become exit codes.
func exitCode(err error) int {
	var silent *silentError
	var usage *usageError
	var refused *policyfile.Error
	var misconfigured *config.Error
	switch {
	case err == nil:
		return exitFine
	case errors.As(err, &silent):
		return silent.code
	case errors.As(err, &usage), errors.As(err, &refused), errors.As(err, &misconfigured):
		return exitUsage
	}
	return exitFailed
}

// unreadable marks an error about a file that the user named: exit 2.
func unreadable(err error) error { return &usageError{err} }
