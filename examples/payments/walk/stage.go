package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// startWithin is how long a program gets to begin.
const startWithin = 30 * time.Second

// stage is the payment API and the guard, on free ports, in a directory of
// their own that goes with them.
type stage struct {
	options
	dir              string
	payments, guard  *process
	url, admin, bank string // of the guard, its admin listener, and the API
}

func newStage(ctx context.Context, o options) (*stage, error) {
	dir, err := os.MkdirTemp("", "counterfoil-walk-")
	if err != nil {
		return nil, err
	}
	s := &stage{options: o, dir: dir}
	if err := s.open(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stage) open(ctx context.Context) error {
	p, stdout, err := start("payments", filepath.Join(s.dir, "payments.log"), s.options.payments,
		"-listen", "127.0.0.1:0", "-ledger", filepath.Join(s.dir, "ledger.jsonl"))
	if err != nil {
		return err
	}
	s.payments = p
	line, err := firstLine(stdout)
	if err != nil {
		return fmt.Errorf("payments: %w\n%s", err, p.tail())
	}
	s.bank = line[strings.LastIndex(line, " ")+1:]

	policy, err := os.ReadFile(s.policy)
	if err != nil {
		return fmt.Errorf("%w (write -policy FILE, or start the walk in the repository's root)", err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "policy.yaml"), policy, 0o600); err != nil {
		return err
	}
	// The guard is restarted on the same addresses, so they are chosen here.
	listen, err := freeAddress()
	if err != nil {
		return err
	}
	admin, err := freeAddress()
	if err != nil {
		return err
	}
	s.url, s.admin = "http://"+listen, "http://"+admin
	config := fmt.Sprintf("listen: %s\nadmin: %s\nupstream: %s\npolicy: policy.yaml\nstore: pebble:./data\n", listen, admin, s.bank)
	if err := os.WriteFile(s.config(), []byte(config), 0o600); err != nil {
		return err
	}
	return s.startGuard(ctx)
}

func (s *stage) config() string { return filepath.Join(s.dir, "counterfoil.yaml") }

// freeAddress is a loopback address that nothing listens on at this moment.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// startGuard starts the guard and waits until it would take requests.
func (s *stage) startGuard(ctx context.Context) error {
	p, stdout, err := start("counterfoil", filepath.Join(s.dir, "guard.log"), s.counterfoil, "serve", "--config", s.config())
	if err != nil {
		return err
	}
	go drain(stdout)
	s.guard = p
	err = until(ctx, "the guard to be ready", startWithin, p, func() (bool, error) {
		resp, err := http.Get(s.admin + "/readyz")
		if err != nil {
			return false, nil // not listening yet
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, p.tail())
	}
	return nil
}

// close ends both programs, the guard first, and takes the directory away.
func (s *stage) close() (err error) {
	for _, p := range []*process{s.guard, s.payments} {
		if p == nil {
			continue
		}
		if perr := p.stop(); err == nil {
			err = perr
		}
	}
	if rerr := os.RemoveAll(s.dir); err == nil {
		err = rerr
	}
	return err
}

// book is what the ledger holds.
type book struct {
	Charges int `json:"charges"`
	Entries []struct {
		Effect  string `json:"effect"`
		Payment string `json:"payment"`
	} `json:"entries"`
}

// ledger reads the payment API's own ledger, of one identity if it is not "".
func (s *stage) ledger(identity string) (book, error) {
	var b book
	resp, err := http.Get(s.bank + "/ledger?identity=" + identity)
	if err != nil {
		return b, err
	}
	defer resp.Body.Close()
	return b, json.NewDecoder(resp.Body).Decode(&b)
}

// command runs one counterfoil command as a person would.
func (s *stage) command(ctx context.Context, args ...string) (output string, code int, err error) {
	cmd := exec.CommandContext(ctx, s.counterfoil, append(args, "--config", s.config())...)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return "", 0, err
	}
	return string(b), cmd.ProcessState.ExitCode(), nil
}
