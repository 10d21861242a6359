// Package promise holds promises of design.md §8 that only the whole program
// can show: no answer crosses a scope, nothing in the clear, a store that went
// back in time is noticed.
package promise

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/proof/binary"
	"github.com/counterfoil/counterfoil/proof/witness"
)

func TestMain(m *testing.M) {
	code := m.Run()
	binary.Clean()
	os.Exit(code)
}

const policy = `
version: 1
operations:
  pay:
    match: ["POST /pay/{id}", "PUT /pay/{id}"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
  refund:
    match: ["POST /refund"]
    scope: {principal: "header:X-Account-Id"}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
  move:
    match: ["POST /move"]
    scope: {principal: "header:X-Account-Id", family: moves}
    ttl: {client_retry_budget: 1h, broker_redelivery_window: 0s, reconciliation_cadence: 1m, safety_margin: 1m}
`

type answer struct {
	status     int
	idem, body string
}

var client = &http.Client{Timeout: 20 * time.Second}

func send(t *testing.T, p *binary.Process, method, path, account, key, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Account-Id", account)
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header.Get("Idempotency-Status"), string(text)}
}

// TestP7NoAnswerCrossesAScope: twelve principals, some of whose names are parts
// of each other's, use the same keys on every operation at once. Every answer
// names its owner, and no other gets it.
func TestP7NoAnswerCrossesAScope(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "%s %s %s %s", r.Header.Get("X-Account-Id"), r.Method, r.URL.Path, witness.Key(r))
	}))
	defer up.Close()
	p := binary.NewSetup(t, binary.Build(t, true), up.URL, "pebble:./data", policy).Start(t)
	accounts := []string{"a", "b", "a:b", "b:a", "a/b", "ab", "A", "a-b", "tenant-1:user", "tenant-1", "user", "tenant-1:use"}
	routes := [][2]string{{"POST", "/pay/1"}, {"PUT", "/pay/2"}, {"POST", "/refund"}, {"POST", "/move"}}
	keys := []string{"c", "b:c", "a:c", "r:c", "1", "key/1"}
	var wg sync.WaitGroup
	var mu sync.Mutex
	replies, foreign := 0, 0
	for _, account := range accounts {
		wg.Go(func() {
			for range 5 {
				for _, route := range routes {
					for _, key := range keys {
						// POST and PUT /pay share an operation: keep their keys apart.
						key := key + route[0]
						a := send(t, p, route[0], route[1], account, key, "{}")
						want := fmt.Sprintf("%s %s %s %s", account, route[0], route[1], key)
						mu.Lock()
						replies++
						if a.status != 201 || a.body != want {
							foreign++
							t.Errorf("%s got %d %q", want, a.status, a.body)
						}
						mu.Unlock()
					}
				}
			}
		})
	}
	wg.Wait()
	if replies < 1400 || foreign != 0 {
		t.Errorf("%d replies, %d foreign", replies, foreign)
	}
}

// TestP15NothingInTheClear: key, principal and request body are found neither
// in the store's files, nor in logs, metrics or listings. (Responses are kept
// as they were sent; encryption is not in this version.)
func TestP15NothingInTheClear(t *testing.T) {
	const key, account, secret = "canary-key-4711", "canary-account-4712", "canary-body-4713"
	w := witness.New()
	up := httptest.NewServer(w)
	defer up.Close()
	setup := binary.NewSetup(t, binary.Build(t, false), up.URL, "pebble:./data", policy)
	p := setup.Start(t)
	body := `{"card":"` + secret + `"}`
	if a := send(t, p, "POST", "/refund", account, key, body); a.idem != "created" {
		t.Fatalf("%+v", a)
	}
	send(t, p, "POST", "/refund", account, key, body)
	send(t, p, "POST", "/refund", account, key, `{"other":"`+secret+`"}`)
	send(t, p, "POST", "/refund", account, key+" bad", body)
	send(t, p, "POST", "/refund", account, key+"-2", `{"status":500,"card":"`+secret+`"}`)
	var seen bytes.Buffer
	for _, path := range []string{"/metrics", "/v1/records", "/v1/operations"} {
		resp, err := http.Get("http://" + p.Admin + path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(&seen, resp.Body)
		resp.Body.Close()
	}
	if code := p.Stop(t); code != 0 {
		t.Fatalf("code %d", code)
	}
	seen.WriteString(p.Logs())
	files := 0
	err := filepath.WalkDir(filepath.Join(setup.Dir, "data"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files++
		seen.Write(b)
		return err
	})
	if err != nil || files < 3 {
		t.Fatalf("%d files, %v", files, err)
	}
	for _, canary := range []string{key, account, secret} {
		if bytes.Contains(seen.Bytes(), []byte(canary)) {
			t.Errorf("%s is in the clear", canary)
		}
	}
	// The search finds what is there: the response is.
	if !bytes.Contains(seen.Bytes(), []byte(`{"effect":1}`)) {
		t.Error("the search does not even find the kept response")
	}
}

// TestP14RestoredBackup: a restored backup has lost what came after it. It is
// noticed, keys of unknown age are refused, what stands still answers, and a
// person ends it.
func TestP14RestoredBackup(t *testing.T) {
	w := witness.New()
	up := httptest.NewServer(w)
	defer up.Close()
	setup := binary.NewSetup(t, binary.Build(t, true), up.URL, "pebble:./data", policy)
	p := setup.Start(t)
	if a := send(t, p, "POST", "/refund", "a", "before", "{}"); a.idem != "created" {
		t.Fatalf("%+v", a)
	}
	if out, errs, code := setup.Command(t.Context(), "store", "backup", "copy"); code != 0 {
		t.Fatalf("backup: %d %s%s", code, out, errs)
	}
	if a := send(t, p, "POST", "/refund", "a", "after", "{}"); a.idem != "created" {
		t.Fatalf("%+v", a)
	}
	if code := p.Stop(t); code != 0 {
		t.Fatalf("code %d:\n%s", code, p.Logs())
	}
	if err := os.Rename(filepath.Join(setup.Dir, "data"), filepath.Join(setup.Dir, "lost")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(setup.Dir, "copy"), filepath.Join(setup.Dir, "data")); err != nil {
		t.Fatal(err)
	}
	p = setup.Launch(t)
	waitAnswer(t, p)
	if a := send(t, p, "POST", "/refund", "a", "after", "{}"); a.status != 503 || w.Effects("after") != 1 {
		t.Errorf("a forgotten charge: %+v with %d effects", a, w.Effects("after"))
	}
	if a := send(t, p, "POST", "/refund", "a", "before", "{}"); a.idem != "replayed" {
		t.Errorf("what stands no longer answers: %+v", a)
	}
	resp, err := http.Get("http://" + p.Admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz says %d", resp.StatusCode)
	}
	if out, errs, code := setup.Command(t.Context(), "store", "trust", "--reason", "the two lost charges were looked up"); code != 0 {
		t.Fatalf("trust: %d %s%s", code, out, errs)
	}
	if a := send(t, p, "POST", "/refund", "a", "new", "{}"); a.idem != "created" {
		t.Errorf("after it was trusted again: %+v", a)
	}
	if code := p.Stop(t); code != 0 {
		t.Errorf("code %d:\n%s", code, p.Logs())
	}
}

// waitAnswer waits until the guarded listener answers at all.
func waitAnswer(t *testing.T, p *binary.Process) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		if resp, err := http.Get(p.URL() + "/.well-known/idempotency"); err == nil {
			resp.Body.Close()
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("the server does not answer:\n%s", p.Logs())
}
