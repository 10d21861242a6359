package contract

import (
	"crypto/rand"
	"fmt"
	"time"
)

// uuidv7 makes a key that says it was made at t.
func uuidv7(t time.Time) string {
	var b [16]byte
	rand.Read(b[6:])
	ms := t.UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (8 * (5 - i)))
	}
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
