package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestPrincipals: only trusted peers name the principal, on every route.
func TestPrincipals(t *testing.T) {
	w := start(t, payPolicy, "trusted_peers: [192.0.2.0/24]\n")
	if a := w.pay("k-1", "x"); a.StatusCode != 401 || a.problem() != "scope-missing" || w.up.count() != 0 {
		t.Errorf("untrusted peer: %d %s", a.StatusCode, a.body)
	}
	send(t, "GET", "http://"+w.Addr()+"/free", "", "X-Account-Id", "forged", "X_Account_Id", "forged", "X-Other", "1")
	got := w.up.first().Header
	if got.Get("X-Account-Id") != "" || got["X_account_id"] != nil || got.Get("X-Other") != "1" {
		t.Errorf("the upstream was told %v", got)
	}
}

func TestPrincipalTwiceIsNone(t *testing.T) {
	w := start(t, payPolicy, "")
	a := send(t, "POST", "http://"+w.Addr()+"/pay", "x", "Idempotency-Key", "k", "X-Account-Id", "a", "X-Account-Id", "b")
	if a.StatusCode != 401 || w.up.count() != 0 {
		t.Errorf("two principals: %d", a.StatusCode)
	}
}

// TestAuthRequest: asked on every request, replays too.
func TestAuthRequest(t *testing.T) {
	auth := newUpstream(t)
	status := 200
	auth.does(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Principal", "acct-"+r.Header.Get("Authorization"))
		rw.WriteHeader(status)
	})
	w := start(t, strings.Replace(payPolicy, `"header:X-Account-Id"`, "auth_request", 1), "auth_request: {url: "+auth.URL+"}\n")
	pay := func(token string) answer {
		return send(t, "POST", "http://"+w.Addr()+"/pay", "x", "Idempotency-Key", "k", "Authorization", token)
	}
	for _, step := range []struct {
		token  string
		status int // of the authorisation
		want   int
		mark   string
	}{
		{"a", 200, 201, "created"},
		{"a", 200, 201, "replayed"},
		{"b", 200, 201, "created"},
		{"a", 401, 401, ""},
		{"a", 403, 403, ""},
		{"a", 500, 503, ""},
		{"a", 200, 201, "replayed"},
	} {
		status = step.status
		if a := pay(step.token); a.StatusCode != step.want || a.Header.Get("Idempotency-Status") != step.mark {
			t.Errorf("%+v: %d %q %s", step, a.StatusCode, a.Header.Get("Idempotency-Status"), a.body)
		}
	}
	if w.up.count() != 2 {
		t.Errorf("%d effects, want 2", w.up.count())
	}
}

// TestAuthProbe: the caller's right of today decides on a replay.
func TestAuthProbe(t *testing.T) {
	w := start(t, payPolicy, "auth_probe: GET /v1/me\n")
	if a := w.pay("k-1", "x"); a.StatusCode != 201 {
		t.Fatal(a.StatusCode)
	}
	w.up.does(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/me" {
			rw.WriteHeader(403)
		}
	})
	if a := w.pay("k-1", "x"); a.StatusCode != 403 || strings.Contains(a.body, "n") {
		t.Errorf("right revoked: %d %s", a.StatusCode, a.body)
	}
	w.up.does(nil)
	if a := w.pay("k-1", "x"); a.StatusCode != 201 || a.Header.Get("Idempotency-Status") != "replayed" {
		t.Errorf("right given back: %d %s", a.StatusCode, a.body)
	}
}
