package counterfoil

import (
	"encoding/binary"
	"math"
	"time"
)

// DueReader finds out when a sweep may first have anything to do with a record,
// many times faster than [DecodeRecord] reads it: what the record before had in
// common with it, most of the time all that policy decides, is not read again.
// The zero value is ready; it is for one goroutine.
type DueReader struct {
	// same is the part that was read last, up to CreatedAt.
	same            []byte
	mask            uint32
	state           State
	operation       OperationNumber
	claimed, extent int64
	never, always   bool
}

// Due is ReplayUntil of a completed record and Horizon of any other, in Unix
// milliseconds; false when there is none. Bytes that it cannot read are due at
// once, so that DecodeRecord says what is wrong with them.
func (p *DueReader) Due(b []byte) (unixMilli int64, ok bool) {
	if !p.common(b) {
		return math.MinInt64, true
	}
	switch {
	case p.never:
		return 0, false
	case p.always:
		return math.MinInt64, true
	case p.mask&maskSettled == 0:
		return p.extent, true
	}
	created, at, ok := p.created(b)
	if !ok {
		return math.MinInt64, true
	}
	for _, m := range [...]uint32{maskFirstDispatch, maskLastDispatch} {
		if p.mask&m == 0 {
			continue
		}
		for at < len(b) && b[at] >= 0x80 {
			at++
		}
		at++
	}
	if at >= len(b) {
		return math.MinInt64, true
	}
	settled, n := binary.Varint(b[at:])
	if n <= 0 {
		return math.MinInt64, true
	}
	if p.mask&maskClaimed != 0 {
		settled += created + p.claimed
	}
	return settled + p.extent, true
}

// Spent reports that the record at id is a whole tombstone which nothing but its
// horizon keeps, neither gate nor hold, and what F is raised by when it goes. For
// all others, and for bytes that it cannot read, there is DecodeRecord.
func (p *DueReader) Spent(id ID, b []byte) (op OperationNumber, created time.Time, ok bool) {
	const keeps = maskGates | maskHolds | maskAnnounced | ^uint32(maskKnown)
	const needs = maskCreated | maskHorizon
	if !p.common(b) || p.state != Tombstone || p.mask&keeps != 0 || p.mask&needs != needs {
		return 0, time.Time{}, false
	}
	ms, at, ok := p.created(b)
	end := len(b) - 2
	if !ok || at > end || recordCheck(&id, b[:end]) != binary.LittleEndian.Uint16(b[end:]) {
		return 0, time.Time{}, false
	}
	return p.operation, time.UnixMilli(ms).UTC(), true
}

// common makes sure that what is known of the common part is that of b.
func (p *DueReader) common(b []byte) bool {
	// A varint of the common part ends in it, so that equal bytes mean equal
	// values; nothing but its own first bytes say how long it is.
	if n := len(p.same); n > 0 && len(b) >= n && string(b[:n]) == string(p.same) {
		return true
	}
	return p.read(b)
}

// created is CreatedAt, 0 where it is not set, and where it ends.
func (p *DueReader) created(b []byte) (ms int64, end int, ok bool) {
	at := len(p.same) // more than 8
	switch {
	case p.mask&maskCreated == 0:
		return 0, at, true
	case p.mask&maskWide != 0:
		if end = at + 8; len(b) < end {
			return 0, 0, false
		}
		return int64(binary.BigEndian.Uint64(b[at:])), end, true
	}
	if end = at + 6; len(b) < end {
		return 0, 0, false
	}
	return int64(binary.BigEndian.Uint64(b[at-2:]) & (1<<48 - 1)), end, true
}

// read reads the common part of a record.
func (p *DueReader) read(b []byte) bool {
	p.same = p.same[:0]
	if len(b) < 7 || b[0] != recordVersion {
		return false
	}
	p.state = State(b[1] & 7)
	p.mask = uint32(b[2]) | uint32(b[3])<<8 | uint32(b[4])<<16
	completed := p.state == Completed
	p.never = p.state == InProgress || !completed && p.mask&maskHorizon == 0
	p.always = completed && p.mask&maskReplay == 0
	d := decoder{b: b[5 : len(b)-2]}
	p.operation = OperationNumber(d.uvarint(math.MaxUint32))
	for range 3 { // policy, attempt, rev
		d.uvarint(math.MaxUint64)
	}
	d.byte()
	d.varint()
	if p.mask&maskProof != 0 {
		d.byte()
	}
	p.claimed = d.delta(p.mask & maskClaimed)
	d.delta(p.mask & maskLease)
	d.delta(p.mask & maskQuiet)
	replay, horizon := d.delta(p.mask&maskReplay), d.delta(p.mask&maskHorizon)
	if p.extent = horizon; completed {
		p.extent = replay
	}
	if d.bad {
		return false
	}
	p.same = append(p.same, b[:len(b)-2-len(d.b)]...)
	return true
}
