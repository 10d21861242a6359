// Package config reads counterfoil.yaml, strictly: what it does not know or
// cannot act on it refuses, naming line, column and field, and what to write
// instead. It lists every fault at once.
package config

import (
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/policyfile"
)

// DefaultFile is read when no other file is named.
const DefaultFile = "counterfoil.yaml"

// MaxSize is the most a configuration file may hold, in bytes.
const MaxSize = 1 << 20

// Config is counterfoil.yaml with defaults filled in and paths made relative
// to the working directory of the process. contract.md §2 explains each field.
type Config struct {
	// File is where it was read from; empty when it came from the environment.
	File string

	Listen string
	Admin  string
	// AdminTokensFile is made, with a token in it, if it is absent.
	AdminTokensFile string
	Upstream        *url.URL
	Policy          string
	Store           Store
	// Reject refuses requests that no operation matches (unmatched: reject).
	Reject bool
	// Observe decides and counts, but lets every request through.
	Observe bool
	// TrustedPeers may name the principal in a header.
	TrustedPeers []netip.Prefix
	// AuthRequest and AuthProbe are nil when they are not configured.
	AuthRequest *AuthRequest
	AuthProbe   *AuthProbe
	// IndexKeyFile is empty when digests are made without a key.
	IndexKeyFile string
	// Accept are dangers taken on knowingly, by name.
	Accept []string
}

// StoreKind is the scheme of a store's address.
type StoreKind string

// The stores of this version.
const (
	StorePebble   StoreKind = "pebble"
	StoreMemory   StoreKind = "memory"
	StorePostgres StoreKind = "postgres"
)

// Store says where records are kept.
type Store struct {
	Kind StoreKind
	// Dir is the directory of a pebble store.
	Dir string
	// URL is where a PostgreSQL store connects to, password and all; Schema is
	// where its tables are.
	URL, Schema string
}

// String is the address as counterfoil.yaml spells it, without a password.
func (s Store) String() string {
	if s.Kind != StorePostgres {
		return string(s.Kind) + ":" + s.Dir
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return "postgres:"
	}
	q := u.Query()
	if q.Has("password") { // libpq takes it there, too
		q.Set("password", "xxxxx")
		u.RawQuery = q.Encode()
	}
	if s.Schema == defaultSchema {
		return u.Redacted()
	}
	return u.Redacted() + ", schema " + s.Schema
}

// defaultSchema is where PostgreSQL puts tables by itself.
const defaultSchema = "public"

// AuthRequest is who to ask for the principal of a request.
type AuthRequest struct {
	URL *url.URL
	// PrincipalHeader of the answer names the principal.
	PrincipalHeader string
	Timeout         time.Duration
}

// AuthProbe is what goes upstream with the caller's credentials before a
// replay.
type AuthProbe struct {
	Method string
	// Path starts with a slash and may have a query.
	Path string
}

// Error is returned by [Load] when the configuration is refused. Its text
// lists the faults in the order of the file, one a line.
type Error struct{ Findings []policyfile.Finding }

func (e *Error) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Load reads the file at path and then the environment, whose variables
// (COUNTERFOIL_LISTEN, …) win over the file. An empty path reads the
// environment alone. lookup is os.LookupEnv, or a test's own. Refusals are an
// [*Error]; other errors are those of the file system, wrapped.
func Load(path string, lookup func(string) (string, bool)) (*Config, error) {
	r := newReader(path)
	if path != "" {
		text, err := readFile(path)
		if err != nil {
			return nil, err
		}
		r.file(text)
	}
	if lookup != nil {
		r.environment(lookup)
	}
	r.finish()
	if len(r.findings) > 0 {
		return nil, &Error{r.sorted()}
	}
	return &r.config, nil
}

// readFile refuses a file that everybody can write: who can change it decides
// where requests go.
func readFile(path string) ([]byte, error) {
	// Stat before Open: opening a pipe would wait for its writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("configuration: %s is not a regular file; name a file", path)
	}
	if info.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("configuration: everybody can write %s (mode %04o); take that away: chmod o-w %s", path, info.Mode().Perm(), path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if len(text) > MaxSize {
		return nil, fmt.Errorf("configuration: %s is larger than 1MiB; it is probably another file", path)
	}
	return text, nil
}

// resolve makes a path of the file relative to the file's directory.
func (r *reader) resolve(path string) string {
	if filepath.IsAbs(path) || r.dir == "" {
		return filepath.Clean(path)
	}
	return filepath.Join(r.dir, path)
}
