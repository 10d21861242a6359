package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Figures are what the catalogue says of the tables, for metrics.
type Figures struct {
	// DeadTuples and LiveTuples are the rows of the records, as the statistics
	// have them.
	DeadTuples, LiveTuples int64
	// OldestXminAge is how many transactions old the oldest snapshot is that
	// somebody may still look at: no row that died since is removed. Sessions,
	// prepared transactions and replication slots count.
	OldestXminAge int64
	// OldestXmin is the age of the oldest transaction that holds a snapshot; 0
	// when there is none, or when the role may not see (pg_read_all_stats).
	OldestXmin time.Duration
	// TombstoneBytes is the size of the records, ResponseBytes that of the
	// responses, both without indexes; IndexBytes is that of both's indexes.
	TombstoneBytes, ResponseBytes, IndexBytes int64
	// Partitions is the number of days that responses are kept for.
	Partitions int
	// CronLastRun is when pg_cron last swept with success; zero when it does not
	// sweep, or the role may not see.
	CronLastRun time.Time
}

// figures asks the catalogue; it reads no table of ours.
func figures(ctx context.Context, conn *pgx.Conn, schema string) (Figures, error) {
	var f Figures
	err := conn.QueryRow(ctx, `
		WITH RECURSIVE ours AS (
			SELECT c.oid, c.relname::text AS top FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relname IN ('counterfoil_records', 'counterfoil_responses') AND c.relkind IN ('r', 'p')
			UNION ALL
			SELECT i.inhrelid, o.top FROM pg_inherits i JOIN ours o ON o.oid = i.inhparent
		), sized AS (
			-- The sizes are null for a day that is dropped meanwhile.
			SELECT o.top, c.relname, pg_table_size(c.oid) AS heap, pg_indexes_size(c.oid) AS indexes,
				pg_stat_get_dead_tuples(c.oid) AS dead, pg_stat_get_live_tuples(c.oid) AS live
			FROM ours o JOIN pg_class c ON c.oid = o.oid WHERE c.relkind = 'r'
		)
		SELECT coalesce(sum(dead) FILTER (WHERE top = 'counterfoil_records'), 0)::bigint,
			coalesce(sum(live) FILTER (WHERE top = 'counterfoil_records'), 0)::bigint,
			coalesce(sum(heap) FILTER (WHERE top = 'counterfoil_records'), 0)::bigint,
			coalesce(sum(heap) FILTER (WHERE top = 'counterfoil_responses'), 0)::bigint,
			coalesce(sum(indexes), 0)::bigint,
			count(*) FILTER (WHERE top = 'counterfoil_responses' AND relname <> 'counterfoil_responses_default')
		FROM sized`, exec, schema).Scan(&f.DeadTuples, &f.LiveTuples, &f.TombstoneBytes, &f.ResponseBytes, &f.IndexBytes, &f.Partitions)
	if err != nil {
		return f, err
	}
	h, err := horizonOf(ctx, conn)
	if err != nil {
		return f, err
	}
	f.OldestXminAge, f.OldestXmin = h.age, max(h.snapshot, h.prepared)
	ran, err := cronRuns(ctx, conn, schema)
	if err != nil {
		return f, err
	}
	f.CronLastRun = ran.success
	return f, nil
}
