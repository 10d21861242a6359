package pebblestore

import (
	"encoding/binary"
	"fmt"

	"github.com/counterfoil/counterfoil"
)

// The keys in Pebble: one byte of kind, then what names the value.
//
//	L          counters and clock: see ledger.encode
//	M name     a meta value: rev, then the value
//	R number   a segment of responses: see segment.encode
//	d ID       a record that is not open
//	o place    one that is open, in the order in which they were opened; all of
//	           them are in memory as well
//
// Open records have places of their own because most are written and deleted
// soon after: what is next to each other is quick to insert, and compacted away
// whole. Their value begins with the ID.
//
// A record's value is one byte, 0 or 1, then, if 1, a reference to its response
// (refSize bytes), then what counterfoil.AppendRecord makes of it.
const (
	kindLedger  = 'L'
	kindMeta    = 'M'
	kindSegment = 'R'
	kindSettled = 'd'
	kindOpen    = 'o'
)

// row is a record as the store handles it. It never changes once the writer
// has put it into a map; the next content is another row.
type row struct {
	rec *counterfoil.Record
	// ref is where the response is; zero when there is none.
	ref ref
	// commit is the batch that writes the row; nil when it was read from disk.
	commit *commit
	// bad is why the row cannot be read; rec has nothing but the ID then.
	bad error
	// place is where an open row is.
	place uint64
	// once marks an open row that has been set exactly once, which lets Pebble
	// drop it together with its deletion.
	once bool
}

// ref is where a response lies. Segment numbers are never used twice, so that a
// reference into a file that was recycled finds nothing.
type ref struct {
	segment uint64
	offset  uint32
	length  uint32
	crc     uint32
}

const refSize = 8 + 4 + 4 + 4

func appendRow(b []byte, r *row) []byte {
	if r.ref.segment == 0 {
		b = append(b, 0)
	} else {
		b = append(b, 1)
		b = binary.BigEndian.AppendUint64(b, r.ref.segment)
		b = binary.BigEndian.AppendUint32(b, r.ref.offset)
		b = binary.BigEndian.AppendUint32(b, r.ref.length)
		b = binary.BigEndian.AppendUint32(b, r.ref.crc)
	}
	return counterfoil.AppendRecord(b, r.rec)
}

// splitRow separates the reference from the bytes of the record.
func splitRow(b []byte) (ref, []byte, error) {
	if len(b) > 0 && b[0] == 0 {
		return ref{}, b[1:], nil
	}
	if len(b) < 1+refSize || b[0] != 1 {
		return ref{}, nil, fmt.Errorf("%w: row of another format", counterfoil.ErrUnreadable)
	}
	return ref{
		segment: binary.BigEndian.Uint64(b[1:]),
		offset:  binary.BigEndian.Uint32(b[9:]),
		length:  binary.BigEndian.Uint32(b[13:]),
		crc:     binary.BigEndian.Uint32(b[17:]),
	}, b[1+refSize:], nil
}

// decodeRow never fails: a row that cannot be read is a row that says so, since
// it must not be taken for absent.
func decodeRow(id counterfoil.ID, b []byte) *row {
	at, body, err := splitRow(b)
	if err == nil {
		var rec counterfoil.Record
		if rec, err = counterfoil.DecodeRecord(id, body); err == nil {
			return &row{rec: &rec, ref: at}
		}
	}
	return &row{rec: &counterfoil.Record{ID: id}, bad: err}
}

// settledKey is where a record is that is not open.
func settledKey(id counterfoil.ID) (k [21]byte) {
	k[0] = kindSettled
	copy(k[1:], id[:])
	return k
}

// openKey is where an open record is.
func openKey(place uint64) (k [9]byte) {
	k[0] = kindOpen
	binary.BigEndian.PutUint64(k[1:], place)
	return k
}

// readRow is the row in a key and value of either kind. It says so when it
// cannot be read.
func readRow(key, value []byte) *row {
	var id counterfoil.ID
	if key[0] == kindSettled {
		copy(id[:], key[1:])
		return decodeRow(id, value)
	}
	r := &row{rec: &counterfoil.Record{}, bad: fmt.Errorf("%w: open row", counterfoil.ErrUnreadable)}
	if len(value) >= len(id) {
		copy(id[:], value)
		r = decodeRow(id, value[len(id):])
	}
	if len(key) == 9 {
		r.place = binary.BigEndian.Uint64(key[1:])
	}
	return r
}

// recordBytes are the bytes of the record in a value.
func recordBytes(key, value []byte) ([]byte, error) {
	if key[0] == kindOpen {
		value = value[min(len(value), len(counterfoil.ID{})):]
	}
	_, body, err := splitRow(value)
	return body, err
}

// validKey reports whether k, from a cursor, is the key of a record.
func validKey(k []byte) bool {
	return len(k) == 21 && k[0] == kindSettled || len(k) == 9 && k[0] == kindOpen
}

func metaKey(name string) []byte { return append([]byte{kindMeta}, name...) }

func segmentKey(number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kindSegment}, number)
}
