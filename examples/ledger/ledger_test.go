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
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

// service is the real program on a database of its own.
type service struct {
	t    *testing.T
	path string
	url  string
	addr string
	cmd  *exec.Cmd
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{t: t, path: filepath.Join(t.TempDir(), "ledger"), url: pgtest.Shared(t).Database(t)}
	build := exec.Command("go", "build", "-race", "-tags", "faultpoints", "-o", s.path, ".")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for range 100 {
		s.addr = fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		if l, err := net.Listen("tcp", s.addr); err == nil {
			l.Close()
			break
		}
	}
	t.Cleanup(s.kill)
	return s
}

// start runs the program; it dies at that step, if it is not 0.
func (s *service) start(dieAt int) {
	s.t.Helper()
	s.cmd = exec.Command(s.path, "-listen", s.addr, "-database", s.url)
	s.cmd.Env = append(os.Environ(), "LEDGER_TRIAL=1", fmt.Sprintf("LEDGER_DIE_AT=%d", dieAt))
	var log bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for range 400 {
		if resp, err := http.Get("http://" + s.addr + "/books"); err == nil {
			resp.Body.Close()
			return
		}
		<-time.After(25 * time.Millisecond)
	}
	s.t.Fatalf("the service does not answer:\n%s", log.String())
}

func (s *service) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGKILL)
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// send asks once; status 0: no answer.
func (s *service) send(route, key string) (status int, body string) {
	text := fmt.Sprintf(`{"from":"alice","to":"bob","amount":7,"note":%q}`, route+key)
	req, err := http.NewRequest(http.MethodPost, "http://"+s.addr+route, bytes.NewBufferString(text))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("X-Account-Id", "alice")
	resp, err := (&http.Client{Timeout: 5 * time.Second}).Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(b)
}

// TestKill: the process dies at every step between two statements, and at random
// moments under load. Whatever a client was told, it is told again; each key
// moves money once; the books are balanced.
func TestKill(t *testing.T) {
	s := newService(t)
	told := map[string]string{} // what a client was told, by route and key
	finish := func(route, key string) {
		t.Helper()
		for range 200 {
			status, body := s.send(route, key)
			if status == http.StatusCreated {
				if was, ok := told[route+key]; ok && was != body {
					// Its response was not attached before the process died.
					var stub struct{ Record, Outcome string }
					if json.Unmarshal([]byte(body), &stub) != nil || stub.Outcome != "succeeded" {
						t.Fatalf("%s%s: told %q, and now %q", route, key, was, body)
					}
				}
				told[route+key] = body
				return
			}
			<-time.After(50 * time.Millisecond)
		}
		status, body := s.send(route, key)
		t.Fatalf("%s%s comes to no end: %d %s", route, key, status, body)
	}
	kills, keys := 0, map[string]bool{}
	// Each step of one request, in the order of the code.
	for _, route := range []string{"/transfers", "/journal"} {
		for at := 1; at <= 8; at++ {
			key := fmt.Sprintf("step-%d", at)
			keys[route+key] = true
			s.start(at)
			if status, body := s.send(route, key); status == http.StatusCreated {
				told[route+key] = body
			} else {
				kills++
			}
			s.kill()
			s.start(0)
			finish(route, key)
			s.kill()
		}
	}
	if kills < 12 {
		t.Errorf("only %d of 16 requests met a kill", kills)
	}
	// Random moments, many clients.
	var mu sync.Mutex
	for round := range 8 {
		s.start(0)
		var wg sync.WaitGroup
		var asked atomic.Int64
		for c := range 8 {
			wg.Go(func() {
				for i := 0; ; i++ {
					route, key := []string{"/transfers", "/journal"}[(c+i)%2], fmt.Sprintf("r%d-%d-%d", round, c, i)
					mu.Lock()
					keys[route+key] = true
					mu.Unlock()
					status, body := s.send(route, key)
					if status == 0 {
						return
					}
					asked.Add(1)
					if status == http.StatusCreated {
						mu.Lock()
						told[route+key] = body
						mu.Unlock()
					}
				}
			})
		}
		<-time.After(time.Duration(50+rand.IntN(250)) * time.Millisecond)
		s.kill()
		wg.Wait()
		kills++
	}
	s.start(0)
	done := len(told)
	for k := range keys {
		route, key := "/transfers", k[len("/transfers"):]
		if k[1] == 'j' {
			route, key = "/journal", k[len("/journal"):]
		}
		finish(route, key)
	}
	resp, err := http.Get("http://" + s.addr + "/books")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var books struct {
		Entries, Total int64
		Balanced       bool
	}
	if err := json.NewDecoder(resp.Body).Decode(&books); err != nil {
		t.Fatal(err)
	}
	if !books.Balanced || books.Total != 2_000_000 {
		t.Errorf("the books: %+v", books)
	}
	if books.Entries != int64(2*len(keys)) {
		t.Errorf("%d entries for %d keys, want two each", books.Entries, len(keys))
	}
	if twice := pgtest.Value[int64](t, s.url, "SELECT count(*) FROM (SELECT FROM entry GROUP BY note HAVING count(*) <> 2) x"); twice != 0 {
		t.Errorf("%d keys moved money other than once", twice)
	}
	if done < 20 || kills < 20 {
		t.Errorf("%d answers before the end and %d kills: the test shows too little", done, kills)
	}
	t.Logf("%d kills, %d keys, %d answered before the end, every key moved money once", kills, len(keys), done)
}
