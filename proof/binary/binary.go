// Package binary builds the real counterfoil program and runs it as a process
// of its own, so that suites can treat it as a user's machine would: by its
// listeners, its commands, and SIGKILL.
package binary

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var build struct {
	sync.Mutex
	dir  string
	made map[string]string
}

// Build compiles the program once per test process and returns its path. With
// race the race detector is in it; the fault points always are.
func Build(t testing.TB, race bool) string {
	t.Helper()
	build.Lock()
	defer build.Unlock()
	name := "counterfoil"
	args := []string{"build", "-tags", "faultpoints"}
	if race {
		name, args = "counterfoil-race", append(args, "-race")
	}
	if path, ok := build.made[name]; ok {
		return path
	}
	if build.dir == "" {
		dir, err := os.MkdirTemp("", "counterfoil-proof-")
		if err != nil {
			t.Fatal(err)
		}
		build.dir, build.made = dir, map[string]string{}
	}
	path := filepath.Join(build.dir, name)
	cmd := exec.Command("go", append(args, "-o", path, "./counterfoil")...)
	cmd.Dir = filepath.Join(root(t), "cmd")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	build.made[name] = path
	return path
}

// Clean removes what Build made; call it at the end of TestMain.
func Clean() {
	build.Lock()
	defer build.Unlock()
	if build.dir != "" {
		_ = os.RemoveAll(build.dir)
	}
}

// root is the repository's folder, found from the package under test.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("the repository's root was not found above the working directory")
	return ""
}

// Setup is a folder with a configuration, from which the server is started any
// number of times.
type Setup struct {
	Path   string // of the program
	Dir    string
	Listen string
	Admin  string
}

// NewSetup writes counterfoil.yaml and policy.yaml. store is the address of the
// store, such as "memory:" or "pebble:./data"; more are further lines of
// counterfoil.yaml.
func NewSetup(t testing.TB, path, upstream, store, policy string, more ...string) *Setup {
	t.Helper()
	s := &Setup{Path: path, Dir: t.TempDir(), Listen: freePort(t), Admin: freePort(t)}
	lines := append([]string{
		"listen: " + s.Listen,
		"admin: " + s.Admin,
		"upstream: " + upstream,
		"policy: policy.yaml",
		"store: " + strconv.Quote(store),
	}, more...)
	s.Write(t, "counterfoil.yaml", strings.Join(lines, "\n")+"\n")
	s.Write(t, "policy.yaml", policy)
	return s
}

// Write puts a file into the folder.
func (s *Setup) Write(t testing.TB, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.Dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// freePort finds a loopback address that nobody listens on. It stays below the
// ports that outgoing connections are given, which would take it at any moment.
func freePort(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		l, err := net.Listen("tcp", addr)
		if err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port was found")
	return ""
}

// Command runs another command of the program in the folder and returns what
// it wrote and how it ended.
func (s *Setup) Command(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	cmd := exec.CommandContext(ctx, s.Path, args...)
	cmd.Dir = s.Dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		return "", err.Error(), -1
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Process is one running server.
type Process struct {
	*Setup
	cmd  *exec.Cmd
	logs *buffer
	done chan struct{} // closed when the process has ended
}

// Start runs `counterfoil serve` with further environment variables, and
// returns when it is ready.
func (s *Setup) Start(t testing.TB, env ...string) *Process {
	t.Helper()
	p := s.Launch(t, env...)
	p.WaitReady(t)
	return p
}

// Launch is Start without waiting.
func (s *Setup) Launch(t testing.TB, env ...string) *Process {
	t.Helper()
	p := &Process{Setup: s, logs: &buffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(s.Path, "serve")
	p.cmd.Dir = s.Dir
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.logs, p.logs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() { p.Kill() })
	return p
}

// WaitReady polls /readyz until it says yes.
func (p *Process) WaitReady(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		select {
		case <-p.done:
			t.Fatalf("the server ended before it was ready:\n%s", p.Logs())
		default:
		}
		resp, err := http.Get("http://" + p.Admin + "/readyz")
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Fatalf("the server did not become ready:\n%s", p.Logs())
}

// Kill ends the process by SIGKILL and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.done
}

// KillAsync sends SIGKILL without waiting.
func (p *Process) KillAsync() { _ = p.cmd.Process.Signal(syscall.SIGKILL) }

// Signal sends sig.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Stop asks the process to end, waits, and returns its exit code.
func (p *Process) Stop(t testing.TB) int {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.Kill()
		t.Fatalf("the server did not stop:\n%s", p.Logs())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Logs is everything the process wrote.
func (p *Process) Logs() string { return p.logs.String() }

// URL is the address of the guarded listener.
func (p *Process) URL() string { return "http://" + p.Listen }

// AdminDo calls the records API with the token that the server made, and
// decodes the answer into out unless it is nil.
func (p *Process) AdminDo(t testing.TB, method, path string, in, out any) int {
	t.Helper()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.Admin+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.Token(t))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if out != nil && resp.StatusCode < 300 {
		if err := json.Unmarshal(text, out); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return resp.StatusCode
}

// Token is the first token of the tokens file, wherever it was made.
func (s *Setup) Token(t testing.TB) string {
	t.Helper()
	token, ok := s.TokenIfMade()
	if !ok {
		t.Fatal("no admin token was made")
	}
	return token
}

// TokenIfMade is Token for those who can do without.
func (s *Setup) TokenIfMade() (token string, ok bool) {
	_ = filepath.WalkDir(s.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(d.Name(), "tokens") {
			if b, err := os.ReadFile(path); err == nil {
				if f := strings.Fields(string(b)); len(f) >= 2 {
					token = f[len(f)-1]
				}
			}
		}
		return nil
	})
	return token, token != ""
}

// buffer is a bytes.Buffer that a process writes while a test reads.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.b.String()
	if len(s) > 20_000 {
		s = fmt.Sprintf("… %d bytes …\n%s", len(s)-20_000, s[len(s)-20_000:])
	}
	return s
}
