package admin

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// minToken is the shortest token accepted: 256 bits in base64url.
const minToken = 43

// Tokens are the named actors of an admin_tokens_file. The zero value knows
// nobody.
type Tokens struct {
	names  []string
	sums   [][sha256.Size]byte
	tokens []string
}

// ReadTokens reads a file of "NAME TOKEN" lines. The file must not be readable
// by others: whoever reads it can settle records.
func ReadTokens(path string) (Tokens, error) {
	f, err := os.Open(path)
	if err != nil {
		return Tokens{}, fmt.Errorf("admin_tokens_file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Tokens{}, fmt.Errorf("admin_tokens_file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return Tokens{}, fmt.Errorf("admin_tokens_file: %s is not a regular file; name a file", path)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return Tokens{}, fmt.Errorf("admin_tokens_file: others can read %s (mode %04o); take that away: chmod 600 %s", path, info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return Tokens{}, fmt.Errorf("admin_tokens_file: %w", err)
	}
	return parseTokens(path, text)
}

// OpenTokens is ReadTokens, after making the file with one new token if there
// is none. It reports whether it did.
func OpenTokens(path string) (t Tokens, made bool, err error) {
	t, err = ReadTokens(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return t, false, err
	}
	if err := makeTokens(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return Tokens{}, false, fmt.Errorf("admin_tokens_file: %w", err)
	}
	t, err = ReadTokens(path)
	return t, err == nil, err
}

// makeTokens writes a whole file or none: a reader never sees half a token.
func makeTokens(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tokens-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = fmt.Fprintf(tmp, "# NAME TOKEN, one a line; the name is kept as the actor of what it does\noperator %s\n", NewToken())
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Link(tmp.Name(), path) // fails if somebody else was first
}

// NewToken draws a token of 256 bits.
func NewToken() string {
	var b [32]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func parseTokens(path string, text []byte) (Tokens, error) {
	var t Tokens
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		switch {
		case len(words) != 2:
			return Tokens{}, fmt.Errorf("admin_tokens_file: %s:%d: %d words; write NAME TOKEN", path, n, len(words))
		case len(words[0]) > 64:
			return Tokens{}, fmt.Errorf("admin_tokens_file: %s:%d: the name is longer than 64 bytes", path, n)
		case len(words[1]) < minToken:
			return Tokens{}, fmt.Errorf("admin_tokens_file: %s:%d: the token of %s is %d characters long; at least %d are needed (try: head -c 32 /dev/urandom | base64)", path, n, words[0], len(words[1]), minToken)
		}
		t.names = append(t.names, words[0])
		t.tokens = append(t.tokens, words[1])
		t.sums = append(t.sums, sha256.Sum256([]byte(words[1])))
	}
	if err := lines.Err(); err != nil {
		return Tokens{}, fmt.Errorf("admin_tokens_file: %s: %w", path, err)
	}
	if len(t.names) == 0 {
		return Tokens{}, fmt.Errorf("admin_tokens_file: %s names nobody; write NAME TOKEN, or remove the file to have one made", path)
	}
	return t, nil
}

// Actor is the name of a token, and whether anybody has it. It takes the same
// time whichever it is (dangers.md A01).
func (t Tokens) Actor(token string) (string, bool) {
	sum := sha256.Sum256([]byte(token))
	found := -1
	for i := range t.sums {
		hit := subtle.ConstantTimeCompare(t.sums[i][:], sum[:])
		found = subtle.ConstantTimeSelect(hit, i, found)
	}
	if found < 0 {
		return "", false
	}
	return t.names[found], true
}

// First is the first actor's name and token, for a command on this machine.
func (t Tokens) First() (name, token string) {
	if len(t.names) == 0 {
		return "", ""
	}
	return t.names[0], t.tokens[0]
}
