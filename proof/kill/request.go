package kill

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil/proof/binary"
	"github.com/counterfoil/counterfoil/proof/witness"
)

// request is one intent of a caller, sent any number of times.
type request struct {
	key, path string
	script    witness.Script
	held      atomic.Pointer[answer] // the answer that the caller holds
}

// answer is what came back, or why nothing did.
type answer struct {
	status int
	idem   string // Idempotency-Status
	body   string
	err    error
}

func (a answer) status2xx() bool { return a.status >= 200 && a.status < 300 }

var client = &http.Client{
	Timeout: 10 * time.Second,
	// A connection per request: no other process than the caller ever resends.
	Transport: &http.Transport{DisableKeepAlives: true},
}

func (r *request) send(p *binary.Process) answer {
	req, err := http.NewRequest(http.MethodPost, p.URL()+r.path, strings.NewReader(r.script.JSON()))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Idempotency-Key", r.key)
	req.Header.Set("X-Account-Id", "acct-1")
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Idempotency-Status"), string(body), err}
}

// keep remembers the answer that a caller may rely on.
func (r *request) keep(a answer) {
	if a.err == nil && a.status2xx() && (a.idem == "created" || a.idem == "replayed") {
		r.held.Store(&a)
	}
}

// sweepOnce asks the server for a pass of its sweeper; it may die of it.
func sweepOnce(p *binary.Process) {
	req, err := http.NewRequest(http.MethodPost, "http://"+p.Admin+"/v1/sweep", nil)
	if err != nil {
		return
	}
	if token, ok := p.TokenIfMade(); ok {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if resp, err := client.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
