package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
)

// TestC06StreamThroughTheProgram: a guarded POST that answers with events shows
// the first while the second is still to come.
func TestC06StreamThroughTheProgram(t *testing.T) {
	w := start(t, payPolicy, "")
	more := make(chan struct{})
	w.up.does(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(rw, "data: 1\n\n")
		_ = http.NewResponseController(rw).Flush()
		<-more
		fmt.Fprint(rw, "data: 2\n\n")
	})
	c, err := net.Dial("tcp", w.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, head("C06", "POST /pay HTTP/1.1", "Content-Length: 1")+"\r\nx")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("first event: %q, %v", line, err)
	}
	close(more)
	if rest, err := io.ReadAll(lines); err != nil || !strings.Contains(string(rest), "data: 2") {
		t.Errorf("the rest: %q, %v", rest, err)
	}
}

// TestChunkedAnswerIsKept: that an answer has no length does not make it a
// stream.
func TestChunkedAnswerIsKept(t *testing.T) {
	w := start(t, payPolicy, "")
	w.up.does(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(201)
		fmt.Fprint(rw, "one ")
		_ = http.NewResponseController(rw).Flush()
		fmt.Fprint(rw, "two")
	})
	first, again := w.pay("k", "x"), w.pay("k", "x")
	if first.body != "one two" || again.body != first.body || again.Header.Get("Idempotency-Status") != "replayed" {
		t.Errorf("%q, then %q %v", first.body, again.body, again.Header)
	}
}

// TestB14CallerWhoGoesAway does not cancel the effect.
func TestB14CallerWhoGoesAway(t *testing.T) {
	w := start(t, payPolicy, "")
	arrived, release, cancelled := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	w.up.does(func(rw http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-release
		cancelled <- r.Context().Err() != nil
		rw.WriteHeader(201)
	})
	c, err := net.Dial("tcp", w.Addr())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, head("B14", "POST /pay HTTP/1.1", "Content-Length: 1")+"\r\nx")
	<-arrived
	c.Close()
	close(release)
	if <-cancelled {
		t.Error("the upstream was told to stop")
	}
	eventually(t, "completed", func() bool {
		page, err := w.client().Records(t.Context(), filterAll)
		return err == nil && len(page.Items) == 1 && page.Items[0].State == counterfoil.Completed.String()
	})
}

// TestDeadlineThroughTheProgram: an upstream that takes too long leaves the
// outcome unknown.
func TestDeadlineThroughTheProgram(t *testing.T) {
	w := start(t, strings.Replace(payPolicy, "deadline: 10s", "deadline: 200ms", 1), "")
	release := make(chan struct{})
	defer close(release)
	w.up.does(func(http.ResponseWriter, *http.Request) { <-release })
	a := w.pay("k", "x")
	if a.StatusCode != 504 || a.problem() != "outcome-unknown" || a.Header.Get("Idempotency-Status") != "unknown" {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

// TestOutcomeOfTheUpstream: its word is heeded, and taken off.
func TestOutcomeOfTheUpstream(t *testing.T) {
	w := start(t, payPolicy, "")
	w.up.does(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Counterfoil-Outcome", "none")
		rw.WriteHeader(500)
	})
	a := w.pay("k", "x")
	if a.StatusCode != 500 || a.Header.Get("Idempotency-Status") != "no-effect" || a.Header.Get("Counterfoil-Outcome") != "" {
		t.Errorf("%d %v", a.StatusCode, a.Header)
	}
	w.up.does(nil)
	if a := w.pay("k", "x"); a.StatusCode != 201 || a.Header.Get("Idempotency-Status") != "created" {
		t.Errorf("again: %d %v", a.StatusCode, a.Header)
	}
}

// TestWellKnown publishes the contract.
func TestWellKnown(t *testing.T) {
	w := start(t, payPolicy, "")
	a := send(t, "GET", "http://"+w.Addr()+"/.well-known/idempotency", "")
	if a.StatusCode != 200 || !strings.Contains(a.body, `"pay"`) || w.up.requests() != 0 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

// TestC50ThroughTheProgram: an upstream that runs and breaks off, on a reused
// connection, ran once; the outcome is unknown, and the same key does not run
// again.
func TestC50ThroughTheProgram(t *testing.T) {
	w := start(t, payPolicy, "")
	for i, body := range []string{"", `{"amount":1}`} {
		key := fmt.Sprintf("k-%d", i)
		w.up.does(nil)
		w.pay("before-"+key, body) // leaves a connection to be reused
		before := w.up.count()
		w.up.does(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		if a := w.pay(key, body); a.StatusCode != 502 || a.problem() != "outcome-unknown" || a.Header.Get("Idempotency-Status") != "unknown" {
			t.Errorf("broken: %d %s", a.StatusCode, a.body)
		}
		w.up.does(nil)
		if a := w.pay(key, body); a.StatusCode != 503 || a.problem() != "outcome-unknown" {
			t.Errorf("again: %d %s", a.StatusCode, a.body)
		}
		if got := w.up.count() - before; got != 1 {
			t.Errorf("body %q: %d effects, want 1", body, got)
		}
	}
	w.up.Close()
	a := w.pay("k-2", "x")
	if a.StatusCode != 502 || a.problem() != "upstream-unreachable" || a.Header.Get("Idempotency-Status") != "no-effect" {
		t.Errorf("unreachable: %d %s", a.StatusCode, a.body)
	}
}
