package counterfoil

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// ValidateFormat reports, as an [ErrKeyInvalid], when the key does not have the
// form that the operation asks for.
func (k Key) ValidateFormat(f policy.KeyFormat) error {
	ok := true
	switch f {
	case policy.KeyUUID:
		_, ok = k.uuid()
	case policy.KeyUUIDv7:
		_, ok = k.uuidv7Time()
	case policy.KeyULID:
		_, ok = k.ulidTime()
	}
	if !ok {
		return fmt.Errorf("%w: this operation takes keys of the form %s only", ErrKeyInvalid, f)
	}
	return nil
}

// Birth is b of design.md §7: when the key was made, as far as the key (a
// well-formed UUIDv7; a ULID only where the policy says so) and firstSent tell;
// the older of the two. Zero when nothing dates it.
func (k Key) Birth(f policy.KeyFormat, firstSent time.Time) (time.Time, Witness) {
	born, ok := k.uuidv7Time()
	if !ok && f == policy.KeyULID {
		born, ok = k.ulidTime()
	}
	switch {
	case ok && (firstSent.IsZero() || born.Before(firstSent)):
		return born, WitnessKeyTime
	case !firstSent.IsZero():
		return firstSent, WitnessFirstSent
	}
	return time.Time{}, WitnessNone
}

// uuid decodes the 36-character form of RFC 9562.
func (k Key) uuid() (u [16]byte, ok bool) {
	if len(k) != 36 || k[8] != '-' || k[13] != '-' || k[18] != '-' || k[23] != '-' {
		return u, false
	}
	digits := string(k[:8] + k[9:13] + k[14:18] + k[19:23] + k[24:])
	if _, err := hex.Decode(u[:], []byte(digits)); err != nil {
		return u, false
	}
	return u, true
}

// uuidv7Time is the time in the first 48 bits of a version 7 UUID (RFC 9562
// §5.7).
func (k Key) uuidv7Time() (time.Time, bool) {
	if len(k) != 36 || k[14] != '7' {
		return time.Time{}, false // the common case, without decoding
	}
	u, ok := k.uuid()
	if !ok || u[8]&0xc0 != 0x80 {
		return time.Time{}, false
	}
	var ms int64
	for _, b := range u[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms).UTC(), true
}

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ulidTime is the time in the first ten characters of a ULID.
func (k Key) ulidTime() (time.Time, bool) {
	if len(k) != 26 || k[0] > '7' {
		return time.Time{}, false
	}
	var ms int64
	for i, c := range []byte(strings.ToUpper(string(k))) {
		v := strings.IndexByte(crockford, c)
		if v < 0 {
			return time.Time{}, false
		}
		if i < 10 {
			ms = ms<<5 | int64(v)
		}
	}
	return time.UnixMilli(ms).UTC(), true
}
