package pebblestore

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil"
)

// ledger is what the store knows of itself: one small value that every batch
// writes anew. The writer owns it; others read it under the store's mutex.
type ledger struct {
	// counts has the records of each operation by state.
	counts map[counterfoil.OperationNumber]*stateCounts
	// seen is the latest time that was persisted.
	seen time.Time
	// floor is F for operations that have none of their own: set when the
	// directory was restored or copied, since an operation that began after the
	// copy was made is not known here (reliability.md P14).
	floor time.Time
	// nextSegment is the number of the segment made next.
	nextSegment uint64
	// nextOpen is the place of the record opened next; see row.go.
	nextOpen uint64
}

type stateCounts [counterfoil.Announced + 1]int64

// ledgerVersion is the first byte of the value. History: 1, the first.
const ledgerVersion = 1

func newLedger() *ledger {
	return &ledger{counts: make(map[counterfoil.OperationNumber]*stateCounts), nextSegment: 1}
}

func (l *ledger) count(r *counterfoil.Record, n int64) {
	c := l.counts[r.Operation]
	if c == nil {
		c = new(stateCounts)
		l.counts[r.Operation] = c
	}
	c[r.State] += n
}

func (l *ledger) encode(b []byte) []byte {
	b = append(b, ledgerVersion)
	b = binary.AppendVarint(b, l.seen.UnixMilli())
	b = binary.AppendVarint(b, millis(l.floor))
	b = binary.AppendUvarint(b, l.nextSegment)
	b = binary.AppendUvarint(b, l.nextOpen)
	for op, c := range l.counts {
		b = binary.AppendUvarint(b, uint64(op))
		for _, n := range c[1:] {
			b = binary.AppendVarint(b, n)
		}
	}
	return b
}

func decodeLedger(b []byte) (*ledger, error) {
	bad := fmt.Errorf("%w: the store's counters", counterfoil.ErrUnreadable)
	if len(b) == 0 || b[0] != ledgerVersion {
		return nil, bad
	}
	b = b[1:]
	ok := true
	varint := func() int64 {
		v, n := binary.Varint(b)
		if n <= 0 {
			ok = false
			return 0
		}
		b = b[n:]
		return v
	}
	uvarint := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			ok = false
			return 0
		}
		b = b[n:]
		return v
	}
	l := newLedger()
	l.seen = time.UnixMilli(varint()).UTC()
	if ms := varint(); ms != 0 {
		l.floor = time.UnixMilli(ms).UTC()
	}
	l.nextSegment, l.nextOpen = uvarint(), uvarint()
	for ok && len(b) > 0 {
		c := new(stateCounts)
		l.counts[counterfoil.OperationNumber(uvarint())] = c
		for i := range c[1:] {
			c[i+1] = varint()
		}
	}
	if !ok {
		return nil, bad
	}
	return l, nil
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
