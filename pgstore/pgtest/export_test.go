//go:build linux

package pgtest

// What the tests look at from outside.

func (s *Server) Data() string { return s.data() }
func (s *Server) Base() string { return s.in.base }
func (s *Server) Pid() int     { return s.proc.pid }

func (s *Server) Children() ([]int, error) { return children(s.proc.pid) }

// Gone reports whether a process has ended.
func Gone(pid int) (bool, error) {
	state, _, err := status(pid)
	return state == 0, err
}

// Frozen reports whether a process is stopped.
func Frozen(pid int) (bool, error) {
	state, _, err := status(pid)
	return state == 'T', err
}

var Until = until
