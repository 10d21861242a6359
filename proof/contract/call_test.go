package contract

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/proof/witness"
)

var quiet = log.New(io.Discard, "", 0)

// call is one request; the zero call posts an empty script to /pay.
type call struct {
	method, path, key string
	script            witness.Script
	body              *string // instead of script
	header            [][2]string
	account           string // "" stands for acct-1, "-" for none
}

// answer is what came back.
type answer struct {
	Status  int
	Header  http.Header
	Body    string
	Problem problem
	Err     error
}

type problem struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Record     string `json:"record"`
	Operation  string `json:"operation"`
	SafeNewKey *bool  `json:"safe_new_key"`
	LastStatus int    `json:"last_status"`
	Outcome    string `json:"outcome"`
	Resource   string `json:"resource"`
}

// kind is the last part of the problem's type.
func (p problem) kind() string { return p.Type[strings.LastIndexByte(p.Type, '/')+1:] }

func (a answer) idem() string { return a.Header.Get("Idempotency-Status") }

var client = &http.Client{
	Timeout:       30 * time.Second,
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

var lastKey atomic.Int64

// newKey is a key that no other test uses.
func newKey() string { return "key-" + strconv.FormatInt(lastKey.Add(1), 10) }

func (g *target) do(t *testing.T, c call) answer {
	t.Helper()
	a := g.try(t, c)
	if a.Err != nil {
		t.Fatalf("%+v: %v", c, a.Err)
	}
	return a
}

// try is do for calls that may get no answer.
func (g *target) try(t *testing.T, c call) answer {
	if c.method == "" {
		c.method = http.MethodPost
	}
	if c.path == "" {
		c.path = "/pay"
	}
	body := c.script.JSON()
	if c.body != nil {
		body = *c.body
	}
	req, err := http.NewRequestWithContext(t.Context(), c.method, g.URL+c.path, strings.NewReader(body))
	if err != nil {
		return answer{Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		req.Header.Set("Idempotency-Key", c.key)
	}
	switch c.account {
	case "":
		req.Header.Set("X-Account-Id", "acct-1")
	case "-":
	default:
		req.Header.Set("X-Account-Id", c.account)
	}
	for _, f := range c.header {
		if f[0] == "Content-Type" {
			req.Header.Del(f[0])
		}
		req.Header.Add(f[0], f[1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{Err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	a := answer{Status: resp.StatusCode, Header: resp.Header, Body: string(text), Err: err}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") {
		_ = json.Unmarshal(text, &a.Problem)
	}
	return a
}

// want checks status, Idempotency-Status and the end of the problem type ("" for
// an answer that is no problem).
func (a answer) want(t *testing.T, status int, idem, kind string) {
	t.Helper()
	if a.Status != status || a.idem() != idem {
		t.Errorf("got %d %q, want %d %q; body %s", a.Status, a.idem(), status, idem, a.Body)
	}
	isProblem := a.Header.Get("Content-Type") == "application/problem+json"
	if kind == "" {
		if isProblem {
			t.Errorf("a problem came: %s", a.Body)
		}
		return
	}
	if !isProblem || a.Problem.kind() != kind {
		t.Errorf("problem %q (%s), want %s; body %s", a.Problem.kind(), a.Header.Get("Content-Type"), kind, a.Body)
		return
	}
	if a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q, want no-store", a.Header.Get("Cache-Control"))
	}
	if a.Problem.Title == "" || a.Problem.Detail == "" || a.Problem.Status != a.Status {
		t.Errorf("the problem lacks title, detail or its status: %s", a.Body)
	}
}

// effects checks how often the key's effect happened.
func (g *target) effects(t *testing.T, key string, want int) {
	t.Helper()
	if got := g.Witness.Effects(key); got != want {
		t.Errorf("%d effects of %s, want %d", got, key, want)
	}
}

// until polls until ok, which a test waits for instead of sleeping.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
