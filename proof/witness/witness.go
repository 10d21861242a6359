// Package witness is the upstream of the black-box suites: it does what each
// request's body asks for and counts every effect outside the process under
// test. It is the only judge of "the effect happened".
package witness

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Script is what a request asks the witness to do, as its JSON body. The zero
// Script has one effect and answers 201.
type Script struct {
	// Status is the answer; 0 stands for 201.
	Status int `json:"status,omitempty"`
	// Once answers StatusOnce to the first arrival, without an effect, and goes
	// on as usual from the second.
	StatusOnce int `json:"status_once,omitempty"`
	// NoEffect answers without an effect.
	NoEffect bool `json:"no_effect,omitempty"`
	// SleepMS waits before the effect; AfterMS after it, before the answer.
	SleepMS int `json:"sleep_ms,omitempty"`
	AfterMS int `json:"after_ms,omitempty"`
	// Gate waits for [Witness.Open] of that name before the effect.
	Gate string `json:"gate,omitempty"`
	// Panic panics after the effect; Drop cuts the connection after it.
	Panic bool `json:"panic,omitempty"`
	Drop  bool `json:"drop,omitempty"`
	// Size pads the answer to that many bytes.
	Size int `json:"size,omitempty"`
	// Header are fields of the answer, in order.
	Header [][2]string `json:"header,omitempty"`
	// Events streams that many flushed events after the first, each waiting for
	// the gate named "event".
	Events int `json:"events,omitempty"`
	// N makes two requests differ.
	N int `json:"n,omitempty"`
}

// JSON is the script as a request body.
func (s Script) JSON() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a Script always marshals
	}
	return string(b)
}

// Witness counts effects and remembers what each answer was.
type Witness struct {
	// OnEffect, when set, is called after each effect, before the answer.
	OnEffect func(key string)

	mu       sync.Mutex
	counter  int
	effects  map[string]int
	arrivals map[string]int
	identity map[string]map[string]bool
	headers  map[string]http.Header
	gates    map[string]chan struct{}
}

// New returns a witness that has seen nothing.
func New() *Witness {
	return &Witness{
		effects: map[string]int{}, arrivals: map[string]int{}, identity: map[string]map[string]bool{},
		headers: map[string]http.Header{}, gates: map[string]chan struct{}{},
	}
}

// Effects is how many effects the key had.
func (w *Witness) Effects(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effects[key]
}

// Arrivals is how many requests with the key arrived.
func (w *Witness) Arrivals(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.arrivals[key]
}

// Total is the number of all effects.
func (w *Witness) Total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counter
}

// Identities is how many different Counterfoil-Identity values came with the
// key.
func (w *Witness) Identities(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.identity[key])
}

// LastHeader is the header of the last request with the key.
func (w *Witness) LastHeader(key string) http.Header {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.headers[key]
}

// Open lets every request that waits at the gate, now or later, go on.
func (w *Witness) Open(gate string) {
	ch := w.gate(gate)
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-ch:
	default:
		close(ch)
	}
}

func (w *Witness) gate(name string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch, ok := w.gates[name]
	if !ok {
		ch = make(chan struct{})
		w.gates[name] = ch
	}
	return ch
}

// Key is the caller's key as a handler sees it, bare or quoted.
func Key(r *http.Request) string {
	return strings.Trim(r.Header.Get("Idempotency-Key"), `"`)
}

// ServeHTTP does what the body asks for.
func (w *Witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	key := Key(r)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(rw, "body: "+err.Error(), http.StatusBadRequest)
		return
	}
	var s Script
	if len(body) > 0 && body[0] == '{' {
		_ = json.Unmarshal(body, &s) // some bodies are broken on purpose
	}
	w.mu.Lock()
	w.arrivals[key]++
	first := w.arrivals[key] == 1
	if id := r.Header.Get("Counterfoil-Identity"); id != "" {
		if w.identity[key] == nil {
			w.identity[key] = map[string]bool{}
		}
		w.identity[key][id] = true
	}
	w.headers[key] = r.Header.Clone()
	w.mu.Unlock()

	if s.Gate != "" {
		select {
		case <-w.gate(s.Gate):
		case <-time.After(30 * time.Second):
			http.Error(rw, "the gate was never opened", http.StatusInternalServerError)
			return
		}
	}
	if s.SleepMS > 0 {
		// A handler that ignores its context, as many do.
		<-time.After(time.Duration(s.SleepMS) * time.Millisecond)
	}
	if s.StatusOnce != 0 && first {
		s.Status, s.NoEffect = s.StatusOnce, true
	}
	n := 0
	if !s.NoEffect {
		n = w.effect(key)
	}
	if s.AfterMS > 0 {
		<-time.After(time.Duration(s.AfterMS) * time.Millisecond)
	}
	switch {
	case s.Panic:
		panic("the witness panics, as asked")
	case s.Drop:
		panic(http.ErrAbortHandler)
	}
	w.answer(rw, s, n)
}

func (w *Witness) effect(key string) int {
	w.mu.Lock()
	w.counter++
	n := w.counter
	w.effects[key]++
	w.mu.Unlock()
	if w.OnEffect != nil {
		w.OnEffect(key)
	}
	return n
}

func (w *Witness) answer(rw http.ResponseWriter, s Script, n int) {
	h := rw.Header()
	for _, f := range s.Header {
		h.Add(f[0], f[1])
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	if s.Status == 0 {
		s.Status = http.StatusCreated
	}
	rw.WriteHeader(s.Status)
	if s.Status == http.StatusNoContent || s.Status == http.StatusNotModified {
		return
	}
	body := fmt.Sprintf(`{"effect":%d}`, n)
	if pad := s.Size - len(body); pad > 0 {
		body += strings.Repeat(" ", pad)
	}
	_, _ = io.WriteString(rw, body)
	for range s.Events {
		_ = http.NewResponseController(rw).Flush()
		<-w.gate("event")
		_, _ = io.WriteString(rw, "event\n")
	}
}
