package pgstore_test

import (
	"testing"

	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/migrate"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

func TestFigures(t *testing.T) {
	for _, o := range []migrate.Options{{Schema: "public"}, {Schema: "Pay-Ments", Partitions: 4}} {
		t.Run(o.Schema, func(t *testing.T) {
			url := pgtest.Shared(t).Database(t)
			conn := call(t, url)
			if f, err := pgstore.FiguresOf(t.Context(), conn, o.Schema); err != nil || f.IndexBytes != 0 || f.Partitions != 0 {
				t.Fatalf("without tables: %+v, %v", f, err)
			}
			if _, err := migrate.Up(t.Context(), url, o); err != nil {
				t.Fatal(err)
			}
			schema := `"` + o.Schema + `".`
			insert := "INSERT INTO " + schema + "counterfoil_records (rev, operation, state, holds, id, principal, body) SELECT 1, 1, 5, 0, decode(lpad(to_hex(n), 40, '0'), 'hex'), 'p', '\\x01' FROM generate_series(1, 1000) n"
			begin(t, conn, insert,
				"DELETE FROM "+schema+"counterfoil_records WHERE get_byte(id, 19) < 16",
				"SELECT "+schema+"counterfoil_days(3, false)",
				"INSERT INTO "+schema+"counterfoil_responses SELECT current_date, id, decode(repeat('00', 1000), 'hex') FROM "+schema+"counterfoil_records")
			old := call(t, url)
			begin(t, old, "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT txid_current()")
			begin(t, conn, "SELECT txid_current()", "SELECT pg_stat_force_next_flush(), txid_current()")
			watch := call(t, url)
			var f pgstore.Figures
			for f.DeadTuples == 0 || f.LiveTuples == 0 { // statistics come a moment late
				var err error
				if f, err = pgstore.FiguresOf(t.Context(), watch, o.Schema); err != nil {
					t.Fatal(err)
				}
			}
			if f.LiveTuples+f.DeadTuples != 1000 || f.TombstoneBytes < 1000*64 || f.ResponseBytes < 900*1000 || f.IndexBytes < 1000*20 ||
				f.Partitions < 3 || f.Partitions > 5 || f.OldestXmin <= 0 || f.OldestXminAge < 2 || !f.CronLastRun.IsZero() {
				t.Errorf("%+v", f)
			}
		})
	}
}
