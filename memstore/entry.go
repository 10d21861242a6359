package memstore

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/counterfoil/counterfoil"
)

// entry is a record and its place in the store.
type entry struct {
	record counterfoil.Record
	// response is nil when none is kept; an empty one is not nil.
	response []byte
	seq      uint64
	deleted  bool
	// prev and next are neighbours in the list of open records; both are nil
	// outside it and at its ends.
	prev, next *entry
}

// list is the open records, the one opened last at its end.
type list struct{ first, last *entry }

func (l *list) add(e *entry) {
	e.prev = l.last
	if e.prev == nil {
		l.first = e
	} else {
		e.prev.next = e
	}
	l.last = e
}

func (l *list) remove(e *entry) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}

// insert takes in a new entry.
func (s *Store) insert(e *entry) {
	s.lastSeq++
	e.seq = s.lastSeq
	s.byID[e.record.ID] = e
	s.order = append(s.order, e)
	s.count(&e.record, +1)
	if e.record.State.Open() {
		s.open.add(e)
	}
}

// replace writes the next content of a record, under the next rev.
func (s *Store) replace(e *entry, next counterfoil.Record, response []byte) {
	wasOpen, isOpen := e.record.State.Open(), next.State.Open()
	s.count(&e.record, -1)
	s.responseBytes += int64(len(response) - len(e.response))
	next.Rev = e.record.Rev + 1
	next.HasResponse = response != nil
	e.record, e.response = next, response
	s.count(&e.record, +1)
	switch {
	case isOpen && !wasOpen:
		s.open.add(e)
	case wasOpen && !isOpen:
		s.open.remove(e)
	}
}

// remove forgets a record for good. Evidence that still waits for its outcome
// must never get here, whatever went wrong before (reliability.md P11).
func (s *Store) remove(e *entry) {
	if e.record.State.Open() || len(e.record.Holds) > 0 {
		panic(fmt.Sprintf("memstore: about to delete record %s, which is %s with %d holds",
			e.record.ID, e.record.State, len(e.record.Holds)))
	}
	s.count(&e.record, -1)
	s.responseBytes -= int64(len(e.response))
	delete(s.byID, e.record.ID)
	*e = entry{seq: e.seq, deleted: true}
	s.gone++
}

// compact drops deleted entries from order once they are half of it.
func (s *Store) compact() {
	if s.gone*2 <= len(s.order) {
		return
	}
	kept := make([]*entry, 0, len(s.order)-s.gone)
	for _, e := range s.order {
		if !e.deleted {
			kept = append(kept, e)
		}
	}
	s.order, s.gone = kept, 0
}

// count adds n times the record to the counters.
func (s *Store) count(r *counterfoil.Record, n int) {
	o := s.ops[r.Operation]
	if o == nil {
		o = new(counterfoil.OperationStats)
		s.ops[r.Operation] = o
	}
	o.Records[r.State] += int64(n)
	if !r.State.Open() {
		return
	}
	if held := s.quota[r.Principal] + n; held > 0 {
		s.quota[r.Principal] = held
	} else {
		delete(s.quota, r.Principal)
	}
}

// after returns the entries, deleted ones among them, that follow a cursor.
func (s *Store) after(cursor []byte) ([]*entry, error) {
	if cursor == nil {
		return s.order, nil
	}
	if len(cursor) != 8 {
		return nil, fmt.Errorf("cursor of %d bytes is not this store's", len(cursor))
	}
	seq := binary.BigEndian.Uint64(cursor)
	i := sort.Search(len(s.order), func(i int) bool { return s.order[i].seq > seq })
	return s.order[i:], nil
}

// cursor is the place behind e.
func (e *entry) cursor() []byte { return binary.BigEndian.AppendUint64(nil, e.seq) }
