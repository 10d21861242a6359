package pgstore

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"strconv"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// kind is what a step does; the numbers are those of counterfoil_apply.
type kind int16

const (
	stepCreate kind = iota + 1
	stepUpdate
	stepGet
	stepResponse
)

// reply is what an update does with the response; the numbers are those of
// counterfoil_apply.
const (
	replyDrop int16 = iota
	replyKeep
	replyAttach
)

// none is what stands for "no instant" and "no delay" on the way to the server.
const none = math.MinInt64

// instants is how many a record has, in the order of the columns.
const instants = 11

// step is one call of a caller on its way through a batch. It holds copies of
// what the caller gave: a caller that gave up may use its own again.
type step struct {
	kind      kind
	id        counterfoil.ID
	operation int64
	state     int16
	holds     int16
	principal []byte
	token     []byte
	reference []byte
	body      []byte
	at, in    [instants]int64
	gates     []byte // array literals; nil: no gates
	gatesAt   []byte
	gatesIn   []byte
	reply     int16
	response  []byte
	ifRev     int64
	ifToken   []byte
	maxOpen   int32
	born      int64
	kin       []byte // array literal

	until time.Time // when its caller stops waiting; zero: never
	// done receives the answer once. It has room for it: nobody waits to answer.
	done chan answer

	// unclear: an earlier try may have been done, its answer lost.
	unclear bool
	// since is when it was first found held by another transaction.
	since time.Time
	pause time.Duration
	tries int
}

// answer is what became of a step.
type answer struct {
	outcome   outcome
	asOf      time.Time
	forgotten time.Time
	record    counterfoil.Record
	// raw is the row's body, to recognise one's own write by.
	raw      []byte
	response []byte
	err      error
}

// outcome is how a step ended; the numbers are those of counterfoil_apply.
type outcome int16

const (
	done outcome = iota
	standing
	busy
	forgotten
	overQuota
	fenced
	conflict
	notFound
	again
	unreadable
)

func newCreate(d *counterfoil.Draft) (*step, error) {
	s := &step{kind: stepCreate, born: none, maxOpen: openBound(d.MaxOpen)}
	if err := s.content(&d.Record, &d.Stamps); err != nil {
		return nil, err
	}
	if !d.Born.IsZero() {
		s.born = d.Born.UnixMilli()
		s.kin = append(s.kin, '{')
		s.kin = strconv.AppendUint(s.kin, uint64(d.Record.Operation), 10)
		for _, op := range d.Kin {
			s.kin = append(s.kin, ',')
			s.kin = strconv.AppendUint(s.kin, uint64(op), 10)
		}
		s.kin = append(s.kin, '}')
	}
	return s, nil
}

func newUpdate(w *counterfoil.Write) (*step, error) {
	s := &step{
		kind: stepUpdate, born: none, maxOpen: openBound(w.MaxOpen),
		ifRev: int64(w.IfRev), ifToken: bytesOrNil(w.IfToken[:], w.IfToken.IsZero()),
	}
	if err := s.content(&w.Record, &w.Stamps); err != nil {
		return nil, err
	}
	switch {
	case w.Response != nil:
		s.reply, s.response = replyAttach, append(make([]byte, 0, len(w.Response)), w.Response...)
	case w.Record.HasResponse:
		s.reply = replyKeep
	}
	return s, nil
}

func openBound(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

func bytesOrNil(b []byte, isNil bool) []byte {
	if isNil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// content takes over what is to be written. Everything that has a column is
// left out of body.
func (s *step) content(r *counterfoil.Record, stamps *counterfoil.Stamps) error {
	delays := [instants]counterfoil.Delay{
		stamps.CreatedAt, stamps.ClaimedAt, stamps.LeaseUntil, stamps.FirstDispatch, stamps.LastDispatch,
		stamps.QuietAt, stamps.SettledAt, stamps.ReplayUntil, stamps.Horizon,
	}
	if len(r.Evidence) > 0 {
		delays[10] = stamps.EvidenceAt
	}
	for i, t := range instantsOf(r) {
		s.at[i], s.in[i] = none, none
		if !t.IsZero() {
			s.at[i] = t.UnixMilli()
		}
		if d, ok := delays[i].Get(); ok {
			s.in[i] = delayMillis(d)
		}
	}
	if err := s.check(r); err != nil {
		return err
	}
	s.id, s.operation, s.state = r.ID, int64(r.Operation), int16(r.State)
	s.holds = int16(min(len(r.Holds), math.MaxInt16))
	s.principal = append([]byte(nil), r.Principal[:]...)
	s.token = bytesOrNil(r.Token[:], r.Token.IsZero())
	s.reference = bytesOrNil([]byte(r.Reference), r.Reference == "")
	s.gatesOf(r.Gates, stamps.Gates)

	rest := *r
	rest.Rev, rest.Operation, rest.Principal, rest.Token, rest.Reference = 0, 0, counterfoil.PrincipalDigest{}, counterfoil.Token{}, ""
	rest.HasResponse, rest.Gates = false, nil
	rest.CreatedAt, rest.ClaimedAt, rest.LeaseUntil, rest.FirstDispatch, rest.LastDispatch = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	rest.QuietAt, rest.SettledAt, rest.ReplayUntil, rest.Horizon, rest.AnnouncedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	s.body = counterfoil.AppendRecord(make([]byte, 0, 64), &rest)
	return nil
}

// check refuses what no caller may ask to keep; a lease may still be a delay.
func (s *step) check(r *counterfoil.Record) error {
	if r.State == counterfoil.InProgress && r.LeaseUntil.IsZero() && s.in[2] != none {
		leased := *r
		leased.LeaseUntil = time.Unix(0, 0)
		return leased.Check()
	}
	return r.Check()
}

func (s *step) gatesOf(dated []counterfoil.Gate, delayed []policy.Gate) {
	n := len(dated)
	if delayed != nil {
		n = len(delayed)
	}
	if n == 0 {
		return
	}
	names := make(texts, n)
	at, in := []byte{'{'}, []byte{'{'}
	for i := range n {
		if i > 0 {
			at, in = append(at, ','), append(in, ',')
		}
		instant, delay := int64(none), int64(none)
		if delayed != nil {
			names[i], delay = []byte(delayed[i].Name), delayMillis(delayed[i].For)
		} else {
			names[i] = []byte(dated[i].Name)
			if !dated[i].Until.IsZero() {
				instant = dated[i].Until.UnixMilli()
			}
		}
		at, in = strconv.AppendInt(at, instant, 10), strconv.AppendInt(in, delay, 10)
	}
	s.gates, s.gatesAt, s.gatesIn = []byte(names.text()), append(at, '}'), append(in, '}')
}

// delayMillis is d in whole milliseconds, rounded up, so that nothing ends
// earlier than was asked (cases.md C26).
func delayMillis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d > 0 && d%time.Millisecond > 0 {
		ms++
	}
	if d < 0 && d%time.Millisecond < 0 {
		ms--
	}
	return ms
}

// instantsOf are the instants in the order of the columns; the last is that of
// the evidence, which is given as a delay only.
func instantsOf(r *counterfoil.Record) [instants]time.Time {
	return [instants]time.Time{
		r.CreatedAt, r.ClaimedAt, r.LeaseUntil, r.FirstDispatch, r.LastDispatch,
		r.QuietAt, r.SettledAt, r.ReplayUntil, r.Horizon, r.AnnouncedAt,
		{},
	}
}

// keeps says how long the step's response is to be kept, counted from now by
// this machine's clock; 0 where none is attached.
func (s *step) keeps(now time.Time) time.Duration {
	switch {
	case s.reply != replyAttach:
		return 0
	case s.in[7] != none:
		return time.Duration(s.in[7]) * time.Millisecond
	case s.at[7] != none:
		return time.UnixMilli(s.at[7]).Sub(now)
	}
	return 0
}

// locks are the names of the advisory locks of a store: the schema is in them,
// so that two stores of one database do not meet.
type locks uint64

func newLocks(schema string) locks {
	h := fnv.New64a()
	h.Write([]byte("counterfoil " + schema))
	return locks(h.Sum64())
}

func (l locks) id(id counterfoil.ID) int64 {
	return int64(binary.BigEndian.Uint64(id[:8]) ^ uint64(l))
}

func (l locks) principal(p []byte) int64 {
	h := fnv.New64a()
	h.Write([]byte("principal "))
	h.Write(p)
	return int64(h.Sum64() ^ uint64(l))
}
