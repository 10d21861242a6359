package pgstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// CronStatus is what pg_cron does for a store.
type CronStatus struct {
	// Job is the name of the job, Schedule and Command what it is set to; they
	// are empty when there is no job.
	Job, Schedule, Command string
	// Active reports that the job is there and not switched off.
	Active bool
	// LastRun is when it last began, LastSuccess when it last ended well; zero
	// for never. Status and Message are what pg_cron says of the last run: one
	// that cannot connect says so there.
	LastRun, LastSuccess time.Time
	Status, Message      string
}

// cronJob is the name of the job that sweeps a schema. It fits PostgreSQL's
// type name.
func cronJob(schema string) string {
	const job = "counterfoil-sweep"
	if schema == DefaultSchema {
		return job
	}
	name := job + "-" + schema
	if len(name) > 63 {
		name = fmt.Sprintf("%.46s-%x", name, sha256.Sum256([]byte(schema)))[:63]
	}
	return name
}

// cronCommand is what the job runs.
func cronCommand(schema string, grace time.Duration) string {
	unit, n := "milliseconds", (grace + time.Millisecond - 1).Milliseconds()
	if grace%time.Second == 0 {
		unit, n = "seconds", int64(grace/time.Second)
	}
	return fmt.Sprintf("CALL %s.counterfoil_sweep_pass('%d %s')", pgx.Identifier{schema}.Sanitize(), n, unit)
}

// cronSchedule writes a period as cron does.
func cronSchedule(every time.Duration) (string, error) {
	const day = 24 * time.Hour
	switch {
	case every == day:
		return "0 3 * * *", nil
	case every == time.Hour:
		return "0 * * * *", nil
	case every == time.Minute:
		return "* * * * *", nil
	case every > time.Hour && every%time.Hour == 0 && day%every == 0:
		return fmt.Sprintf("0 */%d * * *", every/time.Hour), nil
	case every > time.Minute && every < time.Hour && every%time.Minute == 0 && time.Hour%every == 0:
		return fmt.Sprintf("*/%d * * * *", every/time.Minute), nil
	}
	return "", fmt.Errorf("cron has no schedule for every %s; use 1m, 2m, 3m, 4m, 5m, 6m, 10m, 12m, 15m, 20m, 30m, 1h, 2h, 3h, 4h, 6h, 8h, 12h or 24h", every)
}

// installCron has pg_cron sweep the schema, or changes how often it does. A day
// is swept at three, all else from midnight, by cron.timezone (GMT if unset).
// The job runs as the role of the connection, to which pg_cron must be able to
// connect; see [CronStatus].
func installCron(ctx context.Context, conn *pgx.Conn, schema string, every, grace time.Duration) error {
	schedule, err := cronSchedule(every)
	if err != nil {
		return fmt.Errorf("pgstore: pg_cron: %w", err)
	}
	if grace < 0 {
		return fmt.Errorf("pgstore: pg_cron: a grace of %s is less than nothing", grace)
	}
	name, command := cronJob(schema), cronCommand(schema, grace)
	if err := cronReady(ctx, conn, name, schedule, command); err != nil {
		return fmt.Errorf("pgstore: pg_cron: %w", err)
	}
	if _, err := conn.Exec(ctx, "SELECT cron.schedule($1::text, $2::text, $3::text)", exec, name, schedule, command); err != nil {
		return fmt.Errorf("pgstore: pg_cron: %w", err)
	}
	return nil
}

// removeCron ends what installCron began. That there is no job is no error.
func removeCron(ctx context.Context, conn *pgx.Conn, schema string) error {
	ready, err := cronVisible(ctx, conn)
	if err == nil && !ready {
		return nil
	}
	if err == nil {
		_, err = conn.Exec(ctx, "SELECT cron.unschedule(jobid) FROM cron.job WHERE jobname = $1 AND username = current_user", exec, cronJob(schema))
	}
	if err != nil {
		return fmt.Errorf("pgstore: pg_cron: %w", err)
	}
	return nil
}

// cronStatus says what there is. It is the zero status when pg_cron is not in
// this database.
func cronStatus(ctx context.Context, conn *pgx.Conn, schema string) (CronStatus, error) {
	r, err := cronRuns(ctx, conn, schema)
	if err != nil {
		return CronStatus{}, fmt.Errorf("pgstore: pg_cron: %w", err)
	}
	return CronStatus{
		Job: r.job, Schedule: r.schedule, Command: r.command, Active: r.active,
		LastRun: r.began, LastSuccess: r.success, Status: r.status, Message: r.message,
	}, nil
}

// cronRun is the job and what became of it.
type cronRun struct {
	job, schedule, command string
	active                 bool
	began, success         time.Time
	status, message        string
}

// cronRuns reads pg_cron's tables, whose row security shows a role its own jobs.
// It returns the zero value where there is no job or the role may not look.
func cronRuns(ctx context.Context, conn *pgx.Conn, schema string) (r cronRun, err error) {
	if ready, err := cronVisible(ctx, conn); err != nil || !ready {
		return r, err
	}
	var began, success *time.Time
	err = conn.QueryRow(ctx, `
		SELECT j.jobname, j.schedule, j.command, j.active, last.start_time, coalesce(last.status, ''), coalesce(last.return_message, ''),
			(SELECT max(d.end_time) FROM cron.job_run_details d WHERE d.jobid = j.jobid AND d.status = 'succeeded')
		FROM cron.job j LEFT JOIN LATERAL (
			SELECT d.start_time, d.status, d.return_message FROM cron.job_run_details d WHERE d.jobid = j.jobid ORDER BY d.runid DESC LIMIT 1
		) last ON true
		WHERE j.jobname = $1 ORDER BY j.active DESC, j.username = current_user DESC LIMIT 1`, exec, cronJob(schema)).
		Scan(&r.job, &r.schedule, &r.command, &r.active, &began, &r.status, &r.message, &success)
	if errors.Is(err, pgx.ErrNoRows) {
		return cronRun{}, nil
	}
	if began != nil {
		r.began = *began
	}
	if success != nil {
		r.success = *success
	}
	return r, err
}

// cronVisible reports that pg_cron is in this database and shows its tables.
func cronVisible(ctx context.Context, conn *pgx.Conn) (ok bool, err error) {
	err = conn.QueryRow(ctx, `
		SELECT count(*) = 2 AND coalesce(bool_and(has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')), false)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'cron' AND c.relname IN ('job', 'job_run_details')
			AND EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_cron')`, exec).Scan(&ok)
	return ok, err
}

// cronReady returns nil when a job can be made from this database, and else
// what to do first.
func cronReady(ctx context.Context, conn *pgx.Conn, name, schedule, command string) error {
	var installed, mayUse, available, sees bool
	var role, database, home string
	var major int
	err := conn.QueryRow(ctx, `
		SELECT x.oid IS NOT NULL, coalesce(has_schema_privilege(to_regnamespace('cron')::oid, 'USAGE'), false),
			EXISTS (SELECT FROM pg_available_extensions a WHERE a.name = 'pg_cron'),
			pg_has_role(current_user, 'pg_read_all_settings', 'USAGE'),
			current_user, current_database(),
			coalesce((SELECT s.setting FROM pg_settings s WHERE s.name = 'cron.database_name'), ''),
			current_setting('server_version_num')::integer / 10000
		FROM (SELECT) one LEFT JOIN pg_extension x ON x.extname = 'pg_cron'`, exec).
		Scan(&installed, &mayUse, &available, &sees, &role, &database, &home, &major)
	if err != nil {
		return err
	}
	quoted := pgx.Identifier{role}.Sanitize()
	load := fmt.Sprintf("set shared_preload_libraries = 'pg_cron' and cron.database_name = %s, restart the server, then write CREATE EXTENSION pg_cron; GRANT USAGE ON SCHEMA cron TO %s", literal(database), quoted)
	switch {
	case installed && mayUse:
		return nil
	case installed:
		return fmt.Errorf("the role %s may not use it; write GRANT USAGE ON SCHEMA cron TO %[1]s", quoted)
	case !available:
		return fmt.Errorf("the server does not have it; install it (Debian: postgresql-%d-cron), %s", major, load)
	case home == database:
		return fmt.Errorf("it is not in this database; write as a superuser: CREATE EXTENSION pg_cron; GRANT USAGE ON SCHEMA cron TO %s", quoted)
	case home != "":
		return fmt.Errorf("it lives in the database %s (cron.database_name); write there, as a superuser: CREATE EXTENSION IF NOT EXISTS pg_cron; SELECT cron.schedule_in_database(%s, %s, %s, %s, %s)",
			home, literal(name), literal(schedule), literal(command), literal(database), literal(role))
	case !sees:
		return fmt.Errorf("it is not in this database, and the role %s may not see how the server is set up; %s; if cron.database_name is another database, write there, as a superuser: SELECT cron.schedule_in_database(%s, %s, %s, %s, %s)",
			quoted, load, literal(name), literal(schedule), literal(command), literal(database), literal(role))
	}
	return fmt.Errorf("it is not loaded; %s", load)
}

// literal is a string as SQL writes it.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
