package pgtest

import (
	"errors"
	"fmt"
	"testing"
)

// Shutdown is how a server is told to stop.
type Shutdown string

const (
	// Fast rolls back what is open, writes a checkpoint and stops. It waits until
	// every standby has everything, and thus for ever while one is frozen.
	Fast Shutdown = "fast"

	// Immediate stops without a word to anybody; the next start recovers.
	Immediate Shutdown = "immediate"
)

var (
	errDown   = errors.New("the server is not running")
	errUp     = errors.New("the server is running")
	errFrozen = errors.New("the server is frozen")
)

// Stop stops the server and waits for its end. A later Restart finds its data.
func (s *Server) Stop(t testing.TB, how Shutdown) {
	t.Helper()
	s.do(t, "stop", func() error {
		switch {
		case s.proc.ended():
			return errDown
		case s.frozen:
			return errFrozen
		case how == Fast:
			return s.proc.stop(sigInt)
		case how == Immediate:
			return s.proc.stop(sigQuit)
		}
		return fmt.Errorf("no such way to stop: %q", how)
	})
}

// Kill kills all processes of the server with SIGKILL, frozen or not, and waits
// until they are gone. What a client was told is committed is there after
// Restart.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.do(t, "kill", func() error {
		if s.proc.ended() {
			return errDown
		}
		s.frozen = false
		return s.proc.kill()
	})
}

// Restart starts the server again after Stop or Kill, with its data and on its
// port. It returns when connections are accepted, which is after recovery.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.do(t, "restart", func() error {
		if !s.proc.ended() {
			return errUp
		}
		return s.start()
	})
}

// Freeze stops all processes of the server where they are (SIGSTOP). Their
// connections stay open, and new ones are accepted by the kernel; nobody
// answers. It is what a client sees of a machine that hangs.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	s.do(t, "freeze", func() error {
		if s.proc.ended() {
			return errDown
		}
		s.frozen = true // also if only some of it is
		_, err := s.proc.freeze()
		return err
	})
}

// Thaw lets a frozen server go on as if nothing had been.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	s.do(t, "thaw", func() error {
		if s.proc.ended() {
			return errDown
		}
		s.frozen = false
		return s.proc.thaw()
	})
}

func (s *Server) do(t testing.TB, what string, change func() error) {
	t.Helper()
	s.mu.Lock()
	err := change()
	s.mu.Unlock()
	if err != nil {
		t.Fatalf("pgtest: %s: %v", what, err)
	}
}
