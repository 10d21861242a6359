//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// apart keeps Ctrl-C at the terminal from reaching the programs: the walk ends
// them itself, the guard first.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
