package pgstore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/counterfoil/counterfoil"
)

// sweepLimit is the most records that one transaction looks at: a batch holds
// its rows' locks, and what it deletes, until it commits.
const sweepLimit = 5000

// minSweepLimit is where a batch that runs into statement_timeout stops being
// halved (cases.md C81).
const minSweepLimit = 50

// Sweep implements [counterfoil.Store]. A batch is one transaction of at most
// 5,000 records, whatever the limit. What another transaction holds is left to
// the next pass. The days of responses are made and dropped at the end of a
// pass.
func (s *Store) Sweep(ctx context.Context, o counterfoil.SweepOrder) (counterfoil.SweepReport, error) {
	limit := min(limitOf(o.Limit, sweepLimit), sweepLimit)
	for {
		rep, err := s.sweep(ctx, o, limit)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == codeCanceled && limit > minSweepLimit && ctx.Err() == nil {
			// Too much for statement_timeout: what is left is done in smaller bites.
			limit = max(limit/4, minSweepLimit)
			continue
		}
		if err != nil {
			return rep, fmt.Errorf("pgstore: sweep: %w", err)
		}
		if rep.Next == nil {
			if err := s.makeDays(ctx, 0, true); err != nil && ctx.Err() == nil {
				s.log.Warn("days of responses could not be made or dropped", "error", err)
			}
		}
		return rep, nil
	}
}

const codeCanceled = "57014"

func (s *Store) sweep(ctx context.Context, o counterfoil.SweepOrder, limit int) (rep counterfoil.SweepReport, err error) {
	if s.closed.Load() {
		return rep, errClosed
	}
	var now, due, id []byte
	if !o.Now.IsZero() {
		now = []byte(o.Now.UTC().Format(timestampFormat))
	}
	if o.Cursor != nil {
		if len(o.Cursor) != 28 {
			return rep, fmt.Errorf("cursor of %d bytes is not this store's", len(o.Cursor))
		}
		due = []byte("-infinity")
		if us := int64(binary.BigEndian.Uint64(o.Cursor)); us != none {
			due = []byte(time.UnixMicro(us).UTC().Format(timestampFormat))
		}
		id = fmt.Appendf(nil, "\\x%x", o.Cursor[8:])
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return rep, s.unreachable(err)
	}
	defer conn.Release()
	grace := strconv.AppendInt(nil, o.Grace.Microseconds(), 10)
	// The call outlives ctx: a batch is done or not, never cancelled.
	res := conn.Conn().PgConn().ExecParams(context.WithoutCancel(ctx), "SELECT examined, responses_dropped, tombstoned, closed, announced, tombstones_deleted, failed_deleted, kept, next_due, next_id, as_of FROM "+
		s.schema+".counterfoil_sweep($1::integer, $2::bigint * interval '1 microsecond', $3::timestamptz, $4::timestamptz, $5::bytea)",
		[][]byte{strconv.AppendInt(nil, int64(limit), 10), grace, now, due, id}, nil, nil, binaryFormat).Read()
	if res.Err != nil {
		return rep, s.explain(res.Err)
	}
	if len(res.Rows) != 1 || len(res.Rows[0]) != 11 {
		return rep, errShort
	}
	v := res.Rows[0]
	for i, n := range []*int{
		&rep.Examined, &rep.ResponsesDropped, &rep.Tombstoned, &rep.Closed,
		&rep.Announced, &rep.TombstonesDeleted, &rep.FailedDeleted,
	} {
		if len(v[i]) != 4 {
			return rep, errShort
		}
		*n = int(binary.BigEndian.Uint32(v[i]))
	}
	if v[7] != nil {
		if err := json.Unmarshal(v[7], &rep.Kept); err != nil {
			return rep, errShort
		}
	}
	if v[9] != nil {
		us := uint64(1 << 63) // none: it fell due at no time in particular
		if t := timeOf(v[8]); !t.IsZero() {
			us = uint64(t.UnixMicro())
		}
		rep.Next = append(binary.BigEndian.AppendUint64(nil, us), v[9]...)
	}
	rep.AsOf = timeOf(v[10])
	return rep, nil
}
