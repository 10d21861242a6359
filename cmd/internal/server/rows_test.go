package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/cmd/internal/server"
)

// head is a guarded request with more fields; the key differs each time, so
// that no row hides behind another's record.
func head(row, line string, more ...string) string {
	fields := append([]string{line, "Host: shop.example", "X-Account-Id: a", "Idempotency-Key: k-" + row}, more...)
	return strings.Join(fields, "\r\n") + "\r\n"
}

// TestRowsHAndU sends the bad inputs of dangers.md §4.3 that arrive as bytes,
// on a guarded and an unguarded route. None of them may reach the upstream.
func TestRowsHAndU(t *testing.T) {
	w := start(t, payPolicy, "")
	const post = "POST /pay HTTP/1.1"
	for _, tc := range []struct {
		row, text string
		status    int
	}{
		{"H01_connection_names_key", head("H01", post, "Connection: Idempotency-Key", "Content-Length: 1") + "\r\nx", 400},
		{"H02_connection_names_principal", head("H02", post, "Connection: close, X-Account-Id", "Content-Length: 1") + "\r\nx", 400},
		{"H03_length_and_chunked", head("H03", post, "Content-Length: 5", "Transfer-Encoding: chunked") + "\r\n0\r\n\r\n", 400},
		{"H03_chunked_and_length", head("H03b", post, "Transfer-Encoding: chunked", "content-length: 5") + "\r\n0\r\n\r\n", 400},
		{"H04_two_lengths", head("H04", post, "Content-Length: 1", "Content-Length: 2") + "\r\nx", 400},
		{"H04_two_equal_lengths", head("H04b", post, "Content-Length: 1", "Content-Length: 1") + "\r\nx", 400},
		{"H05_plus", head("H05", post, "Content-Length: +1") + "\r\nx", 400},
		{"H05_minus", head("H05b", post, "Content-Length: -1") + "\r\nx", 400},
		{"H06_two_codings", head("H06", post, "Transfer-Encoding: chunked, identity") + "\r\n0\r\n\r\n", 501},
		{"H06_xchunked", head("H06b", post, "Transfer-Encoding: xchunked") + "\r\n0\r\n\r\n", 501},
		{"H06_chunked_twice", head("H06c", post, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + "\r\n0\r\n\r\n", 400},
		{"H07_bare_lf_in_size", head("H07", post, "Transfer-Encoding: chunked") + "\r\n1\nx\r\n0\r\n\r\n", 400},
		{"H07_bare_lf_in_extension", head("H07b", post, "Transfer-Encoding: chunked") + "\r\n1;a\nx\r\n0\r\n\r\n", 400},
		{"H07_no_size", head("H07c", post, "Transfer-Encoding: chunked") + "\r\n\r\nx\r\n0\r\n\r\n", 400},
		{"H07_chunk_too_long", head("H07d", post, "Transfer-Encoding: chunked") + "\r\n1\r\nxyz\r\n0\r\n\r\n", 400},
		{"H07_trailer", head("H07e", post, "Transfer-Encoding: chunked") + "\r\n1\r\nx\r\n0\r\nIdempotency-Key: other\r\n\r\n", 400},
		{"H08_http10_chunked", head("H08", "POST /pay HTTP/1.0", "Transfer-Encoding: chunked") + "\r\n1\r\nx\r\n0\r\n\r\n", 400},
		{"H09_no_host", "POST /pay HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 400},
		{"H09_two_hosts", head("H09", post, "Host: other", "Content-Length: 0") + "\r\n", 400},
		{"H10_header_over_16KiB", head("H10", post, "X-Big: "+strings.Repeat("x", 17<<10), "Content-Length: 0") + "\r\n", 431},
		{"H10_header_over_1MiB", head("H10b", post, "X-Big: "+strings.Repeat("x", 1<<20), "Content-Length: 0") + "\r\n", 431},
		{"H11_200_fields", head("H11", post, append(strings.Split(strings.Repeat("X-Many: 1\n", 199)+"X-Many: 1", "\n"), "Content-Length: 0")...) + "\r\n", 431},
		{"H12_expect_and_huge", head("H12", post, "Expect: 100-continue", "Content-Length: 99999999999") + "\r\n", 413},
		{"H15_upgrade", head("H15", post, "Connection: Upgrade", "Upgrade: websocket", "Content-Length: 0") + "\r\n", 400},
		{"H17_early_data", head("H17", post, "Early-Data: 1", "Content-Length: 0") + "\r\n", 425},
		{"K14_folded_line", head("K14", post, " 1", "Content-Length: 0") + "\r\n", 400},
		{"K15_space_before_colon", head("K15", post, "X-A : 1", "Content-Length: 0") + "\r\n", 400},
		{"K22_key_in_trailer", head("K22", post, "Trailer: Idempotency-Key", "Transfer-Encoding: chunked") + "\r\n0\r\n\r\n", 400},
		{"bare_lf_lines", "POST /pay HTTP/1.1\nHost: x\nContent-Length: 0\n\n", 400},
		{"bare_cr_in_line", head("cr", post, "X-A: 1\rX-B: 2", "Content-Length: 0") + "\r\n", 400},
		{"nul_in_value", head("nul", post, "X-A: \x00", "Content-Length: 0") + "\r\n", 400},
		{"U01_lower_case_guarded", head("U01", "post /pay HTTP/1.1", "Content-Length: 0") + "\r\n", 400},
		{"U01_lower_case", head("U01b", "post /free HTTP/1.1", "Content-Length: 0") + "\r\n", 501},
		{"U02_connect", "CONNECT shop.example:443 HTTP/1.1\r\nHost: shop.example:443\r\n\r\n", 405},
		{"U02_trace", "TRACE /pay HTTP/1.1\r\nHost: x\r\n\r\n", 405},
		{"U04_absolute_form", head("U04", "POST http://169.254.169.254/pay HTTP/1.1", "Content-Length: 0") + "\r\n", 421},
		{"U06_dot_segments", head("U06", "POST /x/../pay HTTP/1.1", "Content-Length: 0") + "\r\n", 400},
		{"U06_encoded_dot_segments", head("U06b", "POST /x/%2e%2e/pay HTTP/1.1", "Content-Length: 0") + "\r\n", 400},
		{"U07_semicolon", head("U07", "POST /pay?a=1;b=2 HTTP/1.1", "Content-Length: 0") + "\r\n", 400},
		{"U08_bad_escape", head("U08", "POST /pay?a=%zz HTTP/1.1", "Content-Length: 0") + "\r\n", 400},
		{"U09_10001_parameters", head("U09", "POST /pay?"+strings.Repeat("a&", 10001)+"x=1 HTTP/1.1", "Content-Length: 0") + "\r\n", 414},
		{"U11_target_of_8KiB", head("U11", "POST /pay?x="+strings.Repeat("y", 8<<10)+" HTTP/1.1", "Content-Length: 0") + "\r\n", 414},
		{"U12_fragment", head("U12", "POST /pay#x HTTP/1.1", "Content-Length: 0") + "\r\n", 400},
		{"U12_userinfo", head("U12b", "POST http://u:p@shop.example/pay HTTP/1.1", "Content-Length: 0") + "\r\n", 400},
		{"U12_nul", head("U12c", "POST /pay\x00 HTTP/1.1", "Content-Length: 0") + "\r\n", 400},
		{"U12_host_not_ASCII", "POST /pay HTTP/1.1\r\nHost: shöp.example\r\nContent-Length: 0\r\n\r\n", 400},
		{"U12_host_with_user", "POST /pay HTTP/1.1\r\nHost: u@shop.example\r\nContent-Length: 0\r\n\r\n", 400},
		{"B02_truncated_chunk", head("B02", post, "Transfer-Encoding: chunked") + "\r\nzz\r\n", 400},
		{"forged_refusal", "GET /free HTTP/1.1\r\nHost: x\r\nCounterfoil-Refused: x 418 teapot\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400},
	} {
		t.Run("Test"+tc.row, func(t *testing.T) {
			before := w.up.requests()
			a, err := w.raw(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if a.StatusCode != tc.status {
				t.Errorf("status %d, want %d: %s", a.StatusCode, tc.status, a.body)
			}
			if got := w.up.requests(); got != before {
				t.Error("it reached the upstream")
			}
		})
	}
	// After all that the server serves, and nothing was claimed.
	if a := w.pay("after", "x"); a.StatusCode != 201 {
		t.Errorf("afterwards: %d %s", a.StatusCode, a.body)
	}
	page, err := w.client().Records(t.Context(), filterAll)
	if err != nil || len(page.Items) != 1 {
		t.Errorf("%d records, %v; want the one of the last request", len(page.Items), err)
	}
}

// TestH13H14H18FieldsOfOurs: what only we may say is taken from the caller.
func TestH13H14H18FieldsOfOurs(t *testing.T) {
	w := start(t, payPolicy, "")
	if a, err := w.raw(head("H13", "POST /pay HTTP/1.1", "X-Forwarded-For: 6.6.6.6", "X-HTTP-Method-Override: DELETE",
		"Traceparent: "+strings.Repeat("x", 10<<10), "Content-Length: 1") + "\r\nx"); err != nil || a.StatusCode != 201 {
		t.Fatalf("%v, %v", a, err)
	}
	up := w.up.first()
	if up.Header.Get("X-Forwarded-For") != "127.0.0.1" || up.Header.Get("X-Http-Method-Override") != "" || up.Header.Get("Traceparent") != "" {
		t.Errorf("the upstream saw %v", up.Header)
	}
	if up.Header.Get("Idempotency-Key") != "k-H13" || len(up.Header.Get("Counterfoil-Identity")) != 40 {
		t.Errorf("the upstream saw %v", up.Header)
	}
}

// TestU05DoubleSlash: the upstream stays the one that is configured.
func TestU05DoubleSlash(t *testing.T) {
	w := start(t, payPolicy, "")
	if a, err := w.raw("GET //evil.example/x HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil || a.StatusCode != 201 || w.up.first().RequestURI != "//evil.example/x" {
		t.Errorf("%v, %v", a, err)
	}
}

// TestH21Pipelined: requests on one connection are answered in order, and a
// malformed one after good ones takes nothing from them.
func TestH21Pipelined(t *testing.T) {
	w := start(t, payPolicy, "")
	c, err := net.Dial("tcp", w.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	one := head("P1", "POST /pay HTTP/1.1", "Content-Length: 1") + "\r\nx"
	two := head("P2", "POST /pay HTTP/1.1", "Transfer-Encoding: chunked") + "\r\n1;ext=1\r\nx\r\n0\r\n\r\n"
	bad := head("P3", "POST /pay HTTP/1.1", "Transfer-Encoding: chunked", "Content-Length: 1") + "\r\n0\r\n\r\n"
	hidden := head("P4", "POST /pay HTTP/1.1", "Content-Length: 0") + "\r\n"
	if _, err := io.WriteString(c, one+two+one+"\r\n"+two+bad+hidden); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	for i, want := range []string{"201 created", "201 created", "201 replayed", "201 replayed", "400 "} {
		a, err := read(r)
		if err != nil {
			t.Fatalf("answer %d: %v", i+1, err)
		}
		if got := fmt.Sprintf("%d %s", a.StatusCode, a.Header.Get("Idempotency-Status")); got != want {
			t.Errorf("answer %d: %q, want %q: %s", i+1, got, want, a.body)
		}
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("the connection goes on after a request nobody can frame: %v", err)
	}
	if n := w.up.count(); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
}

// TestFramingIsTransparent: every cut of a valid stream into packets gives the
// same answers.
func TestFramingIsTransparent(t *testing.T) {
	w := start(t, payPolicy, "")
	stream := "POST /free HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc" +
		"POST /free HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n" +
		"GET /free HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for _, size := range []int{1, 2, 3, 7, 50} {
		c, err := net.Dial("tcp", w.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		sent := make(chan error, 1)
		go func() {
			for rest := stream; rest != ""; {
				n := min(size, len(rest))
				if _, err := io.WriteString(c, rest[:n]); err != nil {
					sent <- err
					return
				}
				rest = rest[n:]
			}
			sent <- nil
		}()
		r := bufio.NewReader(c)
		for i := range 3 {
			if a, err := read(r); err != nil || a.StatusCode != 201 {
				t.Errorf("pieces of %d, answer %d: %v, %v", size, i+1, a, err)
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		c.Close()
	}
}

// TestB03SlowBody: a body that trickles is given up, and claims nothing.
func TestB03SlowBody(t *testing.T) {
	w := start(t, payPolicy, "", func(o *server.Options) {
		o.Limits = server.Limits{BodyGrace: 50 * time.Millisecond, BodyRate: 1 << 20}
	})
	for _, path := range []string{"/pay", "/free"} {
		if a, err := w.raw(head("B03", "POST "+path+" HTTP/1.1", "Content-Length: 100") + "\r\nx"); err != nil || a.StatusCode != 408 {
			t.Errorf("%s: %v, %v; want 408", path, a.Response, err)
		}
	}
	if w.up.count() != 0 {
		t.Error("an effect of a body that never came")
	}
}

// TestRefusalDoesNotWaitForTheBody: nobody is going to read it.
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	w := start(t, payPolicy, "")
	for _, text := range []string{
		head("W1", "POST http://x/pay HTTP/1.1", "Content-Length: 100") + "\r\n",
		head("W2", "TRACE /pay HTTP/1.1", "Content-Length: 100") + "\r\n",
	} {
		began := time.Now()
		if a, err := w.raw(text); err != nil || a.StatusCode/100 != 4 || time.Since(began) > 5*time.Second {
			t.Errorf("%v, %v after %v", a.Response, err, time.Since(began))
		}
	}
}

// TestSlowHeader: a header that does not end is given up.
func TestSlowHeader(t *testing.T) {
	w := start(t, payPolicy, "", func(o *server.Options) { o.Limits.HeaderTimeout = 50 * time.Millisecond })
	if a, err := w.raw("POST /pay HTTP/1.1\r\nHost: x\r\nX-A: "); err == nil {
		t.Errorf("answered %d", a.StatusCode)
	}
}

// TestUpgradeThroughTheProgram: a websocket on an unguarded route.
func TestUpgradeThroughTheProgram(t *testing.T) {
	w := start(t, payPolicy, "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	echo := make(chan struct{})
	go func() {
		defer close(echo)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for line := ""; line != "\r\n"; {
			if line, err = r.ReadString('\n'); err != nil {
				return
			}
		}
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, r)
	}()
	w.stop()
	w2 := prepare(t, payPolicy, "")
	w2.conf.Upstream.Host = l.Addr().String()
	w2.Server = server.New(w2.conf, server.Options{})
	if err := w2.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", w2.Addr())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(c)
	for line := ""; line != "\r\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	for _, word := range []string{"not\nHTTP\n", "\r\n\r\n", "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"} {
		fmt.Fprint(c, word)
		got := make([]byte, len(word))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != word {
			t.Errorf("echo %q, %v; want %q", got, err, word)
		}
	}
	c.Close()
	<-echo
	w2.stop()
}
