//go:build !faultpoints

package faultpoint

import "github.com/counterfoil/counterfoil"

// Wrap returns s itself: this binary has no crash points.
func Wrap(s counterfoil.Store) counterfoil.Store { return s }
