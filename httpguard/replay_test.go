package httpguard_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"reflect"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil"
)

// shape is one form that an answer can have.
type shape struct {
	name string
	h    http.HandlerFunc
	// gone: the response cannot be kept, so that the repeat is told the outcome.
	gone bool
}

func header(fields ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i+1 < len(fields); i += 2 {
			w.Header().Add(fields[i], fields[i+1])
		}
	}
}

// with answers with fields, a status (0: none is written) and bodies.
func with(set func(http.ResponseWriter), status int, bodies ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if set != nil {
			set(w)
		}
		if status != 0 {
			w.WriteHeader(status)
		}
		for _, b := range bodies {
			_, _ = io.WriteString(w, b)
		}
	}
}

func shapes() []shape {
	big := strings.Repeat("0123456789abcdef", 1<<16/16)
	s := []shape{
		{name: "nothing at all", h: func(http.ResponseWriter, *http.Request) {}},
		{name: "body without status", h: with(nil, 0, "x")},
		{name: "status without body", h: with(nil, 201)},
		{name: "empty write", h: with(nil, 201, "")},
		{name: "204", h: with(header("Etag", `"v1"`), 204)},
		{name: "204 with a body", h: with(nil, 204, "ignored")},
		{name: "304", h: with(header("Etag", `"v1"`), 304)},
		{name: "303", h: with(header("Location", "/pay/1"), 303, "moved")},
		{name: "404", h: with(nil, 404, "no such thing")},
		{name: "418", h: with(nil, 418, "teapot")},
		{name: "501", h: with(nil, 501, "not implemented")},
		{name: "299", h: with(nil, 299, "odd")},
		{name: "two writes", h: with(nil, 200, "a", "b")},
		{name: "2047 bytes", h: with(nil, 200, big[:2047])},
		{name: "2048 bytes", h: with(nil, 200, big[:2048])},
		{name: "2049 bytes", h: with(nil, 200, big[:2049])},
		{name: "64 KiB", h: with(nil, 200, big)},
		{name: "many writes", h: with(nil, 200, strings.Split(big[:4096], "")...)},
		{name: "1 MiB", h: with(nil, 200, strings.Repeat(big, 16))},
		{name: "over 1 MiB", h: with(nil, 200, strings.Repeat(big, 16), "x"), gone: true},
		{name: "html by sniffing", h: with(nil, 200, "<html><body>hi</body></html>")},
		{name: "type left out on purpose", h: func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "<html>")
		}},
		{name: "binary", h: with(header("Content-Type", "application/octet-stream"), 200, "\x00\xff\xfe\r\n\r\n")},
		{name: "gzip", h: with(header("Content-Encoding", "gzip", "Content-Type", "application/json"), 200, "\x1f\x8b\x08\x00")},
		{name: "length declared", h: with(header("Content-Length", "3"), 200, "abc")},
		{name: "length declared, many writes", h: with(header("Content-Length", "3"), 200, "a", "b", "c")},
		{name: "length zero", h: with(header("Content-Length", "0"), 200)},
		{name: "length in a strange form", h: with(header("Content-Length", "x"), 200, "abc")},
		{name: "C01 commas and lines", h: with(header(
			"Content-Disposition", `attachment; filename="a,b.txt"`, "Link", `</p/2>; rel="next"`, "Link", `</p/9>; rel="last"`,
			"Warning", `199 - "x, y"`), 201, "x")},
		{name: "C54 location, etag", h: with(header("Location", "/pay/1", "Etag", `"v1"`, "X-Resource-Version", "7"), 201, "x")},
		{name: "C03 cookies and challenges", h: with(header("Set-Cookie", "csrf=AAA; HttpOnly", "Set-Cookie", "b=2; Expires=Thu, 01 Jan 2099 00:00:00 GMT",
			"WWW-Authenticate", "Bearer", "Proxy-Authenticate", "Basic", "Authentication-Info", `nextnonce="x"`), 201, "x")},
		{name: "hop by hop", h: with(header("Connection", "close, X-Hop", "X-Hop", "1", "Keep-Alive", "timeout=5", "Proxy-Connection", "x"), 200, "x")},
		{name: "own date", h: with(header("Date", "Thu, 01 Jan 2026 00:00:00 GMT"), 200, "x")},
		{name: "cache control", h: with(header("Cache-Control", "max-age=60", "Vary", "Accept", "Expires", "0"), 200, "x")},
		{name: "empty values", h: with(header("X-Empty", "", "X-Empty", ""), 200, "x")},
		{name: "our own names", h: with(header("Idempotent-Replayed", "true", "Idempotency-Status", "forged", "Idempotency-Record", "forged"), 200, "x")},
		{name: "announced trailer", h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum, X-None")
			_, _ = io.WriteString(w, "x")
			w.Header().Set("X-Sum", "9")
		}},
		{name: "trailer by prefix", h: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			_, _ = io.WriteString(w, "x")
			w.Header().Set(http.TrailerPrefix+"X-Late", "8")
		}},
		{name: "header changed too late", h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-A", "1")
			w.WriteHeader(201)
			w.Header().Set("X-A", "2")
			w.Header().Set("X-B", "2")
		}},
		{name: "second status", h: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			w.WriteHeader(500)
			_, _ = io.WriteString(w, "x")
		}},
		{name: "103", h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(103)
			w.Header().Del("Link")
			w.Header().Set("X-A", "1")
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "x")
		}},
		{name: "many fields", h: with(func(w http.ResponseWriter) {
			for i := range 40 {
				w.Header().Add(fmt.Sprintf("X-F%d", i), strings.Repeat("v", i))
			}
		}, 200, "x")},
		{name: "value with a line break", h: with(header("X-Bad", "a\r\nSet-Cookie: x=1", "X-Good", "1", "X-Both", "ok", "X-Both", "b\nd"), 200, "x")},
		{name: "SSE", gone: true, h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "data: 2\n\n")
		}},
		{name: "flush of nothing", h: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(204)
			w.(http.Flusher).Flush()
		}},
	}
	return s
}

// exchange sends one request over a connection and reads all of the answer.
func (f *fixture) exchange(t *testing.T, key string) *http.Response {
	t.Helper()
	srv := f.serve()
	r, err := http.NewRequest("POST", srv.URL+"/pay", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Idempotency-Key": {key}, "X-Account": {"acct-1"}, "Content-Type": {"application/json"}}
	res, err := plain(srv.Client()).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(b))
	return res
}

var dropped = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Date", "Set-Cookie", "Www-Authenticate",
	"Proxy-Authenticate", "Authentication-Info", "X-Hop",
}

// P9, with what is never stored taken off on both sides.
func TestP9ReplayIsTheSameAnswer(t *testing.T) {
	for _, s := range shapes() {
		t.Run(s.name, func(t *testing.T) {
			bare := newServer(t, s.h)
			f := newFixture(t, setup{handler: s.h})
			f.t = t
			b := bareExchange(t, bare.URL, bare.Client())
			a1 := f.exchange(t, "p9")
			a2 := f.exchange(t, "p9")
			bodyB, body1, body2 := text(b), text(a1), text(a2)
			if a1.StatusCode != b.StatusCode || body1 != bodyB {
				t.Errorf("the guard alters the first answer: %d %.80q, want %d %.80q", a1.StatusCode, body1, b.StatusCode, bodyB)
			}
			if a1.Header.Get("Idempotency-Status") != "created" || a1.Header.Get("Idempotent-Replayed") != "" {
				t.Errorf("first: %v", a1.Header)
			}
			compare(t, "first", strip(a1.Header, false), strip(b.Header, false))
			if s.gone {
				if a2.Header.Get("Idempotency-Status") != "already-processed" {
					t.Errorf("repeat: %v", a2.Header)
				}
				return
			}
			if a2.StatusCode != a1.StatusCode || body2 != body1 {
				t.Errorf("replay: %d %.80q, want %d %.80q", a2.StatusCode, body2, a1.StatusCode, body1)
			}
			if a2.Header.Get("Idempotency-Status") != "replayed" || a2.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("replay: %v", a2.Header)
			}
			compare(t, "replay", strip(a2.Header, true), strip(a1.Header, true))
			compare(t, "trailers", a2.Trailer, a1.Trailer)
			if !reflect.DeepEqual(a1.Trailer, b.Trailer) {
				t.Errorf("trailers of the first answer: %v, bare %v", a1.Trailer, b.Trailer)
			}
			for _, name := range dropped {
				if name != "Date" && name != "Connection" && a2.Header[name] != nil {
					t.Errorf("replay has %s", name)
				}
			}
			if n := len(a2.Header["Date"]); n != 1 {
				t.Errorf("%d Date lines", n)
			}
		})
	}
}

func bareExchange(t *testing.T, url string, client *http.Client) *http.Response {
	t.Helper()
	res, err := plain(client).Post(url, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(res.Body)
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(b))
	return res
}

// plain is a client that shows answers as they came.
func plain(c *http.Client) *http.Client {
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Transport.(*http.Transport).DisableCompression = true
	return c
}

func text(r *http.Response) string {
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

// strip takes off what the guard adds, framing, and what is never stored.
func strip(h http.Header, never bool) http.Header {
	h = h.Clone()
	for name := range h {
		if strings.HasPrefix(name, "Idempoten") {
			delete(h, name)
		}
	}
	delete(h, "Content-Length")
	delete(h, "Date")
	// A value that could inject a field is dropped whole.
	delete(h, "X-Bad")
	delete(h, "X-Both")
	if never {
		for _, name := range dropped {
			delete(h, name)
		}
	}
	return h
}

func compare(t *testing.T, what string, got, want http.Header) {
	t.Helper()
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s: %s is %q, want %q", what, name, got[name], want[name])
		}
	}
	for name := range got {
		if want[name] == nil {
			t.Errorf("%s: %s is new: %q", what, name, got[name])
		}
	}
}

// C03: the excluded fields are not in the stored bytes either.
func TestC03ForbiddenFieldsAreNotStored(t *testing.T) {
	const secret = "canary-7f3a"
	names := []string{
		"Set-Cookie", "WWW-Authenticate", "Proxy-Authenticate", "Authentication-Info", "Proxy-Authentication-Info",
		"Connection", "Keep-Alive", "Proxy-Connection", "TE", "Upgrade", "Date", "Counterfoil-Outcome",
		"Counterfoil-Resource", "Counterfoil-Identity", "Idempotency-Status", "Idempotent-Replayed", "Idempotency-Record",
	}
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range names {
			w.Header().Set(name, secret)
		}
		w.WriteHeader(201)
	})})
	f.post("/pay", "k", "{}")
	rec := f.record("pay", "k")
	b, err := f.store.Response(context.Background(), rec.ID, rec.Rev)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte(secret)) {
		t.Errorf("stored: %q", b)
	}
}

// Fields that middleware outside of the guard sets belong to each exchange.
func TestFieldsOfOuterMiddleware(t *testing.T) {
	n := 0
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if w.Header().Get("X-Request-Id") == "" {
			t.Error("the handler does not see X-Request-Id")
		}
		w.Header().Del("X-Secret")
		w.Header().Set("X-Handler", "1")
		w.WriteHeader(201)
	})})
	inner := f.handler
	f.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("X-Request-Id", fmt.Sprint(n))
		w.Header().Set("X-Secret", "1")
		inner.ServeHTTP(w, r)
	})
	a1, a2 := f.post("/pay", "k", "{}"), f.post("/pay", "k", "{}")
	if a1.header.Get("X-Request-Id") != "1" || a2.header.Get("X-Request-Id") != "2" || a2.header.Get("X-Handler") != "1" {
		t.Errorf("%v, %v", a1.header, a2.header)
	}
	if a1.header.Get("X-Secret") != "" {
		t.Error("a field that the handler took off came back")
	}
}

func TestInformationalAnswerPasses(t *testing.T) {
	f := newFixture(t, setup{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(103)
		w.Header().Del("Link")
		w.WriteHeader(201)
	})})
	answers := raw(t, f.serve(), "POST /pay HTTP/1.1\r\nHost: x\r\nX-Account: acct-1\r\nIdempotency-Key: k\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", 2)
	if len(answers) != 2 || answers[0].status != 103 || answers[0].header.Get("Link") != "</a>" {
		t.Fatalf("%+v", answers[0])
	}
	answers[1].wants(t, 201, "", "created")
	if answers[1].header.Get("Link") != "" {
		t.Error("the field of the 103 is in the answer")
	}
}

// A body shorter than promised breaks the connection as without the guard, and
// is not replayed as if it were whole.
func TestShortBodyIsNotKept(t *testing.T) {
	f := newFixture(t, setup{handler: with(header("Content-Length", "10"), 201, "abc")})
	f.post("/pay", "k", "{}")
	f.post("/pay", "k", "{}").wants(t, 201, "", "already-processed")
}

func TestUnreadableKeptResponse(t *testing.T) {
	f := newFixture(t, setup{})
	f.store.set(func(s *faults) {
		s.before = func(w *counterfoil.Write) error {
			if w.Response != nil {
				w.Response = append([]byte{99}, w.Response[1:]...)
			}
			return nil
		}
	})
	f.post("/pay", "k", "{}")
	f.post("/pay", "k", "{}").wants(t, 201, "", "already-processed")
}

func TestP6MismatchRevealsNothing(t *testing.T) {
	const secret = "canary-91c2"
	f := newFixture(t, setup{handler: with(header("X-Secret", secret, "Location", "/"+secret), 201, secret)})
	f.post("/pay", "k", `{"a":1}`)
	before := f.record("pay", "k")
	for _, a := range []*answer{
		f.post("/pay", "k", `{"a":2}`),
		f.post("/pay?x=1", "k", `{"a":1}`),
		f.send("PUT", "/pay", "k", `{"a":1}`),
		f.post("/pay/1", "k", `{"a":1}`),
		f.post("/pay", "k", ``),
	} {
		a.wants(t, 422, "key-reused", "mismatch")
		if strings.Contains(fmt.Sprint(a.header, a.body), secret) {
			t.Errorf("%v %s", a.header, a.body)
		}
		for _, name := range []string{"Idempotency-Replay-Until", "Idempotency-Protected-Until", "Idempotent-Replayed", "Location"} {
			if a.header.Get(textproto.CanonicalMIMEHeaderKey(name)) != "" {
				t.Errorf("%s is told", name)
			}
		}
	}
	if after := f.record("pay", "k"); !reflect.DeepEqual(before, after) {
		t.Errorf("the record changed: %+v", after)
	}
}
