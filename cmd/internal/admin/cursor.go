package admin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// cursors seals the store's cursors, so that nobody can make one up or use it
// for another question (dangers.md A08). A cursor does not outlive the process.
type cursors struct{ secret [32]byte }

func newCursors() *cursors {
	var c cursors
	rand.Read(c.secret[:]) // never fails: crypto/rand ends the process instead
	return &c
}

const macSize = 16

func (c *cursors) mac(f Filter, cursor []byte) []byte {
	h := hmac.New(sha256.New, c.secret[:])
	fmt.Fprintf(h, "%q %d %d\n", f.Operation, f.State, f.OlderThan)
	h.Write(cursor)
	return h.Sum(nil)[:macSize]
}

// seal is the cursor as callers see it; empty for the end.
func (c *cursors) seal(f Filter, cursor []byte) string {
	if cursor == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(c.mac(f, cursor), cursor...))
}

// open is the store's cursor; nil starts.
func (c *cursors) open(f Filter) ([]byte, error) {
	if f.Cursor == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(f.Cursor)
	if err != nil || len(b) < macSize || !hmac.Equal(b[:macSize], c.mac(f, b[macSize:])) {
		return nil, fmt.Errorf("%w: the cursor was not made for this question by this process; start again without one", ErrInvalid)
	}
	return b[macSize:], nil
}
