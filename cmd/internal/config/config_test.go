package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/cmd/internal/config"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "counterfoil.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestDefaults(t *testing.T) {
	path := write(t, "upstream: http://127.0.0.1:9000\n")
	c, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	if c.Listen != "127.0.0.1:8420" || c.Admin != "127.0.0.1:8421" || c.Reject || c.Observe {
		t.Errorf("defaults: %+v", c)
	}
	if c.Policy != filepath.Join(dir, "policy.yaml") || c.Store != (config.Store{Kind: config.StorePebble, Dir: filepath.Join(dir, "data")}) {
		t.Errorf("paths are not beside the file: %s, %s", c.Policy, c.Store)
	}
	if c.AdminTokensFile != filepath.Join(dir, "tokens") {
		t.Errorf("tokens at %s, want beside the store", c.AdminTokensFile)
	}
	if len(c.TrustedPeers) != 2 {
		t.Errorf("trusted peers: %v, want loopback", c.TrustedPeers)
	}
}

// A PostgreSQL store keeps its URL, and shows it without the password.
func TestPostgres(t *testing.T) {
	c, err := config.Load(write(t, "upstream: http://127.0.0.1:9000\nstore: postgres://u:hush@db.example/pay?counterfoil_schema=ids&password=hush&pool_max_conns=9\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Store{Kind: config.StorePostgres, URL: "postgres://u:hush@db.example/pay?password=hush&pool_max_conns=9", Schema: "ids"}
	if c.Store != want {
		t.Errorf("got %+v, want %+v", c.Store, want)
	}
	if shown := c.Store.String(); strings.Contains(shown, "hush") || !strings.Contains(shown, "db.example/pay") || !strings.Contains(shown, "schema ids") {
		t.Errorf("it is shown as %q", shown)
	}
}

func TestEveryField(t *testing.T) {
	path := write(t, `
listen: ":8420"
admin: "[::1]:8421"
admin_tokens_file: /run/tokens
upstream: https://api.example:9000/
policy: rules/policy.yaml
store: pebble:../db/records
unmatched: reject
mode: observe
trusted_peers: [10.0.0.0/8, "::1/128", 192.0.2.7]
auth_request: {url: "http://127.0.0.1:9001/auth?x=1", principal_header: x-account, timeout: 1500ms}
auth_probe: "GET /v1/me?full=1"
index_key_file: index.key
accept: [may-lose-acknowledged-claims]
`)
	c, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	for _, p := range [][2]string{
		{c.Policy, filepath.Join(dir, "rules/policy.yaml")},
		{c.Store.Dir, filepath.Join(dir, "../db/records")},
		{c.AdminTokensFile, "/run/tokens"},
		{c.IndexKeyFile, filepath.Join(dir, "index.key")},
		{c.Upstream.String(), "https://api.example:9000"},
		{c.AuthRequest.PrincipalHeader, "X-Account"},
		{c.AuthRequest.URL.String(), "http://127.0.0.1:9001/auth?x=1"},
		{c.AuthProbe.Method + " " + c.AuthProbe.Path, "GET /v1/me?full=1"},
	} {
		if p[0] != p[1] {
			t.Errorf("got %q, want %q", p[0], p[1])
		}
	}
	if !c.Reject || !c.Observe || c.AuthRequest.Timeout != 1500*time.Millisecond || len(c.Accept) != 1 || len(c.TrustedPeers) != 3 {
		t.Errorf("got %+v", c)
	}
}

func TestRefusals(t *testing.T) {
	const up = "upstream: http://127.0.0.1:9000\n"
	for _, tc := range []struct {
		name, text string
		want       []string // each in the error's text
	}{
		{"no upstream", "listen: :1\n", []string{"upstream: nothing says", "write upstream:"}},
		{"unknown field", up + "lisen: :1\n", []string{":2:1: lisen: unknown field", "did you mean listen?"}},
		{"unknown nested field", up + "auth_request: {url: http://x, principal: P}\n", []string{":2:31: auth_request.principal: unknown field", "principal_header"}},
		{"twice", up + up, []string{":2:1: upstream: it is already written in line 1"}},
		{"no value", up + "listen:\n", []string{":2:1: listen: the field has no value"}},
		{"no port", up + "listen: localhost\n", []string{":2:9: listen: ", "127.0.0.1:8420"}},
		{"port out of range", up + "listen: :70000\n", []string{":2:9: listen"}},
		{"same address", up + "admin: 127.0.0.1:8420\n", []string{":2:8: admin: it is the address of listen"}},
		{"itself", "upstream: http://127.0.0.1:8420\n", []string{":1:11: upstream", "listen address"}},
		{"not http", "upstream: ftp://x\n", []string{":1:11: upstream", "http or https"}},
		{"password", "upstream: http://u:hunter2@x\n", []string{"user name or password"}},
		{"path", "upstream: http://x/api\n", []string{"path or a query", "http://x"}},
		{"duration without unit", up + "auth_request: {url: http://x, timeout: 2}\n", []string{":2:40: auth_request.timeout", "has no unit", "2s"}},
		{"negative duration", up + "auth_request: {url: http://x, timeout: -2s}\n", []string{"is negative"}},
		{"zero duration", up + "auth_request: {url: http://x, timeout: 0s}\n", []string{"it is zero"}},
		{"auth_request without url", up + "auth_request: {timeout: 2s}\n", []string{"auth_request.url: nothing says whom to ask"}},
		{"not a header", up + "auth_request: {url: http://x, principal_header: 'a b'}\n", []string{"not the name of a header field"}},
		{"probe that writes", up + "auth_probe: POST /x\n", []string{"must not change anything"}},
		{"probe elsewhere", up + "auth_probe: GET //evil/x\n", []string{"no path to ask upstream"}},
		{"postgres schema", up + "store: postgres://h/db?counterfoil_schema=\n", []string{":2:8: store: counterfoil_schema is empty"}},
		{"postgres without slashes", up + "store: postgres:db\n", []string{":2:8: store: it is not a URL"}},
		{"postgres URL", up + "store: 'postgres://u:hush@[::1/db'\n", []string{":2:8: store: it is not a URL"}},
		{"redis", up + "store: redis-cluster://x\n", []string{"redis-cluster: is not in this version"}},
		{"pebble without directory", up + "store: 'pebble:'\n", []string{"needs a directory"}},
		{"no scheme", up + "store: ./data\n", []string{"not the address of a store"}},
		{"unmatched", up + "unmatched: deny\n", []string{"write pass or reject"}},
		{"mode", up + "mode: Enforce\n", []string{"write enforce or observe"}},
		{"network", up + "trusted_peers: [10.0.0.1/8]\n", []string{":2:17: trusted_peers", "write 10.0.0.0/8"}},
		{"network as text", up + "trusted_peers: 10.0.0.0/8\n", []string{"it is not a list"}},
		{"danger", up + "accept: [may-lose-acknowleged-claims]\n", []string{"did you mean may-lose-acknowledged-claims?"}},
		{"danger of an operation", up + "accept: [unresolved-needs-operator]\n", []string{":2:10: accept", "at the operation"}},
		{"second document", up + "---\nlisten: :1\n", []string{"second document"}},
		{"anchor", "upstream: &a http://x\n", []string{"anchors"}},
		{"tab", "upstream:\n\t- x\n", []string{"not YAML"}},
		{"list", "- x\n", []string{"not a mapping"}},
		{"all at once", "lisen: :1\nstore: redis:x\nmode: off\n", []string{"lisen", "redis: is not", "mode:", "upstream:"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := config.Load(write(t, tc.text), nil)
			var e *config.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want a refusal", err)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in:\n%s", w, err)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("the password is in the message")
			}
			for _, f := range e.Findings {
				if f.Remedy == "" || f.Code == "" {
					t.Errorf("%s: no code or remedy", f)
				}
			}
		})
	}
}

func TestEnvironmentWins(t *testing.T) {
	path := write(t, "upstream: nonsense\nstore: redis:x\nlisten: :1\ntrusted_peers: [10.0.0.0/8]\n")
	c, err := config.Load(path, env(
		"COUNTERFOIL_UPSTREAM", "http://127.0.0.1:9000",
		"COUNTERFOIL_STORE", "pebble:kept",
		"COUNTERFOIL_TRUSTED_PEERS", "192.0.2.0/24, ::1",
		"COUNTERFOIL_ACCEPT", "[may-lose-acknowledged-claims]",
		"COUNTERFOIL_AUTH_REQUEST", "{url: http://127.0.0.1:1/, timeout: 1s}",
	))
	if err != nil {
		t.Fatal(err)
	}
	if c.Upstream.Host != "127.0.0.1:9000" || c.Listen != ":1" || len(c.TrustedPeers) != 2 || len(c.Accept) != 1 || c.AuthRequest.Timeout != time.Second {
		t.Errorf("got %+v", c)
	}
	if want := filepath.Join(filepath.Dir(path), "kept"); c.Store.Dir != want {
		t.Errorf("store in %s, want %s: relative to the file as in the file", c.Store.Dir, want)
	}
}

func TestEnvironmentAlone(t *testing.T) {
	c, err := config.Load("", env("COUNTERFOIL_UPSTREAM", "http://127.0.0.1:9000"))
	if err != nil || c.Store.Dir != "data" {
		t.Fatalf("got %+v, %v", c, err)
	}
	_, err = config.Load("", env("COUNTERFOIL_UPSTREAM", "http://127.0.0.1:9000", "COUNTERFOIL_MODE", "off"))
	if err == nil || !strings.Contains(err.Error(), "COUNTERFOIL_MODE: mode:") {
		t.Errorf("got %v, want the variable's name", err)
	}
}

func TestFileOfEverybodyIsRefused(t *testing.T) {
	path := write(t, "upstream: http://127.0.0.1:9000\n")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(path, nil); err == nil || !strings.Contains(err.Error(), "chmod o-w") {
		t.Errorf("got %v", err)
	}
}

func TestMissingFile(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "none.yaml"), nil)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want not exist", err)
	}
}
