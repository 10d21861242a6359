// Package faultpoint lets a test kill the real server at a named step of its
// work, or make its store fail. Without the build tag faultpoints it does
// nothing at all.
//
// With the tag, COUNTERFOIL_FAULT_AT=NAME:N ends the process by SIGKILL at the
// N-th time it comes to the step NAME; [Crashes] lists them. A NAME of
// [Failures] makes every such store call fail from the N-th on.
package faultpoint

// Crashes are the steps at which the server can be killed.
var Crashes = []string{
	"before-claim-commit",
	"during-claim-commit",
	"after-claim-commit",
	"before-completion-commit",
	"during-completion-commit",
	"after-completion-commit",
	"mid-sweep",
}

// Failures are the store calls that can be made to fail.
var Failures = []string{"claim-fails", "completion-fails"}
