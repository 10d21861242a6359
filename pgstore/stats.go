package pgstore

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil"
)

// statsCache keeps a count that took long.
type statsCache struct {
	mu    sync.Mutex // held while counting
	last  counterfoil.Stats
	until time.Time
}

// Counting reads every record. Above statsFree of them, a count that took t
// stands for 100 t, so that counting never takes more than a hundredth of the
// server's time; fewer are counted anew each time.
const (
	statsFree  = 100_000
	statsShare = 100
)

// Stats implements [counterfoil.Store]. The counts are exact as of AsOf, which
// lies back where there are so many records that counting takes long. Bytes has
// "tombstone", which is the table of all records with its indexes, and
// "response", as they take up the disk, and a share of each that is not used.
func (s *Store) Stats(ctx context.Context) (counterfoil.Stats, error) {
	c := &s.stats
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.until) {
		return cloneStats(c.last), nil
	}
	start := time.Now()
	out, err := s.count(ctx)
	if err != nil {
		return counterfoil.Stats{}, fmt.Errorf("pgstore: stats: %w", err)
	}
	var total int64
	for _, o := range out.Operations {
		total += o.Total()
	}
	if total > statsFree {
		c.last, c.until = cloneStats(out), time.Now().Add(statsShare*time.Since(start))
	}
	return out, nil
}

func cloneStats(s counterfoil.Stats) counterfoil.Stats {
	s.Operations, s.Bytes = maps.Clone(s.Operations), maps.Clone(s.Bytes)
	return s
}

func (s *Store) count(ctx context.Context) (out counterfoil.Stats, err error) {
	if s.closed.Load() {
		return out, errClosed
	}
	out.Operations = map[counterfoil.OperationNumber]counterfoil.OperationStats{}
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return out, s.unreachable(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	rows, err := tx.Query(ctx, "SELECT operation, state, count(*) FROM "+s.schema+".counterfoil_records GROUP BY operation, state")
	if err != nil {
		return out, s.explain(err)
	}
	var op, n int64
	var state int16
	_, err = pgx.ForEachRow(rows, []any{&op, &state, &n}, func() error {
		o := out.Operations[counterfoil.OperationNumber(op)]
		o.Records[state] = n
		out.Operations[counterfoil.OperationNumber(op)] = o
		return nil
	})
	if err != nil {
		return out, s.explain(err)
	}
	rows, err = tx.Query(ctx, "SELECT operation, count(*) FILTER (WHERE state = 1 AND lease_until < "+s.schema+".counterfoil_now()), min(created_at) FILTER (WHERE state = 2) FROM "+
		s.schema+".counterfoil_records WHERE state IN (1, 2) GROUP BY operation")
	if err != nil {
		return out, s.explain(err)
	}
	var oldest *time.Time
	_, err = pgx.ForEachRow(rows, []any{&op, &n, &oldest}, func() error {
		o := out.Operations[counterfoil.OperationNumber(op)]
		o.Overdue = n
		if oldest != nil {
			o.OldestUnknown = oldest.UTC()
		}
		out.Operations[counterfoil.OperationNumber(op)] = o
		return nil
	})
	if err != nil {
		return out, s.explain(err)
	}
	var records, responses int64
	err = tx.QueryRow(ctx, `SELECT `+s.schema+`.counterfoil_now(),
		pg_total_relation_size($1::regclass) + (SELECT coalesce(sum(pg_total_relation_size(h.inhrelid)), 0)::bigint FROM pg_inherits h WHERE h.inhparent = $1::regclass),
		pg_total_relation_size($2::regclass) + (SELECT coalesce(sum(pg_total_relation_size(h.inhrelid)), 0)::bigint FROM pg_inherits h WHERE h.inhparent = $2::regclass)`,
		s.schema+".counterfoil_records", s.schema+".counterfoil_responses").Scan(&out.AsOf, &records, &responses)
	if err != nil {
		return out, s.explain(err)
	}
	out.AsOf = out.AsOf.UTC()
	out.Bytes = map[string]int64{"tombstone": records, "response": responses}
	return out, nil
}
