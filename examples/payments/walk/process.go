package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// stopWithin is how long a process gets to end by itself.
const stopWithin = 10 * time.Second

// process is a program that runs beside the walk.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string // the file that its stderr goes to
	done chan struct{}
	err  error // of Wait; set when done is closed
}

// start runs a program; what it says goes to logPath.
func start(name, logPath, program string, args ...string) (*process, io.Reader, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close() // the program has its own handle
	// The program's own pipe: Cmd.StdoutPipe would be closed by Wait.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = w, log
	apart(cmd)
	if err := cmd.Start(); err != nil {
		r.Close()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: logPath, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, r, nil
}

// firstLine waits for the first line of r and lets the rest run off.
func firstLine(r io.Reader) (string, error) {
	b := bufio.NewReader(r)
	line, err := b.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("it ended before it said anything: %w", err)
	}
	go drain(b)
	return strings.TrimSpace(line), nil
}

// drain reads what nobody wants, so that the writer never blocks, until the
// program ends.
func drain(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

// kill ends the process as a power cut would: nothing in it runs any more.
func (p *process) kill() error {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// stop asks the process to end, and makes it after a while.
func (p *process) stop() error {
	select {
	case <-p.done:
		return nil // it ended already; whoever needed it has noticed
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	select {
	case <-p.done:
	case <-time.After(stopWithin):
		if err := p.kill(); err != nil {
			return err
		}
		return fmt.Errorf("%s did not stop within %s", p.name, stopWithin)
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) && exit.ExitCode() > 0 {
		return fmt.Errorf("%s stopped with exit code %d\n%s", p.name, exit.ExitCode(), p.tail())
	}
	return nil
}

// tail is the end of what the process said.
func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return p.name + " said last:\n  " + strings.Join(lines[max(0, len(lines)-15):], "\n  ")
}

// until asks again and again until ok, and gives up when ctx ends, the time is
// over, or the process it depends on does (nil: none).
func until(ctx context.Context, what string, limit time.Duration, needs *process, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var ended chan struct{}
	if needs != nil {
		ended = needs.done
	}
	for {
		yes, err := ok()
		if yes || err != nil {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ended:
			return fmt.Errorf("%s ended while the walk waited for %s", needs.name, what)
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", limit, what, context.Cause(ctx))
		}
	}
}
