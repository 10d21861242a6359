//go:build !faultpoints

package faultpoint_test

import (
	"testing"

	"github.com/counterfoil/counterfoil/cmd/internal/faultpoint"
	"github.com/counterfoil/counterfoil/memstore"
)

// TestOffWithoutTag: a released binary cannot be made to crash by a variable.
func TestOffWithoutTag(t *testing.T) {
	t.Setenv("COUNTERFOIL_FAULT_AT", "before-claim-commit:1")
	s := memstore.New(memstore.Options{})
	defer s.Close()
	if got := faultpoint.Wrap(s); got != s {
		t.Errorf("Wrap returned %T", got)
	}
}
