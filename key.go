package counterfoil

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Principal names the account that owes or is owed: never the credential used
// today, since tokens refresh between retries. It is a secret: it is hashed
// before it reaches a store, and never logged.
type Principal string

// Key is the caller's name for one intent, decoded: 1 to 255 characters 0x21
// to 0x7E, compared byte by byte. It is a secret like [Principal].
type Key string

// MaxKeyLength is the longest key accepted, in bytes (contract.md §4).
const MaxKeyLength = 255

// Validate reports which rule of contract.md §4 the key breaks, as an
// [ErrKeyInvalid].
func (k Key) Validate() error {
	switch {
	case len(k) == 0:
		return fmt.Errorf("%w: it is empty; send 1 to %d visible ASCII characters", ErrKeyInvalid, MaxKeyLength)
	case len(k) > MaxKeyLength:
		return fmt.Errorf("%w: it is %d bytes long; at most %d are allowed", ErrKeyInvalid, len(k), MaxKeyLength)
	}
	for i := 0; i < len(k); i++ {
		if k[i] < 0x21 || k[i] > 0x7e {
			return fmt.Errorf("%w: byte %d is 0x%02x; only visible ASCII (0x21 to 0x7E) is allowed", ErrKeyInvalid, i+1, k[i])
		}
	}
	return nil
}

// ID is the place of a record: a digest of scope and key. A dump of a store
// reveals neither.
type ID [20]byte

// String is the ID in lower-case hexadecimal, as logs and Idempotency-Record
// show it.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Compare orders IDs bytewise, as stores do within a batch.
func (id ID) Compare(other ID) int {
	for i := range id {
		if id[i] != other[i] {
			return int(id[i]) - int(other[i])
		}
	}
	return 0
}

// ParseID reads what [ID.String] wrote.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != hex.EncodedLen(len(id)) {
		return ID{}, fmt.Errorf("record id %q: want %d hexadecimal digits, as in the Idempotency-Record header", s, hex.EncodedLen(len(id)))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ID{}, fmt.Errorf("record id %q: %w", s, err)
	}
	return id, nil
}

// MarshalText and UnmarshalText let an ID stand in JSON.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseID(string(b))
	return err
}

// PrincipalDigest finds the records of one principal without naming it. Six
// bytes keep a tombstone small (performance.md F-E4); two of a million
// principals meet once in 560 such services.
type PrincipalDigest [6]byte

// String is the digest in hexadecimal.
func (d PrincipalDigest) String() string { return hex.EncodeToString(d[:]) }

// IndexKey makes the digests that reach a store. The zero value hashes without
// a key; with a key (at least 32 bytes) a dump cannot be searched for known
// order numbers (dangers.md §4.1). Changing it forgets every record, so the
// [Charter] keeps a check value of it.
type IndexKey struct{ secret []byte }

// NewIndexKey returns an IndexKey for a secret of at least 32 bytes.
func NewIndexKey(secret []byte) (IndexKey, error) {
	if len(secret) < 32 {
		return IndexKey{}, fmt.Errorf("index key: %d bytes; at least 32 are needed (try: head -c 32 /dev/urandom)", len(secret))
	}
	return IndexKey{secret: append([]byte(nil), secret...)}, nil
}

// Secret is the key itself, for the fingerprint's own HMAC; nil when there is
// none. The caller must not change it.
func (k IndexKey) Secret() []byte { return k.secret }

// sum digests the parts, each preceded by its length, so that ("a:b", "c") and
// ("a", "b:c") never meet.
func (k IndexKey) sum(tag string, parts ...string) [sha256.Size]byte {
	var room [512]byte
	buf := room[:0]
	buf = binary.AppendUvarint(buf, uint64(len(tag)))
	buf = append(buf, tag...)
	for _, p := range parts {
		buf = binary.AppendUvarint(buf, uint64(len(p)))
		buf = append(buf, p...)
	}
	if k.secret == nil {
		return sha256.Sum256(buf) // without an allocation
	}
	h := hmac.New(sha256.New, k.secret)
	h.Write(bytes.Clone(buf)) // a clone, so that room stays on the stack
	var out [sha256.Size]byte
	h.Sum(out[:0])
	return out
}

// ID works out the record's place from the scope (principal and family of
// operations) and the key alone.
func (k IndexKey) ID(p Principal, family string, key Key) ID {
	s := k.sum("counterfoil id 1", string(p), family, string(key))
	return ID(s[:20])
}

// Principal digests a principal for erasure and for quotas.
func (k IndexKey) Principal(p Principal) PrincipalDigest {
	s := k.sum("counterfoil principal 1", string(p))
	return PrincipalDigest(s[:6])
}

// Check is a value that betrays a changed key without revealing it; empty when
// there is no key.
func (k IndexKey) Check() string {
	if k.secret == nil {
		return ""
	}
	s := k.sum("counterfoil index key check 1")
	return hex.EncodeToString(s[:8])
}

// Token is the identity of an attempt: 128 random bits that change only when
// an attempt opens, and never repeat. Whoever holds the record's token owns it.
type Token [16]byte

// NewToken draws a token from the system's random source.
func NewToken() Token {
	var t Token
	rand.Read(t[:]) // never fails: crypto/rand ends the process instead
	return t
}

// IsZero reports whether t is no token at all.
func (t Token) IsZero() bool { return t == Token{} }

// Fingerprint is the digest of a canonical request under one version of the
// rules that made it. Two fingerprints of different versions say nothing about
// each other (cases.md C68).
type Fingerprint struct {
	Version uint8
	Sum     [16]byte
}
