package counterfoil

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// The bytes of a record, as stores on disk keep them.
//
// Layout of version 1; varints as in encoding/binary, signed ones zigzag:
//
//	 1 byte   version
//	 1 byte   state (3 bits), outcome class (3 bits), Dispatched, HasResponse
//	 3 bytes  mask, little endian: which of the optional fields follow
//	 varints  operation, policy, attempt, rev, fingerprint version, outcome
//	          status (signed), and proof where the mask has it
//	 varints  the set instants, in milliseconds from the one that governs
//	          them, those that policy alone decides first
//	 6 bytes  CreatedAt, Unix milliseconds, big endian (8 where the mask says)
//	 varints  the instants that differ from record to record
//	 6 bytes  principal
//	16 bytes  fingerprint
//	16 bytes  token, where set
//	 …        reference, resource, gates, holds, evidence, where set
//	 2 bytes  check over the ID and everything before
//
// What is the same in record after record stands first and together, and the
// high bytes of CreatedAt follow: block compression makes some three bytes of
// it all (performance.md F-E4). The check ties the bytes to their ID, so that
// a row in another's place is unreadable rather than believed.
//
// History:
//
//	1  first
const recordVersion = 1

// The bits of the mask.
const (
	maskObserved = 1 << iota
	maskErased
	maskToken
	maskReference
	maskResource
	maskProof
	maskGates
	maskHolds
	maskEvidence
	maskWide // CreatedAt takes 8 bytes
	maskCreated
	maskClaimed
	maskLease
	maskQuiet
	maskReplay
	maskHorizon
	maskFirstDispatch
	maskLastDispatch
	maskSettled
	maskAnnounced

	maskKnown = 1<<iota - 1
)

var recordTable = crc32.MakeTable(crc32.Castagnoli)

// recordCheck folds a CRC over id and b into the two bytes that end a record.
func recordCheck(id *ID, b []byte) uint16 {
	c := crc32.Update(crc32.Update(0, recordTable, id[:]), recordTable, b)
	return uint16(c) ^ uint16(c>>16)
}

// AppendRecord appends the bytes of r, without its ID, to b. Instants keep
// whole milliseconds, as [Instant] makes them.
func AppendRecord(b []byte, r *Record) []byte {
	start := len(b)
	head := byte(r.State)&7 | byte(r.Outcome.Class)&7<<3
	head |= bit(r.Dispatched)<<6 | bit(r.HasResponse)<<7
	mask := recordMask(r)
	b = append(b, recordVersion, head, byte(mask), byte(mask>>8), byte(mask>>16))
	b = binary.AppendUvarint(b, uint64(r.Operation))
	b = binary.AppendUvarint(b, uint64(r.Policy))
	b = binary.AppendUvarint(b, uint64(r.Attempt))
	b = binary.AppendUvarint(b, r.Rev)
	b = append(b, r.Fingerprint.Version)
	b = binary.AppendVarint(b, int64(r.Outcome.Status))
	if mask&maskProof != 0 {
		b = append(b, byte(r.Proof))
	}

	created, claimed := millis(r.CreatedAt), millis(r.ClaimedAt)
	first, settled := millis(r.FirstDispatch), millis(r.SettledAt)
	since := func(m uint32, t time.Time, base int64) {
		if mask&m != 0 {
			b = binary.AppendVarint(b, t.UnixMilli()-base)
		}
	}
	since(maskClaimed, r.ClaimedAt, created)
	since(maskLease, r.LeaseUntil, claimed)
	since(maskQuiet, r.QuietAt, claimed)
	since(maskReplay, r.ReplayUntil, settled)
	since(maskHorizon, r.Horizon, settled)
	if mask&maskCreated != 0 {
		var buf [8]byte
		binary.BigEndian.PutUint64(buf[:], uint64(created))
		if mask&maskWide != 0 {
			b = append(b, buf[:]...)
		} else {
			b = append(b, buf[2:]...)
		}
	}
	since(maskFirstDispatch, r.FirstDispatch, claimed)
	since(maskLastDispatch, r.LastDispatch, first)
	since(maskSettled, r.SettledAt, claimed)
	since(maskAnnounced, r.AnnouncedAt, settled)

	b = append(b, r.Principal[:]...)
	b = append(b, r.Fingerprint.Sum[:]...)
	if mask&maskToken != 0 {
		b = append(b, r.Token[:]...)
	}
	if mask&maskReference != 0 {
		b = appendText(b, r.Reference)
	}
	if mask&maskResource != 0 {
		b = appendText(b, r.Outcome.Resource)
	}
	if mask&maskGates != 0 {
		b = binary.AppendUvarint(b, uint64(len(r.Gates)))
		for i := range r.Gates {
			b = appendText(b, r.Gates[i].Name)
			b = appendInstant(b, r.Gates[i].Until, created)
		}
	}
	if mask&maskHolds != 0 {
		b = binary.AppendUvarint(b, uint64(len(r.Holds)))
		for i := range r.Holds {
			b = appendInstant(b, r.Holds[i].At, created)
			b = appendText(b, r.Holds[i].Actor)
			b = appendText(b, r.Holds[i].Reason)
		}
	}
	if mask&maskEvidence != 0 {
		b = binary.AppendUvarint(b, uint64(len(r.Evidence)))
		for i := range r.Evidence {
			e := &r.Evidence[i]
			b = append(b, byte(e.Kind), byte(e.Outcome.Class))
			b = appendInstant(b, e.At, created)
			b = binary.AppendUvarint(b, uint64(e.Count))
			b = binary.AppendUvarint(b, uint64(e.Attempt))
			b = binary.AppendVarint(b, int64(e.Outcome.Status))
			b = appendText(b, e.Outcome.Resource)
			b = appendText(b, e.Actor)
			b = appendText(b, e.Reason)
		}
	}
	return binary.LittleEndian.AppendUint16(b, recordCheck(&r.ID, b[start:]))
}

func recordMask(r *Record) (mask uint32) {
	set := func(m uint32, on bool) {
		if on {
			mask |= m
		}
	}
	set(maskObserved, r.Observed)
	set(maskErased, r.Erased)
	set(maskToken, !r.Token.IsZero())
	set(maskReference, r.Reference != "")
	set(maskResource, r.Outcome.Resource != "")
	set(maskProof, r.Proof != ProofNone)
	set(maskGates, len(r.Gates) > 0)
	set(maskHolds, len(r.Holds) > 0)
	set(maskEvidence, len(r.Evidence) > 0)
	if !r.CreatedAt.IsZero() {
		ms := r.CreatedAt.UnixMilli()
		set(maskCreated, true)
		set(maskWide, ms < 0 || ms >= 1<<48)
	}
	set(maskClaimed, !r.ClaimedAt.IsZero())
	set(maskLease, !r.LeaseUntil.IsZero())
	set(maskQuiet, !r.QuietAt.IsZero())
	set(maskReplay, !r.ReplayUntil.IsZero())
	set(maskHorizon, !r.Horizon.IsZero())
	set(maskFirstDispatch, !r.FirstDispatch.IsZero())
	set(maskLastDispatch, !r.LastDispatch.IsZero())
	set(maskSettled, !r.SettledAt.IsZero())
	set(maskAnnounced, !r.AnnouncedAt.IsZero())
	return mask
}

// DecodeRecord reads what [AppendRecord] wrote for the record at id. Whatever
// else it is given, cut short, of another version or of another record, is an
// error wrapping [ErrUnreadable]. The record shares nothing with b.
func DecodeRecord(id ID, b []byte) (Record, error) {
	r := Record{ID: id}
	if len(b) == 0 || b[0] != recordVersion {
		return Record{}, fmt.Errorf("%w: record %s is of another version", ErrUnreadable, id)
	}
	end := len(b) - 2
	if end < 5 || recordCheck(&id, b[:end]) != binary.LittleEndian.Uint16(b[end:]) {
		return Record{}, fmt.Errorf("%w: record %s fails its check", ErrUnreadable, id)
	}
	d := decoder{b: b[5:end]}
	d.record(&r, b[1], uint32(b[2])|uint32(b[3])<<8|uint32(b[4])<<16)
	if d.bad || len(d.b) > 0 {
		return Record{}, fmt.Errorf("%w: record %s is malformed", ErrUnreadable, id)
	}
	return r, nil
}

// decoder reads forward through b. After the first fault bad is true and every
// value is zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) record(r *Record, head byte, mask uint32) {
	r.State = State(head & 7)
	r.Outcome.Class = OutcomeClass(head >> 3 & 7)
	r.Dispatched, r.HasResponse = head&(1<<6) != 0, head&(1<<7) != 0
	r.Observed, r.Erased = mask&maskObserved != 0, mask&maskErased != 0
	if r.State == Absent || r.State >= numStates || r.Outcome.Class >= numOutcomes || mask&^uint32(maskKnown) != 0 {
		d.fail()
	}
	r.Operation = OperationNumber(d.uvarint(math.MaxUint32))
	r.Policy = uint32(d.uvarint(math.MaxUint32))
	r.Attempt = uint32(d.uvarint(math.MaxUint32))
	r.Rev = d.uvarint(math.MaxUint64)
	r.Fingerprint.Version = d.byte()
	r.Outcome.Status = int(d.varint())
	if mask&maskProof != 0 {
		if r.Proof = Proof(d.byte()); r.Proof == ProofNone || r.Proof >= numProofs {
			d.fail()
		}
	}

	// The instants stand before those they are counted from, so the distances
	// are read first and added up afterwards.
	claimed, lease, quiet := d.delta(mask&maskClaimed), d.delta(mask&maskLease), d.delta(mask&maskQuiet)
	replay, horizon := d.delta(mask&maskReplay), d.delta(mask&maskHorizon)
	created := int64(0)
	if mask&maskCreated != 0 {
		var buf [8]byte
		if mask&maskWide != 0 {
			d.fill(buf[:])
		} else {
			d.fill(buf[2:])
		}
		created = int64(binary.BigEndian.Uint64(buf[:]))
	}
	first, last := d.delta(mask&maskFirstDispatch), d.delta(mask&maskLastDispatch)
	settled, announced := d.delta(mask&maskSettled), d.delta(mask&maskAnnounced)
	// An instant that is not set counts as 0 for those that hang on it.
	var claimedMS, firstMS, settledMS int64
	if mask&maskClaimed != 0 {
		claimedMS = created + claimed
	}
	if mask&maskFirstDispatch != 0 {
		firstMS = claimedMS + first
	}
	if mask&maskSettled != 0 {
		settledMS = claimedMS + settled
	}
	r.CreatedAt = d.at(mask&maskCreated, created)
	r.ClaimedAt = d.at(mask&maskClaimed, claimedMS)
	r.LeaseUntil = d.at(mask&maskLease, claimedMS+lease)
	r.QuietAt = d.at(mask&maskQuiet, claimedMS+quiet)
	r.FirstDispatch = d.at(mask&maskFirstDispatch, firstMS)
	r.LastDispatch = d.at(mask&maskLastDispatch, firstMS+last)
	r.SettledAt = d.at(mask&maskSettled, settledMS)
	r.ReplayUntil = d.at(mask&maskReplay, settledMS+replay)
	r.Horizon = d.at(mask&maskHorizon, settledMS+horizon)
	r.AnnouncedAt = d.at(mask&maskAnnounced, settledMS+announced)

	d.fill(r.Principal[:])
	d.fill(r.Fingerprint.Sum[:])
	if mask&maskToken != 0 {
		d.fill(r.Token[:])
	}
	if mask&maskReference != 0 {
		r.Reference = d.text()
	}
	if mask&maskResource != 0 {
		r.Outcome.Resource = d.text()
	}
	if mask&maskGates != 0 {
		if n := d.count(2); n > 0 {
			r.Gates = make([]Gate, n)
		}
		for i := range r.Gates {
			r.Gates[i] = Gate{Name: d.text(), Until: d.optional(created)}
		}
	}
	if mask&maskHolds != 0 {
		if n := d.count(3); n > 0 {
			r.Holds = make([]Hold, n)
		}
		for i := range r.Holds {
			r.Holds[i] = Hold{At: d.optional(created), Actor: d.text(), Reason: d.text()}
		}
	}
	if mask&maskEvidence != 0 {
		if n := d.count(9); n > 0 {
			r.Evidence = make([]Evidence, n)
		}
		for i := range r.Evidence {
			e := &r.Evidence[i]
			e.Kind, e.Outcome.Class = EvidenceKind(d.byte()), OutcomeClass(d.byte())
			if e.Kind == 0 || e.Kind >= numEvidence || e.Outcome.Class >= numOutcomes {
				d.fail()
			}
			e.At = d.optional(created)
			e.Count, e.Attempt = uint32(d.uvarint(math.MaxUint32)), uint32(d.uvarint(math.MaxUint32))
			e.Outcome.Status, e.Outcome.Resource = int(d.varint()), d.text()
			e.Actor, e.Reason = d.text(), d.text()
		}
	}
}

func (d *decoder) fail() { d.b, d.bad = nil, true }

func (d *decoder) byte() (c byte) {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	c, d.b = d.b[0], d.b[1:]
	return c
}

func (d *decoder) fill(to []byte) {
	if len(d.b) < len(to) {
		d.fail()
		return
	}
	d.b = d.b[copy(to, d.b):]
}

func (d *decoder) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > most {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads how many entries follow. No more can than the bytes left allow,
// at least size each, so that a forged count reserves no memory.
func (d *decoder) count(size int) int {
	n := d.uvarint(math.MaxUint32)
	if n > uint64(len(d.b)/size) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) text() string {
	n := d.uvarint(math.MaxUint32)
	if n > uint64(len(d.b)) {
		d.fail()
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// delta reads a distance where it is present.
func (d *decoder) delta(present uint32) int64 {
	if present == 0 {
		return 0
	}
	return d.varint()
}

// at is the time at ms where it is present.
func (d *decoder) at(present uint32, ms int64) time.Time {
	if present == 0 {
		return time.Time{}
	}
	return d.instant(ms)
}

// instant is the time at ms. The one millisecond that would read as "not set"
// is refused: nothing writes it.
func (d *decoder) instant(ms int64) time.Time {
	t := time.UnixMilli(ms).UTC()
	if t.IsZero() {
		d.fail()
	}
	return t
}

// optional reads what appendInstant wrote.
func (d *decoder) optional(base int64) time.Time {
	if d.byte() == 0 {
		return time.Time{}
	}
	return d.instant(base + d.varint())
}

func appendInstant(b []byte, t time.Time, base int64) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	return binary.AppendVarint(append(b, 1), t.UnixMilli()-base)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// millis is t in Unix milliseconds, 0 where it is not set.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func bit(on bool) byte {
	if on {
		return 1
	}
	return 0
}
