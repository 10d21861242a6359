package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	sigQuit = syscall.SIGQUIT
	sigInt  = syscall.SIGINT
)

// process is a running server, with its children.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended
	err  error         // how; after done
}

// apply makes the command run as the account, and in a session of its own: a
// Ctrl-C in the terminal is for the test.
func (a account) apply(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if a.other {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
}

// start starts a server that gets the signal when this process dies.
//
// Linux keeps that promise by thread: the signal comes when the thread that
// forked ends, which in Go may be long before the process does. So one goroutine
// forks and waits, and keeps its thread to itself meanwhile.
func start(cmd *exec.Cmd, atDeath syscall.Signal) (*process, error) {
	cmd.SysProcAttr.Pdeathsig = atDeath
	p := &process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.done)
	}()
	return p, <-started
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop sends the first process a signal and waits for its end.
func (p *process) stop(s syscall.Signal) error {
	if err := signal(p.pid, s); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("process %d: still there %s after the signal %q", p.pid, patience, s)
	}
}

// kill kills the first process and its children, and waits until all are gone.
// The children of a dead postmaster would go by themselves, but only after the
// statement they are at; a server that is lost is lost with all of them.
func (p *process) kill() error {
	pids, err := p.freeze() // what is stopped has no further children
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := signal(pid, syscall.SIGKILL); err != nil {
			return err
		}
	}
	<-p.done
	return await(pids, "killed", func(state byte) bool { return state == 0 })
}

// freeze stops the first process and then its children, and says which.
func (p *process) freeze() ([]int, error) {
	stopped := func(state byte) bool { return state == 'T' || state == 0 }
	if err := signal(p.pid, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	if err := await([]int{p.pid}, "frozen", stopped); err != nil {
		return nil, err
	}
	pids, err := children(p.pid)
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if err := signal(pid, syscall.SIGSTOP); err != nil {
			return nil, err
		}
	}
	return append(pids, p.pid), await(pids, "frozen", stopped)
}

func (p *process) thaw() error {
	pids, err := children(p.pid)
	if err != nil {
		return err
	}
	for _, pid := range append(pids, p.pid) {
		if err := signal(pid, syscall.SIGCONT); err != nil {
			return err
		}
	}
	return nil
}

// signal does not mind a process that is gone.
func signal(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %q to process %d: %w", s, pid, err)
	}
	return nil
}

// await waits until every one of the processes is in such a state.
func await(pids []int, what string, in func(state byte) bool) error {
	for _, pid := range pids {
		err := until(patience, fmt.Sprintf("process %d %s", pid, what), func() (bool, error) {
			state, _, err := status(pid)
			return in(state), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// status is the state of a process, and its parent. The state is 0 when it is
// gone; a zombie is, for it has given everything back, and in a container there
// may be nobody who ever collects it.
func status(pid int) (state byte, parent int, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0, 0, nil
	} else if err != nil {
		return '?', 0, err
	}
	// The second field is a name in brackets, which may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return '?', 0, fmt.Errorf("process %d: unexpected status %q", pid, text)
	}
	if parent, err = strconv.Atoi(fields[1]); err != nil {
		return '?', 0, err
	}
	if state = fields[0][0]; state == 'Z' || state == 'X' {
		state = 0
	}
	return state, parent, nil
}

// children are the processes whose parent this is.
func children(of int) ([]int, error) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if state, parent, err := status(pid); err == nil && state != 0 && parent == of {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// afterwards waits for the end of its standard input, which is the end of the
// test process. What belongs to that process is known by its working directory.
// Whatever is frozen must wake up to see the signal it has got already.
const afterwards = `
base=$1
left() {
	ls -l /proc/[0-9]*/cwd | sed -n "s|.* /proc/\([0-9]*\)/cwd -> $base/.*|\1|p"
}
cd / && read -r _
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	pids=$(left)
	[ -n "$pids" ] || break
	kill -CONT $pids
	sleep 0.1
done
[ -z "$pids" ] || kill -KILL $pids
rm -rf "$base"
`

// watchdog starts the shell that cleans up after this process, as the account
// that owns everything: even root may need a capability to see where another's
// process works. The pipe's end stays open until this process is gone.
func (in *install) watchdog() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := in.command("sh", "-c", afterwards, "pgtest-watchdog", in.base)
	cmd.Stdin = r
	cmd.SysProcAttr.Pdeathsig = 0
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}
