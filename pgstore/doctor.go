package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/jackc/pgx/v5"
)

// Severity says how bad a finding is.
type Severity string

// The severities. A store does not start with an Error.
const (
	OK      Severity = "ok"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Finding is one thing that Doctor looked at. Code is the row of dangers.md.
type Finding struct {
	Severity Severity
	Code     string
	Message  string
	// Remedy says what to do; empty when all is well.
	Remedy string
}

// bounds are of what passes unremarked.
type bounds struct {
	skew        time.Duration // G10
	snapshotAge time.Duration // G11: of a transaction's snapshot
	xminAge     int64         // G11: in transactions, where no time is to be had
	idle        time.Duration // G11, G12: in a transaction
	prepared    time.Duration // G11: of a prepared transaction
	dead        int64         // G11: fewer dead rows are no bloat
	deadRatio   float64       // G11: dead rows to live ones
	lockTimeout time.Duration // G12
	silence     time.Duration // G12: until a dead client is noticed
	lockTable   int64         // entries; a batch takes up to 256
	wal         int64         // G17: times max_wal_size
}

var usual = bounds{
	skew:        time.Second,
	snapshotAge: 5 * time.Minute,
	xminAge:     1_000_000,
	idle:        time.Minute,
	prepared:    10 * time.Minute,
	dead:        10_000,
	deadRatio:   0.2,
	lockTimeout: 10 * time.Second,
	silence:     5 * time.Minute,
	lockTable:   10_000,
	wal:         2,
}

// exec is how everything is asked here: nothing is prepared, so that it goes
// through a pooler.
const exec = pgx.QueryExecModeExec

// examine looks at the server, at the role of a connection and at the tables of
// a schema, whose name is not quoted. It returns an error when it could not ask;
// what it may not see is a finding.
func examine(ctx context.Context, conn *pgx.Conn, schema string) ([]Finding, error) {
	return examineBy(ctx, conn, schema, usual)
}

func examineBy(ctx context.Context, conn *pgx.Conn, schema string, b bounds) ([]Finding, error) {
	e := examination{conn: conn, schema: schema, most: b}
	for _, look := range []func(context.Context) error{
		e.who, e.isolation, e.standbys, e.commits, e.primary, e.pooler, e.skew, e.snapshots, e.bloat,
		e.deadClients, e.lockTable, e.tables, e.version, e.logs, e.rights, e.wal, e.archive,
	} {
		if err := look(ctx); err != nil {
			return nil, fmt.Errorf("pgstore: examine: %w", err)
		}
	}
	return e.d, nil
}

// refuse returns one error for all findings that forbid starting, or nil.
func refuse(findings []Finding) error {
	var faults []error
	for _, f := range findings {
		if f.Severity != Error {
			continue
		}
		err := fmt.Errorf("%s: %s", f.Code, f.Message)
		if f.Remedy != "" {
			err = fmt.Errorf("%w; %s", err, f.Remedy)
		}
		faults = append(faults, err)
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("pgstore: the database is not fit to hold records: %w", errors.Join(faults...))
}

// diagnosis gathers findings.
type diagnosis []Finding

func (d *diagnosis) ok(code, format string, args ...any) {
	*d = append(*d, Finding{OK, code, fmt.Sprintf(format, args...), ""})
}

func (d *diagnosis) bad(s Severity, code, remedy, format string, args ...any) {
	*d = append(*d, Finding{s, code, fmt.Sprintf(format, args...), remedy})
}

// fine says that nothing was found under a code, if nothing was.
func (d *diagnosis) fine(code, format string, args ...any) {
	if !slices.ContainsFunc(*d, func(f Finding) bool { return f.Code == code && f.Severity != OK }) {
		d.ok(code, format, args...)
	}
}

// examination is one look at a database.
type examination struct {
	conn   *pgx.Conn
	schema string
	most   bounds
	d      diagnosis

	role, database string // quoted
	superuser      bool
	seesAll        bool // of what other sessions do
	set            map[string]setting
}

// setting is a row of pg_settings, in its own unit.
type setting struct{ value, source string }

// asked are the settings that are looked at.
var asked = []string{
	"synchronous_commit", "synchronous_standby_names", "fsync", "full_page_writes", "data_sync_retry",
	"default_transaction_isolation", "default_transaction_read_only",
	"idle_in_transaction_session_timeout", "lock_timeout", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout",
	"max_locks_per_transaction", "max_connections", "max_prepared_transactions",
	"log_statement", "log_parameter_max_length", "log_parameter_max_length_on_error", "log_min_duration_statement",
	"log_min_duration_sample", "log_transaction_sample_rate", "auto_explain.log_min_duration", "auto_explain.log_parameter_max_length",
	"max_wal_size", "archive_mode",
}

func (e *examination) who(ctx context.Context) error {
	err := e.conn.QueryRow(ctx, `
		SELECT quote_ident(current_user), quote_ident(current_database()), r.rolsuper,
			pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
		FROM pg_roles r WHERE r.rolname = current_user`, exec).Scan(&e.role, &e.database, &e.superuser, &e.seesAll)
	if err != nil {
		return err
	}
	e.set, err = settings(ctx, e.conn)
	return err
}

func settings(ctx context.Context, conn *pgx.Conn) (map[string]setting, error) {
	rows, err := conn.Query(ctx, "SELECT name, setting, source FROM pg_settings WHERE name = ANY ($1)", exec, asked)
	if err != nil {
		return nil, err
	}
	set := map[string]setting{}
	var name string
	var s setting
	_, err = pgx.ForEachRow(rows, []any{&name, &s.value, &s.source}, func() error {
		set[name] = s
		return nil
	})
	return set, err
}

func (e *examination) is(name, value string) bool { return e.set[name].value == value }

// number is a setting as a number, and -1 where there is none.
func (e *examination) number(name string) int64 {
	n, err := strconv.ParseInt(e.set[name].value, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// change says how a setting of the session is changed, by where it comes from.
func (e *examination) change(name, value string) string {
	switch e.set[name].source {
	case "client":
		return fmt.Sprintf("take %s out of the connection string", name)
	case "session":
		return fmt.Sprintf("take SET %s out of what runs when a connection is made (the pooler's connect_query, for one)", name)
	case "database user":
		return fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s = %s; then reconnect", e.role, e.database, name, value)
	}
	return fmt.Sprintf("ALTER ROLE %s SET %s = %s; then reconnect", e.role, name, value)
}

// system says how a setting of the server is changed.
func system(name, value string) string {
	return fmt.Sprintf("ALTER SYSTEM SET %s = %s; SELECT pg_reload_conf()", name, value)
}

// isolation: a claim that waited for another must see what that one committed
// (G05), which the stricter levels answer with an error.
func (e *examination) isolation(context.Context) error {
	const name = "default_transaction_isolation"
	if e.is(name, "read committed") {
		e.d.ok("G05", "transactions are READ COMMITTED by default")
	} else {
		e.d.bad(Error, "G05", e.change(name, "'read committed'"), "transactions are %s by default; the store needs READ COMMITTED", strings.ToUpper(e.set[name].value))
	}
	return nil
}

// durability is the class that acknowledged writes have now, and what it rests
// on.
func durability(ctx context.Context, conn *pgx.Conn) (counterfoil.Durability, string, error) {
	set, err := settings(ctx, conn)
	if err != nil {
		return "", "", err
	}
	for _, name := range []string{"fsync", "full_page_writes"} {
		if v := set[name].value; v != "on" {
			return policy.DurabilityC, fmt.Sprintf("%s is %s: a power cut loses or tears pages", name, v), nil
		}
	}
	if v := set["data_sync_retry"].value; v != "off" {
		return policy.DurabilityC, "data_sync_retry is " + v + ": a failed fsync is tried again, though the kernel may have dropped the pages", nil
	}
	switch v := set["synchronous_commit"].value; v {
	case "on", "remote_apply":
	default:
		return policy.DurabilityC, "synchronous_commit is " + v, nil
	}
	names := set["synchronous_standby_names"].value
	if names == "" {
		return policy.DurabilityB, "this server's disk: synchronous_standby_names is empty", nil
	}
	var standbys, hidden int
	err = conn.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE sync_state IN ('sync', 'quorum') AND state = 'streaming'), count(*) FILTER (WHERE sync_state IS NULL)
		FROM pg_stat_replication`, exec).Scan(&standbys, &hidden)
	switch {
	case err != nil:
		return "", "", err
	case standbys > 0:
		return policy.DurabilityA, fmt.Sprintf("this server's disk and those of standbys: synchronous_standby_names is %s, %d in step", names, standbys), nil
	case hidden > 0:
		return policy.DurabilityB, fmt.Sprintf("this server's disk: synchronous_standby_names is %s, but the role may not see whether a standby is in step", names), nil
	}
	return policy.DurabilityB, fmt.Sprintf("this server's disk: synchronous_standby_names is %s, but no standby is in step", names), nil
}

func (e *examination) standbys(ctx context.Context) error {
	class, why, err := durability(ctx, e.conn)
	if err != nil {
		return err
	}
	switch names := e.set["synchronous_standby_names"].value; {
	case names == "" || class != policy.DurabilityB:
		e.d.ok("G06", "durability class %s, by %s", class, why)
	case !e.seesAll:
		e.d.bad(Warning, "G06", fmt.Sprintf("GRANT pg_read_all_stats TO %s", e.role), "durability class %s, by %s", class, why)
	default:
		e.d.bad(Warning, "G06", "start a standby that is named there: until then every write waits and is answered unknown", "durability class %s, by %s", class, why)
	}
	return nil
}

func (e *examination) commits(context.Context) error {
	switch v := e.set["synchronous_commit"].value; v {
	case "on", "remote_apply":
	default:
		e.d.bad(Error, "G07", e.change("synchronous_commit", "on"), "synchronous_commit is %s for this session (source: %s): what is acknowledged may be lost", v, e.set["synchronous_commit"].source)
	}
	for _, name := range []string{"fsync", "full_page_writes"} {
		if !e.is(name, "on") {
			e.d.bad(Error, "G07", system(name, "on"), "%s is %s: a power cut leaves the database damaged", name, e.set[name].value)
		}
	}
	if !e.is("data_sync_retry", "off") {
		e.d.bad(Error, "G07", "ALTER SYSTEM SET data_sync_retry = off; then restart the server", "data_sync_retry is %s: a failed fsync is tried again, though the kernel may have dropped the pages", e.set["data_sync_retry"].value)
	}
	e.d.fine("G07", "synchronous_commit is %s; fsync and full_page_writes are on", e.set["synchronous_commit"].value)
	return nil
}

func (e *examination) primary(ctx context.Context) error {
	var standby bool
	if err := e.conn.QueryRow(ctx, "SELECT pg_is_in_recovery()", exec).Scan(&standby); err != nil {
		return err
	}
	if standby {
		e.d.bad(Error, "G08", "name the primary, or add target_session_attrs=read-write to the connection string", "the server is a standby: what it shows may be old")
	}
	if !e.is("default_transaction_read_only", "off") {
		e.d.bad(Error, "G08", e.change("default_transaction_read_only", "off"), "transactions are read only by default")
	}
	e.d.fine("G08", "the server is a primary")
	return nil
}

// pooler: a pooler makes up the process id that it greets its clients with,
// since it has many servers' to offer.
func (e *examination) pooler(ctx context.Context) error {
	pooled, err := throughPooler(ctx, e.conn)
	if err != nil || !pooled {
		return err // one that passes the id on is not seen, so nothing is said
	}
	switch mode := e.conn.Config().DefaultQueryExecMode; mode {
	case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec:
		e.d.bad(Warning, "G09", "add default_query_exec_mode=exec to the connection string", "the server is reached through a pooler, and the connection uses %s: prepared statements need PgBouncer 1.21 with max_prepared_statements", mode)
	default:
		e.d.ok("G09", "the server is reached through a pooler; no session state is relied upon")
	}
	return nil
}

// throughPooler reports that something between makes up process ids.
func throughPooler(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", exec).Scan(&pid); err != nil {
		return false, err
	}
	return pid != conn.PgConn().PID(), nil
}

// skew compares clocks, by the quickest of a few answers.
func (e *examination) skew(ctx context.Context) error {
	best, skew := time.Duration(-1), time.Duration(0)
	for range 3 {
		var theirs time.Time
		start := time.Now()
		if err := e.conn.QueryRow(ctx, "SELECT clock_timestamp()", exec).Scan(&theirs); err != nil {
			return err
		}
		if took := time.Since(start); best < 0 || took < best {
			best, skew = took, theirs.Sub(start.Add(took/2))
		}
	}
	// The answer was stamped somewhere within the round trip.
	if sure := skew.Abs() - best/2; sure > e.most.skew {
		e.d.bad(Warning, "G10", "keep both clocks by NTP", "the server's clock is %s %s this machine's", skew.Abs().Round(time.Millisecond), ahead(skew))
	} else {
		e.d.ok("G10", "the server's clock is %s %s this machine's", skew.Abs().Round(time.Millisecond), ahead(skew))
	}
	return nil
}

func ahead(d time.Duration) string {
	if d < 0 {
		return "behind"
	}
	return "ahead of"
}

// snapshots looks for what keeps dead rows from being removed.
func (e *examination) snapshots(ctx context.Context) error {
	h, err := horizonOf(ctx, e.conn)
	if err != nil {
		return err
	}
	if !e.seesAll {
		e.d.bad(Warning, "G11", fmt.Sprintf("GRANT pg_read_all_stats TO %s", e.role), "the role may not see how old other sessions' transactions are")
	}
	if h.snapshot > e.most.snapshotAge {
		e.d.bad(Warning, "G11", fmt.Sprintf("end it: SELECT pg_terminate_backend(%d); and look why it lasts", h.pid), "process %d holds a snapshot that is %s old: no row that died since is removed", h.pid, h.snapshot.Round(time.Second))
	}
	if h.idle > e.most.idle {
		e.d.bad(Warning, "G11", fmt.Sprintf("ALTER DATABASE %s SET idle_in_transaction_session_timeout = '60s'", e.database), "a session has been idle in a transaction for %s", h.idle.Round(time.Second))
	}
	if h.prepared > e.most.prepared {
		e.d.bad(Warning, "G11", "COMMIT PREPARED or ROLLBACK PREPARED; see pg_prepared_xacts", "a prepared transaction is %s old: it holds its locks and keeps dead rows", h.prepared.Round(time.Second))
	}
	if h.slotAge > e.most.xminAge {
		e.d.bad(Warning, "G11", "see pg_replication_slots; drop the slot of a standby that is gone: SELECT pg_drop_replication_slot('…')", "a replication slot holds a snapshot that is %d transactions old", h.slotAge)
	}
	if h.age > e.most.xminAge && h.snapshot <= e.most.snapshotAge && h.prepared <= e.most.prepared && h.slotAge <= e.most.xminAge {
		e.d.bad(Warning, "G11", "see backend_xmin in pg_stat_activity", "the oldest snapshot is %d transactions old", h.age)
	}
	return nil
}

// horizon is how far back somebody may look.
type horizon struct {
	age      int64         // of the oldest xmin of all, in transactions
	slotAge  int64         // of that of a replication slot
	snapshot time.Duration // of the oldest transaction that holds a snapshot, or may
	pid      int32         // its process
	idle     time.Duration // the longest that one is idle in a transaction
	prepared time.Duration // of the oldest prepared transaction
}

// horizonOf asks for it. A role that may not see other sessions gets no times.
func horizonOf(ctx context.Context, conn *pgx.Conn) (h horizon, err error) {
	var snapshot, idle, prepared float64
	err = conn.QueryRow(ctx, `
		WITH busy AS (
			SELECT pid, greatest(age(backend_xmin), age(backend_xid)) AS age,
				extract(epoch FROM clock_timestamp() - xact_start) AS since,
				CASE WHEN state LIKE 'idle in transaction%' THEN extract(epoch FROM clock_timestamp() - state_change) END AS idle
			FROM pg_stat_activity
			WHERE pid <> pg_backend_pid() AND (datname = current_database() OR backend_type = 'walsender')
		), oldest AS (
			SELECT pid, since FROM busy WHERE age IS NOT NULL AND since IS NOT NULL ORDER BY since DESC LIMIT 1
		), slots AS (
			SELECT max(age(xmin))::bigint AS age FROM pg_replication_slots
		), twophase AS (
			SELECT max(age(transaction))::bigint AS age, max(extract(epoch FROM clock_timestamp() - prepared)) AS since
			FROM pg_prepared_xacts WHERE database = current_database()
		)
		SELECT coalesce(greatest((SELECT max(age)::bigint FROM busy), slots.age, twophase.age), 0), coalesce(slots.age, 0),
			coalesce((SELECT since FROM oldest), 0)::float8, coalesce((SELECT pid FROM oldest), 0),
			coalesce((SELECT max(idle) FROM busy), 0)::float8, coalesce(twophase.since, 0)::float8
		FROM slots, twophase`, exec).Scan(&h.age, &h.slotAge, &snapshot, &h.pid, &idle, &prepared)
	h.snapshot, h.idle, h.prepared = seconds(snapshot), seconds(idle), seconds(prepared)
	return h, err
}

func seconds(s float64) time.Duration { return time.Duration(max(s, 0) * float64(time.Second)) }

func (e *examination) bloat(ctx context.Context) error {
	rows, err := e.conn.Query(ctx, `
		SELECT quote_ident(relname), n_dead_tup, n_live_tup, greatest(last_autovacuum, last_vacuum)
		FROM pg_stat_user_tables WHERE schemaname = $1 AND relname LIKE 'counterfoil\_%' ORDER BY relname`, exec, e.schema)
	if err != nil {
		return err
	}
	var table string
	var dead, live int64
	var vacuumed *time.Time
	_, err = pgx.ForEachRow(rows, []any{&table, &dead, &live, &vacuumed}, func() error {
		if dead < e.most.dead || float64(dead) <= e.most.deadRatio*float64(live) {
			return nil
		}
		last := "never"
		if vacuumed != nil {
			last = vacuumed.UTC().Format(time.RFC3339)
		}
		name := pgx.Identifier{e.schema}.Sanitize() + "." + table
		e.d.bad(Warning, "G11", fmt.Sprintf("VACUUM %s; and ALTER TABLE %[1]s SET (autovacuum_vacuum_scale_factor = 0.02)", name), "%s has %d dead rows beside %d live ones; it was last vacuumed: %s", table, dead, live, last)
		return nil
	})
	if err != nil {
		return err
	}
	e.d.fine("G11", "nothing keeps dead rows from being removed")
	return nil
}

// deadClients: locks must not outlast a client whose machine is gone.
func (e *examination) deadClients(ctx context.Context) error {
	if n := e.number("idle_in_transaction_session_timeout"); n <= 0 || time.Duration(n)*time.Millisecond > e.most.idle {
		e.d.bad(Warning, "G12", e.change("idle_in_transaction_session_timeout", "'10s'"), "idle_in_transaction_session_timeout is %s: a client that dies within a transaction keeps its locks", e.millis(n))
	}
	if n := e.number("lock_timeout"); n <= 0 || time.Duration(n)*time.Millisecond > e.most.lockTimeout {
		e.d.bad(Warning, "G12", e.change("lock_timeout", "'2s'"), "lock_timeout is %s: whoever waits for a lock, waits", e.millis(n))
	}
	var tcp bool
	if err := e.conn.QueryRow(ctx, "SELECT inet_server_addr() IS NOT NULL", exec).Scan(&tcp); err != nil {
		return err
	}
	// On a Unix socket the kernel tells at once, and the settings show as 0.
	idle, every, times := e.number("tcp_keepalives_idle"), e.number("tcp_keepalives_interval"), e.number("tcp_keepalives_count")
	if silence := time.Duration(idle+every*times) * time.Second; tcp && idle > 0 && silence > e.most.silence {
		e.d.bad(Warning, "G12", "ALTER SYSTEM SET tcp_keepalives_idle = 60; ALTER SYSTEM SET tcp_keepalives_interval = 10; ALTER SYSTEM SET tcp_keepalives_count = 6; SELECT pg_reload_conf()", "a client whose machine is gone is noticed after %s", silence)
	}
	e.d.fine("G12", "dead clients lose their locks")
	return nil
}

func (e *examination) millis(n int64) string {
	if n <= 0 {
		return "off"
	}
	return (time.Duration(n) * time.Millisecond).String()
}

func (e *examination) lockTable(context.Context) error {
	per, conns, prepared := e.number("max_locks_per_transaction"), e.number("max_connections"), e.number("max_prepared_transactions")
	if entries := per * (conns + prepared); entries < e.most.lockTable {
		want := (e.most.lockTable + conns + prepared - 1) / (conns + prepared)
		e.d.bad(Warning, "locks", fmt.Sprintf("ALTER SYSTEM SET max_locks_per_transaction = %d; then restart the server", max(256, want)),
			"the server's lock table has room for %d locks (max_locks_per_transaction %d × %d connections and prepared transactions); a batch of claims takes up to 256, and all sessions share the table", entries, per, conns+prepared)
	} else {
		e.d.ok("locks", "the lock table has room for %d locks", entries)
	}
	return nil
}

// logs: what callers send must not be found in the server's log.
func (e *examination) logs(context.Context) error {
	var because []string
	if v := e.set["log_statement"].value; v == "all" || v == "mod" {
		because = append(because, "log_statement is "+v)
	}
	for _, name := range []string{"log_min_duration_statement", "log_min_duration_sample"} {
		if n := e.number(name); n >= 0 {
			because = append(because, fmt.Sprintf("%s is %d ms", name, n))
		}
	}
	if v, err := strconv.ParseFloat(e.set["log_transaction_sample_rate"].value, 64); err == nil && v > 0 {
		because = append(because, fmt.Sprintf("log_transaction_sample_rate is %v", v))
	}
	if len(because) > 0 && !e.is("log_parameter_max_length", "0") {
		e.d.bad(Warning, "G15", e.admin("log_parameter_max_length"), "the server logs parameters of statements: %s, and log_parameter_max_length is %s", strings.Join(because, ", "), e.set["log_parameter_max_length"].value)
	}
	if !e.is("log_parameter_max_length_on_error", "0") {
		e.d.bad(Warning, "G15", e.change("log_parameter_max_length_on_error", "0"), "the server logs parameters of statements that fail: log_parameter_max_length_on_error is %s", e.set["log_parameter_max_length_on_error"].value)
	}
	if n := e.number("auto_explain.log_min_duration"); n >= 0 && !e.is("auto_explain.log_parameter_max_length", "0") {
		e.d.bad(Warning, "G15", e.admin("auto_explain.log_parameter_max_length")+"; before PostgreSQL 16, auto_explain.log_min_duration = -1", "auto_explain logs statements with what is in them, from %d ms", n)
	}
	e.d.fine("G15", "parameters are not logged")
	return nil
}

// admin is change for a setting that only a superuser changes.
func (e *examination) admin(name string) string {
	return fmt.Sprintf("as a superuser: ALTER ROLE %s SET %s = 0; then reconnect", e.role, name)
}

// wal: a full disk under pg_wal stops the server, and with it every claim.
func (e *examination) wal(ctx context.Context) error {
	var may bool
	if err := e.conn.QueryRow(ctx, "SELECT has_function_privilege('pg_ls_waldir()', 'EXECUTE')", exec).Scan(&may); err != nil {
		return err
	}
	if !may {
		e.d.bad(Warning, "G17", fmt.Sprintf("GRANT pg_monitor TO %s; or watch the free space under pg_wal elsewhere", e.role), "the role may not see the size of pg_wal")
		return nil
	}
	var size int64
	if err := e.conn.QueryRow(ctx, "SELECT coalesce(sum(size), 0)::bigint FROM pg_ls_waldir()", exec).Scan(&size); err != nil {
		return err
	}
	if limit := e.number("max_wal_size"); limit > 0 && size>>20 > e.most.wal*limit {
		e.d.bad(Warning, "G17", "see pg_stat_archiver and pg_replication_slots for what keeps it, before the disk is full", "pg_wal holds %d MiB, and max_wal_size is %d MiB", size>>20, limit)
	}
	return nil
}

func (e *examination) archive(ctx context.Context) error {
	var failing bool
	var failed int64
	var file *string
	err := e.conn.QueryRow(ctx, `
		SELECT failed_count, last_failed_wal, coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false)
		FROM pg_stat_archiver`, exec).Scan(&failed, &file, &failing)
	if err != nil {
		return err
	}
	if failing && !e.is("archive_mode", "off") && file != nil {
		e.d.bad(Warning, "G17", "see the server's log for what archive_command says", "archiving fails (%d times, %s the last): pg_wal grows until the disk is full", failed, *file)
	}
	var idle int
	var kept int64
	err = e.conn.QueryRow(ctx, `
		SELECT count(*), coalesce(max(CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn() - restart_lsn END), 0)::bigint
		FROM pg_replication_slots WHERE NOT active AND restart_lsn IS NOT NULL`, exec).Scan(&idle, &kept)
	if err != nil {
		return err
	}
	if limit := e.number("max_wal_size"); idle > 0 && limit > 0 && kept>>20 > limit {
		e.d.bad(Warning, "G17", "drop the slot of a standby that is gone: SELECT pg_drop_replication_slot('…'); and set max_slot_wal_keep_size", "%d replication slots are not in use, and one keeps %d MiB of pg_wal", idle, kept>>20)
	}
	e.d.fine("G17", "pg_wal is within bounds")
	return nil
}
