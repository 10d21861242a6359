package pgstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/migrate"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

func TestCronSchedule(t *testing.T) {
	for every, want := range map[time.Duration]string{
		time.Minute: "* * * * *", 15 * time.Minute: "*/15 * * * *", 30 * time.Minute: "*/30 * * * *",
		time.Hour: "0 * * * *", 6 * time.Hour: "0 */6 * * *", 12 * time.Hour: "0 */12 * * *", 24 * time.Hour: "0 3 * * *",
	} {
		if got, err := pgstore.CronSchedule(every); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", every, got, err, want)
		}
	}
	for _, every := range []time.Duration{0, -time.Hour, time.Second, 90 * time.Second, 7 * time.Minute, 90 * time.Minute, 5 * time.Hour, 25 * time.Hour, 48 * time.Hour} {
		if got, err := pgstore.CronSchedule(every); err == nil || !strings.Contains(err.Error(), "use 1m") {
			t.Errorf("%s: %q, %v", every, got, err)
		}
	}
}

func TestCronNames(t *testing.T) {
	long, other := strings.Repeat("x", 63), strings.Repeat("x", 62)+"y"
	if a, b := pgstore.CronJob(long), pgstore.CronJob(other); len(a) > 63 || len(b) > 63 || a == b {
		t.Error(a, b)
	}
	if got := pgstore.CronJob("public"); got != "counterfoil-sweep" {
		t.Error(got)
	}
	if got := pgstore.CronJob("Pay-Ments"); got != "counterfoil-sweep-Pay-Ments" {
		t.Error(got)
	}
	if got := pgstore.CronCommand("Pay-Ments", 90*time.Second); got != `CALL "Pay-Ments".counterfoil_sweep_pass('90 seconds')` {
		t.Error(got)
	}
	if got := pgstore.CronCommand("public", 1500*time.Microsecond); got != `CALL "public".counterfoil_sweep_pass('2 milliseconds')` {
		t.Error(got)
	}
}

// TestCron: a job is made, changed, looked at and ended; and whoever cannot
// have one is told what to write, which helps.
func TestCron(t *testing.T) {
	s := pgtest.Start(t, pgtest.Options{Cron: true})
	home := s.URL(pgtest.CronDatabase)
	p := patient{admin: home, node: asRole(t, home, nodeRole, ""), schema: "Pay-Ments"}
	if _, err := migrate.Up(t.Context(), home, migrate.Options{Schema: p.schema}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, home, "CREATE ROLE node LOGIN")
	p.write(t, pgstore.Grants(p.schema, nodeRole))
	ctx := t.Context()
	node := call(t, p.node)

	install := func(every time.Duration) error {
		return pgstore.InstallCronOn(ctx, node, p.schema, every, 90*time.Second)
	}
	status := func() pgstore.CronStatus {
		t.Helper()
		c, err := pgstore.CronStatusOf(ctx, node, p.schema)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	remove := func() {
		t.Helper()
		if err := pgstore.RemoveCronOn(ctx, node, p.schema); err != nil {
			t.Fatal(err)
		}
	}

	// Nothing is there, and a role that sees no settings is told all it may need.
	remove()
	if c := status(); c != (pgstore.CronStatus{}) {
		t.Errorf("%+v", c)
	}
	if err := install(time.Hour); err == nil || !strings.Contains(err.Error(), "CREATE EXTENSION pg_cron") || !strings.Contains(err.Error(), "may not see") {
		t.Error(err)
	}
	if err := pgstore.InstallCronOn(ctx, call(t, home), p.schema, time.Hour, 0); err == nil || !strings.Contains(err.Error(), "write as a superuser: CREATE EXTENSION pg_cron") {
		t.Error(err)
	}
	pgtest.Exec(t, home, "CREATE EXTENSION pg_cron")
	if err := install(time.Hour); err == nil || !strings.Contains(err.Error(), `GRANT USAGE ON SCHEMA cron TO "node"`) {
		t.Error(err)
	}
	pgtest.Exec(t, home, "GRANT USAGE ON SCHEMA cron TO node")

	for _, every := range []time.Duration{15 * time.Minute, 6 * time.Hour} { // the second time changes it
		if err := install(every); err != nil {
			t.Fatal(err)
		}
		schedule, _ := pgstore.CronSchedule(every)
		if c := status(); c.Job != "counterfoil-sweep-Pay-Ments" || c.Schedule != schedule || c.Command != pgstore.CronCommand(p.schema, 90*time.Second) || !c.Active || !c.LastRun.IsZero() || !c.LastSuccess.IsZero() {
			t.Errorf("%+v", c)
		}
	}
	if n := pgtest.Value[int](t, home, "SELECT count(*) FROM cron.job"); n != 1 {
		t.Errorf("%d jobs", n)
	}
	// Its runs: one that ended well, and one after it that did not.
	pgtest.Exec(t, home, `INSERT INTO cron.job_run_details (jobid, runid, database, username, status, return_message, start_time, end_time)
		SELECT jobid, n, 'x', 'node', CASE n WHEN 1001 THEN 'succeeded' ELSE 'failed' END, 'message ' || n,
			timestamptz '2030-01-01 00:00Z' + (n - 1000) * interval '1 hour', timestamptz '2030-01-01 00:01Z' + (n - 1000) * interval '1 hour'
		FROM cron.job, generate_series(1001, 1002) n`)
	success := time.Date(2030, 1, 1, 1, 1, 0, 0, time.UTC)
	if c := status(); !c.LastSuccess.Equal(success) || !c.LastRun.Equal(time.Date(2030, 1, 1, 2, 0, 0, 0, time.UTC)) || c.Status != "failed" || c.Message != "message 1002" {
		t.Errorf("%+v", c)
	}
	if f, err := pgstore.FiguresOf(ctx, node, p.schema); err != nil || !f.CronLastRun.Equal(success) {
		t.Errorf("%+v, %v", f, err)
	}
	// The command does what it says.
	if _, err := node.Exec(ctx, status().Command); err != nil {
		t.Error(err)
	}
	remove()
	remove()
	if c := status(); c.Job != "" || c.Active {
		t.Errorf("%+v", c)
	}

	// From another database of the same server, what to write where is told.
	elsewhere := s.Database(t)
	err := pgstore.InstallCronOn(ctx, call(t, elsewhere), "public", 15*time.Minute, 0)
	if err == nil || !strings.Contains(err.Error(), "lives in the database "+pgtest.CronDatabase) {
		t.Fatal(err)
	}
	_, statements, _ := strings.Cut(err.Error(), "as a superuser: ")
	p.write(t, statements)
	name := pgtest.Value[string](t, elsewhere, "SELECT current_database()")
	if got := pgtest.Value[string](t, home, "SELECT database || ' ' || schedule FROM cron.job WHERE jobname = 'counterfoil-sweep'"); got != name+" */15 * * * *" {
		t.Error(got)
	}
	// A server that does not load it.
	err = pgstore.InstallCronOn(ctx, call(t, pgtest.Shared(t).Database(t)), "public", 15*time.Minute, 0)
	if err == nil || !strings.Contains(err.Error(), "shared_preload_libraries = 'pg_cron'") {
		t.Error(err)
	}
}
