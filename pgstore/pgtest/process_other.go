//go:build !linux

package pgtest

import (
	"errors"
	"os"
	"os/exec"
)

var errLinux = errors.New("servers are started on Linux only: their processes are found under /proc")

type sig int

const (
	sigQuit sig = iota
	sigInt
)

type process struct {
	pid  int
	done chan struct{}
	err  error
}

func (account) apply(*exec.Cmd) {}

func start(*exec.Cmd, sig) (*process, error) { return nil, errLinux }

func (*process) ended() bool            { return true }
func (*process) stop(sig) error         { return errLinux }
func (*process) kill() error            { return errLinux }
func (*process) freeze() ([]int, error) { return nil, errLinux }
func (*process) thaw() error            { return errLinux }

func (*install) watchdog() (*os.File, error) { return nil, errLinux }
