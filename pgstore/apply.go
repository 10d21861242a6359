package pgstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/counterfoil/counterfoil"
)

// applier is the function counterfoil_apply of one schema.
type applier struct {
	sql     string // its call, for binary parameters and results
	textSQL string // its call through database/sql
	locks   locks
}

func newApplier(schema, quoted string) applier {
	return applier{
		sql:     "SELECT n, outcome, as_of, forgotten, rec, response FROM " + quoted + ".counterfoil_apply($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20,$21,$22,$23,$24)",
		textSQL: textSQL(quoted),
		locks:   newLocks(schema),
	}
}

// array is one parameter of the function, in either of its forms.
type array interface {
	binary() []byte
	text() string
}

// parameters are the function's arrays, in its order; the flag in_transaction
// follows them.
func (a *applier) parameters(steps []*step) []array {
	n := len(steps)
	kinds, lockIDs, operations, states, holds := make(int2s, n), make(int8s, n), make(int8s, n), make(int2s, n), make(int2s, n)
	ids, principals, tokens, refs, bodies, responses, ifTokens := make(byteas, n), make(byteas, n), make(byteas, n), make(byteas, n), make(byteas, n), make(byteas, n), make(byteas, n)
	principalLocks, ifRevs, borns := make(int8s, n), make(int8s, n), make(int8s, n)
	at, in := make(int8s, 0, n*instants), make(int8s, 0, n*instants)
	gates, gatesAt, gatesIn, kins := make(texts, n), make(texts, n), make(texts, n), make(texts, n)
	replies, maxOpens := make(int2s, n), make(int4s, n)
	for i, s := range steps {
		kinds[i], ids[i], lockIDs[i] = int16(s.kind), s.id[:], a.locks.id(s.id)
		operations[i], states[i], holds[i] = s.operation, s.state, s.holds
		principals[i], tokens[i], refs[i], bodies[i] = s.principal, s.token, s.reference, s.body
		principalLocks[i] = a.locks.principal(s.principal)
		at, in = append(at, s.at[:]...), append(in, s.in[:]...)
		gates[i], gatesAt[i], gatesIn[i] = s.gates, s.gatesAt, s.gatesIn
		replies[i], responses[i] = s.reply, s.response
		ifRevs[i], ifTokens[i] = s.ifRev, s.ifToken
		maxOpens[i], borns[i], kins[i] = s.maxOpen, s.born, s.kin
	}
	return []array{
		kinds, ids, lockIDs, operations, states, holds, principals, principalLocks, tokens, refs, bodies,
		at, in, gates, gatesAt, gatesIn, replies, responses, ifRevs, ifTokens, maxOpens, borns, kins,
	}
}

var parameterTypes = []uint32{
	oidInt2Array, oidByteaArray, oidInt8Array, oidInt8Array, oidInt2Array, oidInt2Array, oidByteaArray, oidInt8Array,
	oidByteaArray, oidByteaArray, oidByteaArray, oidInt8Array, oidInt8Array, oidTextArray, oidTextArray, oidTextArray,
	oidInt2Array, oidByteaArray, oidInt8Array, oidByteaArray, oidInt4Array, oidInt8Array, oidTextArray, oidBool,
}

var binaryFormat = []int16{1}

// run does the steps in one statement on the connection and fills answers. It
// returns only after the server has said that the transaction ended, or, inside
// one, that the statement did. On an error nothing in answers counts.
func (a *applier) run(ctx context.Context, conn *pgconn.PgConn, steps []*step, answers []answer, inTransaction bool) error {
	params := a.parameters(steps)
	values := make([][]byte, 0, len(params)+1)
	for _, p := range params {
		values = append(values, p.binary())
	}
	flag := []byte{0}
	if inTransaction {
		flag[0] = 1
	}
	values = append(values, flag)
	r := conn.ExecParams(ctx, a.sql, values, parameterTypes, binaryFormat, binaryFormat)
	seen := 0
	var malformed error
	for r.NextRow() {
		if err := decodeAnswer(r.Values(), steps, answers); err != nil {
			malformed = err
		}
		seen++
	}
	if _, err := r.Close(); err != nil {
		return err
	}
	if malformed == nil && seen != len(steps) {
		malformed = fmt.Errorf("the server answered %d of %d steps", seen, len(steps))
	}
	return malformed
}

var errShort = errors.New("the server's answer is not what these tables give; run counterfoil store migrate")

// decodeAnswer reads one row of the result.
func decodeAnswer(v [][]byte, steps []*step, answers []answer) error {
	if len(v) != 6 || len(v[0]) != 4 || len(v[1]) != 2 || len(v[2]) != 8 {
		return errShort
	}
	i := int(binary.BigEndian.Uint32(v[0])) - 1
	if i < 0 || i >= len(steps) {
		return errShort
	}
	out := &answers[i]
	*out = answer{outcome: outcome(binary.BigEndian.Uint16(v[1])), asOf: timeOf(v[2]), forgotten: timeOf(v[3])}
	if v[4] != nil {
		row, ok := decodeRow(v[4])
		if !ok {
			return errShort
		}
		if row.id != nil {
			out.raw = row.body
			out.record, out.err = row.record()
		}
	}
	if v[5] != nil {
		out.response = append(make([]byte, 0, len(v[5])), v[5]...)
	}
	return nil
}

// row is a row of counterfoil_records. id and body are its own; the other
// slices are good until the next row is read.
type row struct {
	rev, operation int64
	at             [instants]time.Time
	hasResponse    bool
	state          int16
	id, principal  []byte
	token          []byte
	reference      []byte
	gates          []string
	untils         []time.Time
	body           []byte
}

// columns is how many counterfoil_records has.
const columns = 24

// decodeRow reads a composite value in its binary form.
func decodeRow(b []byte) (r row, ok bool) {
	if len(b) < 4 || binary.BigEndian.Uint32(b) != columns {
		return r, false
	}
	b = b[4:]
	var f [columns][]byte
	for i := range f {
		if len(b) < 8 {
			return r, false
		}
		n := int32(binary.BigEndian.Uint32(b[4:]))
		b = b[8:]
		if n < 0 {
			continue
		}
		if int(n) > len(b) {
			return r, false
		}
		f[i], b = b[:n:n], b[n:]
	}
	if f[17] == nil { // a row of nulls: no record
		return r, true
	}
	if len(f[0]) != 8 || len(f[1]) != 8 || len(f[15]) != 2 {
		return r, false
	}
	r.rev, r.operation = int64(binary.BigEndian.Uint64(f[0])), int64(binary.BigEndian.Uint64(f[1]))
	for i := range r.at {
		r.at[i] = timeOf(f[2+i])
	}
	// f[13] is due_at, which follows from the others, and f[16] the number of
	// holds, which body has.
	r.hasResponse = f[14] != nil
	r.state = int16(binary.BigEndian.Uint16(f[15]))
	r.id, r.principal, r.token, r.reference = clone(f[17]), f[18], f[19], f[20]
	r.body = clone(f[23])
	names, ok := elements(f[21])
	if !ok {
		return r, false
	}
	untils, ok := elements(f[22])
	if !ok || len(names) != len(untils) {
		return r, false
	}
	for i := range names {
		r.gates, r.untils = append(r.gates, string(names[i])), append(r.untils, timeOf(untils[i]))
	}
	return r, true
}

func clone(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }

// elements reads an array in its binary form; nil for null.
func elements(b []byte) ([][]byte, bool) {
	if b == nil {
		return nil, true
	}
	if len(b) < 12 {
		return nil, false
	}
	if binary.BigEndian.Uint32(b) == 0 {
		return nil, true
	}
	if binary.BigEndian.Uint32(b) != 1 || len(b) < 20 {
		return nil, false
	}
	n := binary.BigEndian.Uint32(b[12:])
	b = b[20:]
	if uint64(n) > uint64(len(b)/4) {
		return nil, false
	}
	out := make([][]byte, n)
	for i := range out {
		if len(b) < 4 {
			return nil, false
		}
		size := int32(binary.BigEndian.Uint32(b))
		b = b[4:]
		if size < 0 {
			continue
		}
		if int(size) > len(b) {
			return nil, false
		}
		out[i], b = b[:size:size], b[size:]
	}
	return out, true
}

// epoch is where PostgreSQL counts from, in microseconds since 1970.
const epoch = 946_684_800_000_000

// timeOf reads a timestamptz; the zero time for null and the infinities.
func timeOf(b []byte) time.Time {
	if len(b) != 8 {
		return time.Time{}
	}
	us := int64(binary.BigEndian.Uint64(b))
	if us == math.MinInt64 || us == math.MaxInt64 {
		return time.Time{}
	}
	return time.UnixMicro(us + epoch).UTC()
}

// record puts together what columns and body say.
func (r *row) record() (counterfoil.Record, error) {
	var id counterfoil.ID
	copy(id[:], r.id)
	out, err := counterfoil.DecodeRecord(id, r.body)
	if err != nil {
		return counterfoil.Record{}, fmt.Errorf("pgstore: %w", err)
	}
	was := out.State
	out.State = counterfoil.State(r.state)
	out.Rev, out.Operation = uint64(r.rev), counterfoil.OperationNumber(r.operation)
	copy(out.Principal[:], r.principal)
	copy(out.Token[:], r.token)
	out.Reference, out.HasResponse = string(r.reference), r.hasResponse
	for i, t := range []*time.Time{
		&out.CreatedAt, &out.ClaimedAt, &out.LeaseUntil, &out.FirstDispatch, &out.LastDispatch,
		&out.QuietAt, &out.SettledAt, &out.ReplayUntil, &out.Horizon, &out.AnnouncedAt,
	} {
		*t = r.at[i]
	}
	if n := len(out.Evidence); n > 0 && !r.at[10].IsZero() {
		out.Evidence[n-1].At = r.at[10]
	}
	for i, name := range r.gates {
		out.Gates = append(out.Gates, counterfoil.Gate{Name: name, Until: r.untils[i]})
	}
	if was == counterfoil.Unknown && out.State.Settled() {
		// A sweep closed it inside the database, and left body as it was.
		out.Outcome.Class = counterfoil.OutcomeUnknown
		_ = out.AddEvidence(counterfoil.Evidence{Kind: counterfoil.EvidenceClosed, At: out.SettledAt, Attempt: out.Attempt})
	}
	return out, nil
}
