package pebblestore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/counterfoil/counterfoil"
)

// segment is one file of responses, one after the other, without anything in
// between: the rows say where each begins and what its checksum is. The number
// is never used twice; a file that is recycled gets another name and number.
type segment struct {
	number uint64
	// width is the class of replay windows the segment is for; see widthOf.
	width uint8
	// linked marks a file that a backup shares: it is deleted, not recycled,
	// because writing into it would change the backup.
	linked bool
	// until is the latest instant at which a response in it may be wanted.
	until time.Time
	// bucket is the slice of time, of the width's length, that it takes.
	bucket int64
	// size is where the next response goes. What lies beyond was never
	// acknowledged, or belongs to an earlier use of the file.
	size int64
	// prepared is how far the file's space is reserved.
	prepared int64

	// users counts who may still use file: the store, and each reader.
	users atomic.Int32
	file  vfs.File

	// buf gathers the responses of the batch under way.
	buf    []byte
	bufAt  int64
	broken error // set when the file could not be written
}

// segmentVersion is the first byte of a segment's value. History: 1, the first.
const segmentVersion = 1

// encode is the segment as kept under its number.
func (g *segment) encode(b []byte) []byte {
	b = append(b, segmentVersion, g.width, boolByte(g.linked))
	b = binary.AppendVarint(b, g.until.UnixMilli())
	b = binary.AppendVarint(b, g.bucket)
	return binary.AppendUvarint(b, uint64(g.size))
}

func decodeSegment(number uint64, b []byte) (*segment, error) {
	bad := fmt.Errorf("%w: segment %d", counterfoil.ErrUnreadable, number)
	if len(b) < 3 || b[0] != segmentVersion || int(b[1]) >= len(widths) {
		return nil, bad
	}
	g := &segment{number: number, width: b[1], linked: b[2] != 0}
	b = b[3:]
	until, n := binary.Varint(b)
	if n <= 0 {
		return nil, bad
	}
	b = b[n:]
	if g.bucket, n = binary.Varint(b); n <= 0 {
		return nil, bad
	}
	size, m := binary.Uvarint(b[n:])
	if m <= 0 {
		return nil, bad
	}
	g.until, g.size = time.UnixMilli(until).UTC(), int64(size)
	return g, nil
}

func (g *segment) name() string { return segmentName(g.number) }

func segmentName(number uint64) string { return fmt.Sprintf("%012d.seg", number) }

// release gives up one use of the file; the last one closes it.
func (g *segment) release() {
	if g.users.Add(-1) == 0 {
		g.file.Close()
	}
}

// acquire takes a use of the file, unless it has been closed.
func (g *segment) acquire() bool {
	for {
		n := g.users.Load()
		if n == 0 {
			return false
		}
		if g.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// widths are the lengths of the buckets. A segment keeps a response at most one
// bucket longer than it is wanted, so the bucket follows the replay window.
var widths = [...]time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// widthOf picks the widest bucket that is at most an eighth of the window.
func widthOf(window time.Duration) uint8 {
	w := 0
	for w+1 < len(widths) && widths[w+1] <= window/8 {
		w++
	}
	return uint8(w)
}

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// checksum covers a response and is seeded with the use of the file and the
// record, so that neither old content of a recycled file nor the response of
// another record ever passes for it.
func checksum(segment uint64, id *counterfoil.ID, response []byte) uint32 {
	var seed [8 + len(id)]byte
	binary.BigEndian.PutUint64(seed[:], segment)
	copy(seed[8:], id[:])
	return crc32.Update(crc32.Update(0, crcTable, seed[:]), crcTable, response)
}

func boolByte(on bool) byte {
	if on {
		return 1
	}
	return 0
}
