package config

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/policyfile"
)

// Codes of faults in configuration, beside those of package policyfile. They
// never change their meaning.
const (
	// CodeFieldMissing: a field without default was left out.
	CodeFieldMissing policy.Code = "field-missing"
	// CodeAddressInvalid: not an address to listen on, or not a network.
	CodeAddressInvalid policy.Code = "address-invalid"
	// CodeURLInvalid: not a URL that requests can be sent to.
	CodeURLInvalid policy.Code = "url-invalid"
	// CodeStoreInvalid: an address of no store.
	CodeStoreInvalid policy.Code = "store-invalid"
)

// fieldNames are the fields of counterfoil.yaml in the order of contract.md §2.
func fieldNames() []string {
	return []string{
		"listen", "admin", "admin_tokens_file", "upstream", "policy", "store", "unmatched", "mode",
		"trusted_peers", "auth_request", "auth_probe", "index_key_file", "accept",
	}
}

// field reads the value of one field.
func (r *reader) field(name string, n *yaml.Node) {
	c := &r.config
	switch name {
	case "listen":
		r.address(name, n, &c.Listen)
	case "admin":
		r.address(name, n, &c.Admin)
	case "admin_tokens_file":
		r.path(name, n, &c.AdminTokensFile)
	case "upstream":
		c.Upstream = r.upstream(name, n)
	case "policy":
		r.path(name, n, &c.Policy)
	case "store":
		r.store(name, n)
	case "unmatched":
		c.Reject = r.choice(name, n, "pass", "reject") == "reject"
	case "mode":
		c.Observe = r.choice(name, n, "enforce", "observe") == "observe"
	case "trusted_peers":
		r.peers(name, n)
	case "auth_request":
		r.authRequest(name, n)
	case "auth_probe":
		r.authProbe(name, n)
	case "index_key_file":
		r.path(name, n, &c.IndexKeyFile)
	case "accept":
		r.accept(name, n)
	}
}

// finish fills in defaults and holds the fields against each other.
func (r *reader) finish() {
	c := &r.config
	if c.Listen == "" {
		c.Listen = "127.0.0.1:8420"
	}
	if c.Admin == "" {
		c.Admin = "127.0.0.1:8421"
	}
	if c.Policy == "" {
		c.Policy = r.resolve("policy.yaml")
	}
	if c.Store == (Store{}) {
		c.Store = Store{Kind: StorePebble, Dir: r.resolve("data")}
	}
	if c.AdminTokensFile == "" {
		// Beside the store: both are this machine's secrets.
		c.AdminTokensFile = r.resolve("tokens")
		if c.Store.Kind == StorePebble {
			c.AdminTokensFile = filepath.Join(filepath.Dir(c.Store.Dir), "tokens")
		}
	}
	if _, said := r.seen["trusted_peers"]; !said {
		c.TrustedPeers = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	_, port, _ := net.SplitHostPort(c.Listen)
	if c.Upstream == nil {
		r.contradiction(CodeFieldMissing, "upstream", "nothing says where requests go", "write upstream: http://127.0.0.1:9000")
	} else if c.Upstream.Host == c.Listen && port != "0" {
		r.contradiction(CodeURLInvalid, "upstream", "it is this program's own listen address, so every request would come back", "write the address of the service behind")
	}
	if c.Listen == c.Admin && port != "0" {
		r.contradiction(CodeAddressInvalid, "admin", "it is the address of listen", "give each its own port: the admin listener is not for callers")
	}
}

func (r *reader) address(name string, n *yaml.Node, to *string) {
	s, ok := r.text(name, n)
	if !ok {
		return
	}
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		r.fail(CodeAddressInvalid, name, n, fmt.Sprintf("%q is not an address to listen on", s), "write host:port, such as 127.0.0.1:8420 or :8420")
		return
	}
	*to = s
}

func (r *reader) path(name string, n *yaml.Node, to *string) {
	if s, ok := r.text(name, n); ok {
		*to = r.resolve(s)
	}
}

func (r *reader) choice(name string, n *yaml.Node, words ...string) string {
	s, ok := r.text(name, n)
	if ok && !slices.Contains(words, s) {
		r.fail(policy.CodeValueInvalid, name, n, fmt.Sprintf("%q is not one of its values", s), "write "+strings.Join(words, " or "))
	}
	return s
}

// httpURL reads an http or https URL with a host.
func (r *reader) httpURL(name string, n *yaml.Node, example string) *url.URL {
	s, ok := r.text(name, n)
	if !ok {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "":
		// The text of the error would repeat a password.
		r.fail(CodeURLInvalid, name, n, "it is not an http or https URL with a host", "write "+example)
	case u.User != nil:
		r.fail(CodeURLInvalid, name, n, "it has a user name or password in it", "take them out: callers' own credentials go upstream unchanged")
	default:
		return u
	}
	return nil
}

func (r *reader) upstream(name string, n *yaml.Node) *url.URL {
	u := r.httpURL(name, n, "http://127.0.0.1:9000")
	if u == nil {
		return nil
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery {
		r.fail(CodeURLInvalid, name, n, "it has a path or a query, and requests go up with their own", "write scheme and host only: "+u.Scheme+"://"+u.Host)
		return nil
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}
}

// laterStores are documented stores that are not built.
var laterStores = []string{"redis", "rediss", "redis-cluster", "redis-sentinel"}

func (r *reader) store(name string, n *yaml.Node) {
	s, ok := r.text(name, n)
	if !ok {
		return
	}
	scheme, rest, colon := strings.Cut(s, ":")
	const write = "write pebble:./data, postgres://…, or memory: for trials"
	switch {
	case (scheme == "postgres" || scheme == "postgresql") && colon:
		store, err := postgres(s)
		if err != nil {
			r.fail(CodeStoreInvalid, name, n, err.Error(), "write postgres://USER@HOST:PORT/DATABASE, with counterfoil_schema=NAME where the tables are not in public")
			return
		}
		r.config.Store = store
	case slices.Contains(laterStores, scheme) && colon:
		r.fail(policyfile.CodeNotInThisVersion, name, n, scheme+": is not in this version", write)
	case scheme == string(StorePebble) && colon && rest != "":
		r.config.Store = Store{Kind: StorePebble, Dir: r.resolve(rest)}
	case scheme == string(StorePebble) && colon:
		r.fail(CodeStoreInvalid, name, n, "pebble: needs a directory", write)
	case scheme == string(StoreMemory) && colon && rest == "":
		r.config.Store = Store{Kind: StoreMemory}
	default:
		r.fail(CodeStoreInvalid, name, n, "it is not the address of a store", write)
	}
}

// postgres reads the address of a PostgreSQL store; what stands in the URL is for
// the driver to judge. Its errors do not repeat the address, which may hold a
// password.
func postgres(address string) (Store, error) {
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" {
		return Store{}, errors.New("it is not a URL")
	}
	s := Store{Kind: StorePostgres, Schema: defaultSchema}
	q := u.Query()
	if q.Has("counterfoil_schema") {
		s.Schema = q.Get("counterfoil_schema")
		q.Del("counterfoil_schema")
		u.RawQuery = q.Encode()
	}
	if s.Schema == "" {
		return Store{}, errors.New("counterfoil_schema is empty")
	}
	s.URL = u.String()
	return s, nil
}

func (r *reader) peers(name string, n *yaml.Node) {
	r.config.TrustedPeers = nil
	r.texts(name, n, func(item *yaml.Node, s string) {
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			addr, err := netip.ParseAddr(s)
			if err != nil {
				r.fail(CodeAddressInvalid, name, item, fmt.Sprintf("%q is not a network", s), `write address/bits, such as 10.0.0.0/8 or "::1/128"`)
				return
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		if prefix != prefix.Masked() {
			r.fail(CodeAddressInvalid, name, item, fmt.Sprintf("%q has bits set beyond its length", s), "write "+prefix.Masked().String())
			return
		}
		r.config.TrustedPeers = append(r.config.TrustedPeers, prefix)
	})
}

func (r *reader) authRequest(name string, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		r.fail(policyfile.CodeValueType, name, n, "it is not a mapping", `write {url: "http://…", principal_header: X-Principal, timeout: 2s}`)
		return
	}
	a := &AuthRequest{PrincipalHeader: "X-Principal", Timeout: 2 * time.Second}
	r.pairs(n, name+".", []string{"url", "principal_header", "timeout"}, func(key string, value *yaml.Node) {
		field := name + "." + key
		switch key {
		case "url":
			a.URL = r.httpURL(field, value, "http://127.0.0.1:9001/auth")
		case "principal_header":
			if s, ok := r.text(field, value); ok {
				if !isToken(s) {
					r.fail(policy.CodeValueInvalid, field, value, fmt.Sprintf("%q is not the name of a header field", s), "write a name such as X-Principal")
				}
				a.PrincipalHeader = http.CanonicalHeaderKey(s)
			}
		case "timeout":
			r.duration(field, value, &a.Timeout)
		}
	})
	if a.URL == nil && !r.broken[name+".url"] {
		r.fail(CodeFieldMissing, name+".url", n, "nothing says whom to ask", "write url: http://127.0.0.1:9001/auth")
	}
	r.config.AuthRequest = a
}

// isToken reports whether s can be the name of a header field.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

func (r *reader) duration(field string, n *yaml.Node, to *time.Duration) {
	s, ok := r.text(field, n)
	if !ok {
		return
	}
	d, err := policy.ParseDuration(s)
	switch {
	case err != nil:
		message, remedy, _ := strings.Cut(strings.TrimPrefix(err.Error(), policy.ErrDuration.Error()+": "), "; ")
		r.fail(policyfile.CodeDurationInvalid, field, n, message, remedy)
	case d == 0:
		r.fail(policy.CodeDurationZero, field, n, "it is zero, so nothing could ever answer in time", "write a time such as 2s")
	default:
		*to = d
	}
}

func (r *reader) authProbe(name string, n *yaml.Node) {
	s, ok := r.text(name, n)
	if !ok {
		return
	}
	method, path, _ := strings.Cut(s, " ")
	u, err := url.ParseRequestURI(path)
	switch {
	case method != http.MethodGet && method != http.MethodHead:
		r.fail(policy.CodeValueInvalid, name, n, "a probe must not change anything", `write GET or HEAD and a path: "GET /v1/me"`)
	case err != nil || u.Host != "" || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//"):
		r.fail(policy.CodeValueInvalid, name, n, "it has no path to ask upstream", `write a method and a path: "GET /v1/me"`)
	default:
		r.config.AuthProbe = &AuthProbe{method, path}
	}
}

// accepted are the dangers that are taken on for the whole program.
var accepted = []string{policy.AcceptMayLoseClaims}

func (r *reader) accept(name string, n *yaml.Node) {
	r.config.Accept = nil
	r.texts(name, n, func(item *yaml.Node, s string) {
		switch {
		case slices.Contains(accepted, s):
			r.config.Accept = append(r.config.Accept, s)
		case slices.Contains(policy.Dangers(), s):
			// Taken in here it would have no effect.
			r.fail(policy.CodeAcceptUnknown, name, item, s+" is accepted by an operation, not by the program", "write it in policy.yaml, at the operation")
		default:
			remedy := "known: " + strings.Join(accepted, ", ")
			if near := policyfile.Nearest(s, accepted); near != "" {
				remedy = "did you mean " + near + "? (" + remedy + ")"
			}
			r.fail(policy.CodeAcceptUnknown, name, item, fmt.Sprintf("nobody knows a danger called %q", s), remedy)
		}
	})
}
