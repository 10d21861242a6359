package pgstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/counterfoil/counterfoil"
)

// pageLimit stands for a limit that was left out.
const pageLimit = 1000

func limitOf(n, standard int) int {
	if n <= 0 {
		return standard
	}
	return n
}

// Overdue implements [counterfoil.Store]. The oldest lease of all comes first,
// over all pages.
func (s *Store) Overdue(ctx context.Context, q counterfoil.Page) (counterfoil.Records, error) {
	after, id := []byte("-infinity"), []byte("\\x")
	if q.Cursor != nil {
		if len(q.Cursor) != 28 {
			return counterfoil.Records{}, fmt.Errorf("pgstore: overdue: cursor of %d bytes is not this store's", len(q.Cursor))
		}
		after = []byte(time.UnixMicro(int64(binary.BigEndian.Uint64(q.Cursor))).UTC().Format(timestampFormat))
		id = fmt.Appendf(nil, "\\x%x", q.Cursor[8:])
	}
	limit := limitOf(q.Limit, pageLimit)
	out, err := s.list(ctx, "SELECT r, "+s.schema+".counterfoil_now() FROM "+s.schema+`.counterfoil_records r
		WHERE r.state = 1 AND r.lease_until < `+s.schema+`.counterfoil_now() AND (r.lease_until, r.id) > ($1::timestamptz, $2::bytea)
		ORDER BY r.lease_until, r.id LIMIT $3`, after, id, limit)
	if err != nil {
		return counterfoil.Records{}, fmt.Errorf("pgstore: overdue: %w", err)
	}
	if n := len(out.Records); n == limit {
		last := &out.Records[n-1]
		out.Next = append(binary.BigEndian.AppendUint64(nil, uint64(last.LeaseUntil.UnixMicro())), last.ID[:]...)
	}
	return out, nil
}

// timestampFormat is how an instant is written as a parameter.
const timestampFormat = "2006-01-02 15:04:05.999999Z07:00"

// Scan implements [counterfoil.Store]. Records come in the order of their IDs.
func (s *Store) Scan(ctx context.Context, q counterfoil.Query) (counterfoil.Records, error) {
	where := []string{"r.id > $1::bytea"}
	cursor := []byte("\\x")
	if q.Cursor != nil {
		if len(q.Cursor) != 20 {
			return counterfoil.Records{}, fmt.Errorf("pgstore: scan: cursor of %d bytes is not this store's", len(q.Cursor))
		}
		cursor = fmt.Appendf(nil, "\\x%x", q.Cursor)
	}
	args := []any{cursor, limitOf(q.Limit, pageLimit)}
	add := func(cond string, arg []byte) {
		args = append(args, arg)
		where = append(where, fmt.Sprintf(cond, len(args)))
	}
	if q.Operation != 0 {
		add("r.operation = $%d::bigint", strconv.AppendUint(nil, uint64(q.Operation), 10))
	}
	switch {
	case q.State.Open(): // literally, for the partial index
		where = append(where, fmt.Sprintf("r.state = %d AND r.state IN (1, 2)", q.State))
	case q.State != counterfoil.Absent:
		add("r.state = $%d::smallint", strconv.AppendUint(nil, uint64(q.State), 10))
	}
	if q.Principal != (counterfoil.PrincipalDigest{}) {
		add("r.principal = $%d::bytea", fmt.Appendf(nil, "\\x%x", q.Principal[:]))
	}
	if !q.CreatedBefore.IsZero() {
		// A record whose creation was never set is older than all.
		add("coalesce(r.created_at, '-infinity') < $%d::timestamptz", []byte(q.CreatedBefore.UTC().Format(timestampFormat)))
	}
	out, err := s.list(ctx, "SELECT r, "+s.schema+".counterfoil_now() FROM "+s.schema+".counterfoil_records r WHERE "+
		strings.Join(where, " AND ")+" ORDER BY r.id LIMIT $2", args...)
	if err != nil {
		return counterfoil.Records{}, fmt.Errorf("pgstore: scan: %w", err)
	}
	if n := len(out.Records); n == args[1].(int) {
		out.Next = append([]byte(nil), out.Records[n-1].ID[:]...)
	}
	return out, nil
}

// list runs a query that gives records and the time. Parameters are text.
func (s *Store) list(ctx context.Context, sql string, args ...any) (out counterfoil.Records, err error) {
	if s.closed.Load() {
		return out, errClosed
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return out, s.unreachable(err)
	}
	defer conn.Release()
	values := make([][]byte, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case []byte:
			values[i] = a
		case int:
			values[i] = strconv.AppendInt(nil, int64(a), 10)
		}
	}
	r := conn.Conn().PgConn().ExecParams(ctx, sql, values, nil, nil, binaryFormat)
	var bad error
	for r.NextRow() {
		v := r.Values()
		row, ok := decodeRow(v[0])
		if !ok {
			bad = errShort
			continue
		}
		rec, err := row.record()
		if err != nil {
			bad = err
			continue
		}
		out.Records = append(out.Records, rec)
		out.AsOf = timeOf(v[1])
	}
	if _, err := r.Close(); err != nil {
		return counterfoil.Records{}, s.explain(err)
	}
	if bad != nil {
		return counterfoil.Records{}, bad
	}
	if out.AsOf.IsZero() { // an empty page has a time too
		out.AsOf, err = s.now(ctx, conn.Conn().PgConn())
	}
	return out, err
}

func (s *Store) now(ctx context.Context, conn *pgconn.PgConn) (time.Time, error) {
	res := conn.ExecParams(ctx, "SELECT "+s.schema+".counterfoil_now()", nil, nil, nil, binaryFormat).Read()
	if res.Err != nil {
		return time.Time{}, s.explain(res.Err)
	}
	return timeOf(res.Rows[0][0]), nil
}

func (s *Store) unreachable(err error) error {
	if s.closed.Load() {
		return errClosed
	}
	return fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)
}
