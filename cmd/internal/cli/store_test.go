package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/cmd/internal/admin"
	"github.com/counterfoil/counterfoil/cmd/internal/config"
	"github.com/counterfoil/counterfoil/cmd/internal/server"
)

// site is a configuration in a directory of its own, with an upstream that
// answers what Next says.
type site struct {
	dir, config, listen string
	next                atomic.Int32 // the upstream's status
	stop                func()       // ends the serve that runs, if one does
}

const sitePolicy = `version: 1
operations:
  pay:
    match: ["POST /pay"]
    scope: {principal: header:X-Account-Id}
    ttl: {client_retry_budget: 1h}
`

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	s.next.Store(http.StatusCreated)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(s.next.Load()))
		fmt.Fprintln(w, "done")
	}))
	t.Cleanup(upstream.Close)
	s.listen = freePort(t)
	s.config = filepath.Join(s.dir, "counterfoil.yaml")
	text := fmt.Sprintf("listen: %s\nadmin: %s\nupstream: %s\n", s.listen, freePort(t), upstream.URL)
	for path, text := range map[string]string{s.config: text, filepath.Join(s.dir, "policy.yaml"): sitePolicy} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serve runs a guard until stop.
func (s *site) serve(t *testing.T) {
	t.Helper()
	c, err := config.Load(s.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	srv := server.New(c, server.Options{})
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := srv.Stop(ctx); err != nil {
			t.Error(err)
		}
		s.stop = nil
	}
	t.Cleanup(func() {
		if s.stop != nil {
			s.stop()
		}
	})
}

// pay sends one request and returns its record's id.
func (s *site) pay(t *testing.T, key string, status int) (id string) {
	t.Helper()
	s.next.Store(int32(status))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.listen+"/pay", strings.NewReader(`{"amount":1}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("X-Account-Id", "acct_1")
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if id = resp.Header.Get("Idempotency-Record"); id == "" || resp.StatusCode != status {
		t.Fatalf("POST /pay: %s, record %q", resp.Status, id)
	}
	return id
}

func (s *site) run(t *testing.T, args ...string) result {
	t.Helper()
	return run(t, append(args, "--config", s.config)...)
}

// TestCommandsWorkBesideServeAndWithoutIt asks the same things of a running
// serve and, when it is gone, of the store itself.
func TestCommandsWorkBesideServeAndWithoutIt(t *testing.T) {
	s := newSite(t)
	if r := s.run(t, "record", "list").want(t, 1); !strings.Contains(r.stderr, "there is no store at") {
		t.Errorf("list without a store: %s", r.stderr)
	}
	s.serve(t)
	paid := s.pay(t, "k-1", 201)
	lost := s.pay(t, "k-2", 500)
	gone := s.pay(t, "k-3", 500)

	ask := func(t *testing.T) {
		t.Helper()
		show := s.run(t, "record", "show", paid).want(t, 0).stdout
		for _, want := range []string{paid + "  pay  completed", "It succeeded with status 201", "may go", "policy"} {
			if !strings.Contains(show, want) {
				t.Errorf("record show lacks %q:\n%s", want, show)
			}
		}
		// The quoted key is the same key.
		byKey := s.run(t, "record", "show", "--operation", "pay", "--principal", "acct_1", "--key", `"k-1"`, "-o", "json").want(t, 0).items(t)
		if len(byKey) != 1 || byKey[0]["id"] != paid || byKey[0]["why"] == "" {
			t.Errorf("record by key: %v", byKey)
		}
		if r := s.run(t, "record", "show", strings.Repeat("0", 40)).want(t, 1); !strings.Contains(r.stderr, "not found") {
			t.Errorf("record that is not there: %s", r.stderr)
		}
		if r := s.run(t, "record", "show", "--operation", "nay", "--principal", "a", "--key", "k").want(t, 2); !strings.Contains(r.stderr, "it has pay") {
			t.Errorf("operation that is not there: %s", r.stderr)
		}
		if list := s.run(t, "record", "list", "-o", "json").want(t, 0).items(t); len(list) != 3 {
			t.Errorf("%d records, want 3", len(list))
		}
		page := s.run(t, "record", "list", "--operation", "pay", "--limit", "1").want(t, 0)
		if n := strings.Count(page.stdout, "\n"); n != 2 || !strings.HasPrefix(page.stdout, "ID ") || !strings.Contains(page.stderr, "there are more") {
			t.Errorf("first page of one:\n%s%s", page.stdout, page.stderr)
		}
		if none := s.run(t, "record", "list", "--older-than", "30d").want(t, 0); none.stdout != "" || !strings.Contains(none.stderr, "no such records") {
			t.Errorf("empty list: %s%s", none.stdout, none.stderr)
		}
		if got := s.run(t, "sweep", "-o", "json").want(t, 0).items(t); got[0]["complete"] != true {
			t.Errorf("sweep: %v", got)
		}
		for _, f := range s.run(t, "doctor", "-o", "json").want(t, 0).items(t) {
			if len(f) != 7 || f["message"] == "" || f["remedy"] == "" {
				t.Errorf("finding %v", f)
			}
		}
		if r := s.run(t, "store", "trust", "--reason", "r").want(t, 1); !strings.Contains(r.stderr, "is trusted") {
			t.Errorf("trusting a store that is trusted: %s", r.stderr)
		}
	}
	settle := func(t *testing.T, id, actor string) {
		t.Helper()
		unknown := s.run(t, "record", "list", "--state", "unknown").want(t, 0).stdout
		if !strings.Contains(unknown, id) || strings.Contains(unknown, paid) {
			t.Errorf("unknown records:\n%s", unknown)
		}
		early := s.run(t, "record", "resolve", id, "--absent", "--reason", "I see none").want(t, 1)
		if !strings.Contains(early.stderr, "too early") || !strings.Contains(early.stderr, "--proof cancelled") {
			t.Errorf("absence before t_quiet: %s", early.stderr)
		}
		done := s.run(t, "record", "resolve", id, "--applied", "--status", "201", "--resource", "/pay/1", "--reason", "found").want(t, 0).stdout
		if !strings.Contains(done, "succeeded 201") || !strings.Contains(done, "by "+actor+": found") {
			t.Errorf("resolved by %s:\n%s", actor, done)
		}
		again := s.run(t, "record", "resolve", id, "--absent", "--early", "--reason", "no").want(t, 1)
		if !strings.Contains(again.stderr, "already settled") {
			t.Errorf("a known outcome was changed: %s", again.stderr)
		}
	}
	t.Run("beside serve", func(t *testing.T) {
		ask(t)
		first := s.run(t, "record", "list", "--limit", "2").want(t, 0)
		_, cursor, _ := strings.Cut(strings.TrimSpace(first.stderr), "--cursor ")
		if rest := s.run(t, "record", "list", "-o", "json", "--cursor", cursor).want(t, 0).items(t); len(rest) != 1 {
			t.Errorf("%d records after the first two of three", len(rest))
		}
		settle(t, lost, "operator")
		if r := s.run(t, "serve").want(t, 2); !strings.Contains(r.stderr, "is another counterfoil running?") {
			t.Errorf("second serve: %s", r.stderr)
		}
		// Without the token one may look, and nothing more.
		tokens := filepath.Join(s.dir, "tokens")
		if err := os.Rename(tokens, tokens+".away"); err != nil {
			t.Fatal(err)
		}
		s.run(t, "record", "show", paid).want(t, 0)
		if r := s.run(t, "sweep").want(t, 1); !strings.Contains(r.stderr, "token") || !strings.Contains(r.stderr, "no such file") {
			t.Errorf("sweep without a token: %s", r.stderr)
		}
		if err := os.Rename(tokens+".away", tokens); err != nil {
			t.Fatal(err)
		}
	})
	s.stop()
	t.Run("without serve", func(t *testing.T) {
		ask(t)
		settle(t, gone, operatorName())
	})
}

func TestStoreBackup(t *testing.T) {
	s := newSite(t)
	s.serve(t)
	s.pay(t, "k-1", 201)
	to := filepath.Join(s.dir, "copy")
	if got := s.run(t, "store", "backup", to).want(t, 0).stdout; got != to+"\n" {
		t.Errorf("backup printed %q", got)
	}
	if files, err := os.ReadDir(to); err != nil || len(files) == 0 {
		t.Errorf("backup: %d files, %v", len(files), err)
	}
	s.run(t, "store", "backup", to).want(t, 1) // it is there already
}

func TestMemoryStoreNeedsARunningServe(t *testing.T) {
	s := newSite(t)
	env := map[string]string{"COUNTERFOIL_STORE": "memory:"}
	r := runWith(t, env, "record", "list", "--config", s.config).want(t, 1)
	if !strings.Contains(r.stderr, "a memory store lives only inside a running serve") {
		t.Errorf("memory store: %s", r.stderr)
	}
}

func TestDoctorReportsAStoreThatCannotBeOpened(t *testing.T) {
	s := newSite(t)
	got := s.run(t, "doctor", "-o", "json").want(t, 1).items(t)
	if len(got) != 1 || got[0]["code"] != "store-not-opened" || got[0]["severity"] != "error" {
		t.Errorf("doctor: %v", got)
	}
	if out := s.run(t, "doctor").want(t, 1).stdout; !strings.HasPrefix(out, "SEVERITY  CODE") {
		t.Errorf("doctor's table:\n%s", out)
	}
}

func TestServeRefusesToStart(t *testing.T) {
	s := newSite(t)
	runWith(t, map[string]string{"COUNTERFOIL_POLICY": "missing.yaml"}, "serve", "--config", s.config).want(t, 2)
	r := s.run(t, "serve", "--forget", "nothing").want(t, 2)
	if !strings.Contains(r.stderr, "the policy has no such operation") {
		t.Errorf("--forget of nothing: %s", r.stderr)
	}
}

// halfSwept is a store whose sweep stops early.
type halfSwept struct {
	admin.Service
	report admin.SweepResult
	err    error
}

func (h *halfSwept) Sweep(context.Context) (admin.SweepResult, error) { return h.report, h.err }

// TestSweepThatStoppedWithRowsLeftFails: cron must hear of it (cases.md C81).
func TestSweepThatStoppedWithRowsLeftFails(t *testing.T) {
	s := newSite(t)
	part := admin.SweepResult{Batches: 3, Examined: 30_000, TombstonesDeleted: 29_000, Kept: map[string]int{"hold": 2}}
	for name, fake := range map[string]*halfSwept{
		"with an error":    {report: part, err: errors.New("statement timeout")},
		"without an error": {report: part},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			a := newApp(&Program{Stdout: &out, Stderr: &errs})
			a.open = func(context.Context, *config.Config) (*service, error) {
				return &service{Service: fake, close: func() error { return nil }}, nil
			}
			if code := a.run(t.Context(), []string{"sweep", "--config", s.config}); code != exitFailed {
				t.Errorf("exit code %d, want %d", code, exitFailed)
			}
			// What was done is shown all the same.
			if !strings.Contains(out.String(), "30,000") || !strings.Contains(out.String(), "kept by hold") || errs.Len() == 0 {
				t.Errorf("stdout: %s\nstderr: %s", out.String(), errs.String())
			}
		})
	}
}

func TestServeServesUntilItIsToldToStop(t *testing.T) {
	s := newSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		p := &Program{Stdout: &out, Stderr: &errs}
		ended <- p.Run(ctx, []string{"serve", "--config", s.config})
	}()
	c, err := config.Load(s.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := admin.NewClient(c.Admin, "")
	for client.Ping(ctx) != nil {
		select {
		case code := <-ended:
			t.Fatalf("it ended with exit code %d: %s", code, errs.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.pay(t, "k-1", 201)
	cancel()
	if code := <-ended; code != exitFine || out.Len() > 0 {
		t.Errorf("exit code %d, stdout %q, stderr %s", code, out.String(), errs.String())
	}
	if !strings.Contains(errs.String(), `"msg":"stopped"`) {
		t.Errorf("the log does not say that it stopped: %s", errs.String())
	}
}

// pages serves records, at most 300 a page.
type pages struct {
	admin.Service
	asked []int
}

func (p *pages) Records(_ context.Context, f admin.Filter) (admin.Page[admin.Record], error) {
	p.asked = append(p.asked, f.Limit)
	n := min(f.Limit, 300)
	return admin.NewPage(make([]admin.Record, n), fmt.Sprintf("after %d", len(p.asked))), nil
}

func TestListsTakeAsManyPagesAsTheyNeed(t *testing.T) {
	p := &pages{}
	got, err := listUpTo(t.Context(), p, admin.Filter{Limit: 700})
	if err != nil || len(got.Items) != 700 || got.NextCursor != "after 3" || !slices.Equal(p.asked, []int{500, 400, 100}) {
		t.Errorf("%d records, cursor %q, asked for %v, %v", len(got.Items), got.NextCursor, p.asked, err)
	}
}
