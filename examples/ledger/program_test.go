package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program is the real ledger, built with its steps, on an address that stays
// the same however often it is started again.
type program struct {
	path, listen, database string
}

var built struct {
	sync.Mutex
	path string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.path != "" {
		_ = os.RemoveAll(filepath.Dir(built.path))
	}
	os.Exit(code)
}

// build compiles the program once, with the race detector if the test has it.
func build(t *testing.T) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.path != "" {
		return built.path
	}
	dir, err := os.MkdirTemp("", "ledger-")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-tags", "faultpoints", "-o", filepath.Join(dir, "ledger")}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	built.path = filepath.Join(dir, "ledger")
	return built.path
}

func newProgram(t *testing.T, database string) *program {
	t.Helper()
	p := &program{path: build(t), database: database}
	// Below the ports that outgoing connections are given.
	for range 100 {
		p.listen = fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		if l, err := net.Listen("tcp", p.listen); err == nil {
			l.Close()
			return p
		}
	}
	t.Fatal("no free port was found")
	return nil
}

// process is one life of the program.
type process struct {
	cmd  *exec.Cmd
	log  bytes.Buffer // read it after done
	done chan struct{}
}

// start returns when the program answers, or has ended already.
func (p *program) start(t *testing.T, env ...string) *process {
	t.Helper()
	life := &process{cmd: exec.Command(p.path, "-listen", p.listen, "-database", p.database), done: make(chan struct{})}
	life.cmd.Env = append(os.Environ(), env...)
	life.cmd.Stdout, life.cmd.Stderr = &life.log, &life.log
	if err := life.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = life.cmd.Wait(); close(life.done) }()
	t.Cleanup(life.kill)
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		if conn, err := net.Dial("tcp", p.listen); err == nil {
			conn.Close()
			return life
		}
		select {
		case <-life.done:
			return life
		case <-time.After(2 * time.Millisecond):
		}
	}
	life.kill()
	t.Fatalf("the program does not answer:\n%s", life.log.String())
	return nil
}

func (l *process) kill() {
	_ = l.cmd.Process.Signal(syscall.SIGKILL)
	<-l.done
}

// killed reports whether SIGKILL was its end, and by which step of its own.
func (l *process) killed() (ok bool, step string) {
	<-l.done
	status, _ := l.cmd.ProcessState.Sys().(syscall.WaitStatus)
	_, step, _ = strings.Cut(l.log.String(), "dying at: ")
	return status.Signaled() && status.Signal() == syscall.SIGKILL, strings.TrimSpace(step)
}

// told is an answer. status is 0 where none came.
type told struct {
	status         int
	mark, location string
	body           string
}

// send sends one order, once.
func (p *program) send(t *testing.T, route, account, key, body string) told {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.listen+route, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return told{}
	}
	req.SetBasicAuth(account, "")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := client.Do(req)
	if err != nil {
		return told{}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return told{}
	}
	return told{resp.StatusCode, resp.Header.Get("Idempotency-Status"), resp.Header.Get("Location"), string(b)}
}

var client = &http.Client{Timeout: 20 * time.Second}

// get decodes what a GET answers, and returns its status.
func (p *program) get(t *testing.T, account, path string, into any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.listen+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(account, "")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode
}

type books struct {
	Accounts, Entries, Sum int64
	Balanced               bool
}

// balanced reads the books and checks them.
func (p *program) balanced(t *testing.T) books {
	t.Helper()
	var b books
	if status := p.get(t, "alice", "/books", &b); status != http.StatusOK || !b.Balanced || b.Sum != b.Accounts*100_000 {
		t.Errorf("the books, with status %d: %+v", status, b)
	}
	return b
}
