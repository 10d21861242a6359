package pgstore_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/migrate"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/jackc/pgx/v5"
)

// patient is a database with the tables, and a role that works with them.
type patient struct {
	admin, node string // addresses
	database    string
	schema      string
}

const nodeRole = "node"

// admit makes a database that nothing is wrong with.
func admit(t *testing.T, s *pgtest.Server, schema string) patient {
	t.Helper()
	p := patient{admin: s.Database(t), schema: schema}
	p.database = pgtest.Value[string](t, p.admin, "SELECT current_database()")
	if _, err := migrate.Up(t.Context(), p.admin, migrate.Options{Schema: schema}); err != nil {
		t.Fatal(err)
	}
	if !pgtest.Value[bool](t, p.admin, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", nodeRole) {
		pgtest.Exec(t, p.admin, "CREATE ROLE node LOGIN")
		pgtest.Exec(t, p.admin, "GRANT pg_monitor TO node")
	}
	p.write(t, "ALTER ROLE node SET idle_in_transaction_session_timeout = '10s'; ALTER ROLE node SET lock_timeout = '2s'")
	p.write(t, pgstore.Grants(schema, nodeRole))
	p.node = asRole(t, p.admin, nodeRole, "")
	return p
}

// asRole is an address for another role, with options.
func asRole(t *testing.T, address, role, options string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	if options != "" {
		q := u.Query()
		q.Set("options", options)
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // a plus stays one
	}
	return u.String()
}

// write does what somebody at psql does with a remedy.
func (p patient) write(t *testing.T, statements string) {
	t.Helper()
	for s := range strings.SplitSeq(statements, "; ") {
		if strings.HasPrefix(s, "then ") || s == "" {
			continue
		}
		pgtest.Exec(t, p.admin, s)
	}
}

func call(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (p patient) examine(t *testing.T, address string) []pgstore.Finding {
	t.Helper()
	conn := call(t, address)
	found, err := pgstore.Examine(t.Context(), conn, p.schema)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return found
}

func find(list []pgstore.Finding, severity pgstore.Severity, code, message string) (pgstore.Finding, bool) {
	i := slices.IndexFunc(list, func(f pgstore.Finding) bool {
		return f.Severity == severity && f.Code == code && strings.Contains(f.Message, message)
	})
	if i < 0 {
		return pgstore.Finding{}, false
	}
	return list[i], true
}

// bad are the findings that are not OK.
func bad(list []pgstore.Finding) (out []pgstore.Finding) {
	for _, f := range list {
		if f.Severity != pgstore.OK {
			out = append(out, f)
		}
	}
	return out
}

func server(t *testing.T) *pgtest.Server {
	return pgtest.Start(t, pgtest.Options{Durable: true, Settings: map[string]string{
		"tcp_keepalives_idle": "60", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "6", "max_prepared_transactions": "5", "wal_keep_size": "0",
	}})
}

// TestDoctor breaks one thing at a time, and mends it by what the remedy says.
func TestDoctor(t *testing.T) {
	s := server(t)
	p := admit(t, s, "Pay-Ments")
	healthy := p.examine(t, p.node)
	if list := bad(healthy); len(list) != 0 {
		t.Fatalf("a healthy database: %+v", list)
	}
	if err := pgstore.Refuse(healthy); err != nil {
		t.Fatal(err)
	}
	if f, ok := find(healthy, pgstore.OK, "G06", "durability class B"); !ok {
		t.Error(f)
	}

	const records = `"Pay-Ments".counterfoil_records`
	const meta = `"Pay-Ments".counterfoil_meta`
	const forgotten = `"Pay-Ments".counterfoil_forgotten`
	const versions = `"Pay-Ments".counterfoil_migrations`
	in := "ALTER ROLE node IN DATABASE " + p.database + " "
	for _, c := range []struct {
		name     string
		ruin     string
		severity pgstore.Severity
		code     string
		message  string
		mend     string // when the remedy is no SQL
		options  string // of the connection
	}{
		{"commit off by role", "ALTER ROLE node SET synchronous_commit = off", pgstore.Error, "G07", "synchronous_commit is off", "", ""},
		{"commit local by role here", in + "SET synchronous_commit = local", pgstore.Error, "G07", "synchronous_commit is local", "", ""},
		{"remote_write by database", "ALTER ROLE node RESET synchronous_commit; " + in + "RESET synchronous_commit; ALTER DATABASE " + p.database + " SET synchronous_commit = remote_write", pgstore.Error, "G07", "synchronous_commit is remote_write", "", ""},
		{"commit off by client", "", pgstore.Error, "G07", "source: client", "-", "-c synchronous_commit=off"},
		{"full pages", "ALTER SYSTEM SET full_page_writes = off; SELECT pg_reload_conf()", pgstore.Error, "G07", "full_page_writes is off", "", ""},
		{"fsync", "ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf()", pgstore.Error, "G07", "fsync is off", "", ""},
		{"isolation", "ALTER ROLE node SET default_transaction_isolation = 'repeatable read'", pgstore.Error, "G05", "REPEATABLE READ", "", ""},
		{"read only", "ALTER ROLE node SET default_transaction_read_only = on", pgstore.Error, "G08", "read only", "", ""},
		{"idle", "ALTER ROLE node SET idle_in_transaction_session_timeout = 0", pgstore.Warning, "G12", "idle_in_transaction_session_timeout is off", "", ""},
		{"lock timeout", "ALTER ROLE node SET lock_timeout = '1h'", pgstore.Warning, "G12", "lock_timeout is 1h", "", ""},
		{"unlogged", "ALTER TABLE " + forgotten + " SET UNLOGGED", pgstore.Error, "G14", "is unlogged", "", ""},
		{"no key", "ALTER TABLE " + meta + " DROP CONSTRAINT counterfoil_meta_pkey", pgstore.Error, "G14", "no primary key", "", ""},
		{"another key", "ALTER TABLE " + meta + " DROP CONSTRAINT counterfoil_meta_pkey; ALTER TABLE " + meta + " ADD PRIMARY KEY (name, rev)", pgstore.Error, "G14", "is (name, rev)", "ALTER TABLE " + meta + " DROP CONSTRAINT counterfoil_meta_pkey; ALTER TABLE " + meta + " ADD PRIMARY KEY (name)", ""},
		{"row security", "ALTER TABLE " + records + " ENABLE ROW LEVEL SECURITY", pgstore.Error, "G14", "row security may hide", "ALTER TABLE " + records + " DISABLE ROW LEVEL SECURITY", ""},
		{"swallowing trigger", "CREATE TRIGGER swallow BEFORE INSERT ON " + records + " FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()", pgstore.Error, "G14", "swallow", "DROP TRIGGER swallow ON " + records, ""},
		{"curious trigger", "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL;END'; CREATE TRIGGER look AFTER INSERT ON " + records + " FOR EACH ROW EXECUTE FUNCTION look()", pgstore.Warning, "G14", "look", "DROP TRIGGER look ON " + records, ""},
		{"disabled trigger", "CREATE TRIGGER counterfoil_own AFTER INSERT ON " + records + " FOR EACH ROW EXECUTE FUNCTION look(); ALTER TABLE " + records + " DISABLE TRIGGER counterfoil_own", pgstore.Error, "G14", "disabled triggers: counterfoil_own", "", ""},
		{"rule", "CREATE RULE nothing AS ON DELETE TO " + records + " DO INSTEAD NOTHING", pgstore.Error, "G14", "nothing", "DROP RULE nothing ON " + records, ""},
		{"missing table", "ALTER TABLE " + forgotten + " RENAME TO away", pgstore.Error, "G14", "has no counterfoil_forgotten", `ALTER TABLE "Pay-Ments".away RENAME TO counterfoil_forgotten`, ""},
		{"view for a table", "ALTER TABLE " + forgotten + " RENAME TO away; CREATE VIEW " + forgotten + ` AS SELECT * FROM "Pay-Ments".away`, pgstore.Error, "G14", "is not a table", "DROP VIEW " + forgotten + `; ALTER TABLE "Pay-Ments".away RENAME TO counterfoil_forgotten`, ""},
		{"newer schema", "INSERT INTO " + versions + " (version_id, is_applied) VALUES (4711, true)", pgstore.Error, "G14", "at version 4711", "DELETE FROM " + versions + " WHERE version_id = 4711", ""},
		{"older schema", "DELETE FROM " + versions + " WHERE version_id > 0", pgstore.Error, "G14", "at version 0", fmt.Sprintf("INSERT INTO %s (version_id, is_applied) VALUES (%d, true)", versions, pgstore.SchemaVersion), ""},
		{"secret version", "REVOKE SELECT ON " + versions + " FROM node", pgstore.Error, "G14", "may not read which version", "", ""},
		{"text for bytea", "ALTER TABLE " + records + " RENAME TO away; CREATE TABLE " + records + " (id text PRIMARY KEY)", pgstore.Error, "G13", "is text, not bytea", "DROP TABLE " + records + `; ALTER TABLE "Pay-Ments".away RENAME TO counterfoil_records`, ""},
		{"log of statements", "ALTER ROLE node SET log_statement = 'mod'", pgstore.Warning, "G15", "log_statement is mod", "", ""},
		{"log of slow statements", "ALTER ROLE node RESET log_parameter_max_length; ALTER ROLE node SET log_min_duration_statement = 100", pgstore.Warning, "G15", "log_min_duration_statement is 100 ms", "", ""},
		{"log of failures", "ALTER ROLE node SET log_parameter_max_length_on_error = -1", pgstore.Warning, "G15", "log_parameter_max_length_on_error is -1", "", ""},
		{"truncate", "GRANT TRUNCATE ON " + records + " TO node", pgstore.Warning, "G16", "may empty counterfoil_records", "", ""},
		{"too few rights", "REVOKE UPDATE, DELETE ON " + records + " FROM node", pgstore.Error, "G16", "lacks UPDATE, DELETE on", "", ""},
		{"superuser", "ALTER ROLE node SUPERUSER", pgstore.Warning, "G16", "is a superuser", "ALTER ROLE node NOSUPERUSER", ""},
		{"owner", "ALTER TABLE " + meta + " OWNER TO node", pgstore.Warning, "G16", "owns counterfoil_meta", "ALTER TABLE " + meta + " OWNER TO postgres; " + pgstore.Grants("Pay-Ments", nodeRole), ""},
		{"blind", "REVOKE pg_monitor FROM node", pgstore.Warning, "G17", "may not see the size of pg_wal", "", ""},
		{"half blind", "REVOKE pg_monitor FROM node", pgstore.Warning, "G11", "may not see how old", "GRANT pg_monitor TO node", ""},
		{"absent standby", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()", pgstore.Warning, "G06", "no standby is in step", "ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()", ""},
	} {
		ok := t.Run(c.name, func(t *testing.T) {
			// Whoever breaks or mends does not wait for a standby.
			q := p
			q.admin = asRole(t, p.admin, "postgres", "-c synchronous_commit=local")
			address := asRole(t, p.node, nodeRole, c.options)
			q.write(t, c.ruin)
			var f pgstore.Finding
			var list []pgstore.Finding
			for ok := false; !ok; { // a server that reads its settings again takes a moment
				list = p.examine(t, address)
				if f, ok = find(list, c.severity, c.code, c.message); !ok && !strings.Contains(c.ruin, "pg_reload_conf") {
					t.Fatalf("not found in %+v", bad(list))
				}
			}
			if f.Remedy == "" {
				t.Error("there is no remedy")
			}
			if err := pgstore.Refuse(list); (err != nil) != (c.severity == pgstore.Error) {
				t.Errorf("refused: %v", err)
			}
			for _, f := range bad(list) {
				if f.Severity == pgstore.Error && f.Code != c.code && f.Code != "G16" {
					t.Errorf("also found %+v", f)
				}
			}
			mend := c.mend
			if mend == "" {
				mend = strings.TrimPrefix(f.Remedy, "as a superuser: ")
				mend, _, _ = strings.Cut(mend, "; or ")
			}
			if mend != "-" {
				q.write(t, mend)
				for list = p.examine(t, address); len(bad(list)) > 0; list = p.examine(t, address) {
					if !strings.Contains(mend, "pg_reload_conf") {
						t.Fatalf("after %q: %+v", mend, bad(list))
					}
				}
			}
		})
		if !ok {
			t.FailNow() // the next ones begin with a healthy database
		}
	}
}

// TestDoctorMeasures: everything that is measured is remarked upon when the
// bounds are nothing, in numbers.
func TestDoctorMeasures(t *testing.T) {
	s := server(t)
	p := admit(t, s, "public")
	pgtest.Exec(t, p.admin, "INSERT INTO counterfoil_meta (name, rev, value) SELECT 'x' || n, 1, '' FROM generate_series(1, 100) n")
	pgtest.Exec(t, p.admin, "DELETE FROM counterfoil_meta")

	idle := call(t, p.admin)
	begin(t, idle, "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT txid_current()")
	prepared := call(t, p.admin)
	begin(t, prepared, "BEGIN", "INSERT INTO counterfoil_meta (name, rev, value) VALUES ('p', 1, '')", "PREPARE TRANSACTION 'p'")
	pgtest.Exec(t, p.admin, "SELECT txid_current()")
	pgtest.Exec(t, p.admin, "SELECT pg_create_physical_replication_slot('gone', true)")
	t.Cleanup(func() { pgtest.Exec(t, p.admin, "ROLLBACK PREPARED 'p'") })
	// Statistics are told when a session ends.
	for pgtest.Value[int](t, p.admin, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'counterfoil_meta'") == 0 {
		pgtest.Exec(t, p.admin, "SELECT pg_stat_clear_snapshot()")
	}

	conn := call(t, p.node)
	list, err := pgstore.ExamineStrictly(t.Context(), conn, p.schema)
	if err != nil {
		t.Fatal(err)
	}
	for code, messages := range map[string][]string{
		"G10":   {"the server's clock is"},
		"G11":   {"holds a snapshot that is", "idle in a transaction for", "a prepared transaction is", "counterfoil_meta has", "last vacuumed: never"},
		"G12":   {"whose machine is gone is noticed after", "lock_timeout is 2s", "idle_in_transaction_session_timeout is 10s"},
		"G17":   {"pg_wal holds"},
		"locks": {"has room for"},
	} {
		for _, m := range messages {
			if _, ok := find(list, pgstore.Warning, code, m); !ok {
				t.Errorf("%s %q is not in %+v", code, m, bad(list))
			}
		}
	}
	if err := pgstore.Refuse(list); err != nil {
		t.Errorf("warnings refuse: %v", err)
	}
}

func begin(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDoctorDefaults: what an installation out of the box is told, and that
// none of it keeps a store from starting.
func TestDoctorDefaults(t *testing.T) {
	s := pgtest.Start(t, pgtest.Options{Durable: true, Settings: map[string]string{"max_connections": "100"}})
	p := admit(t, s, "public")
	list := p.examine(t, p.admin)
	for _, want := range []struct{ code, message string }{
		{"G12", "idle_in_transaction_session_timeout is off"},
		{"G12", "lock_timeout is off"},
		{"locks", "6400 locks"},
		{"G16", "is a superuser"},
	} {
		if _, ok := find(list, pgstore.Warning, want.code, want.message); !ok {
			t.Errorf("%v is not in %+v", want, bad(list))
		}
	}
	if err := pgstore.Refuse(list); err != nil {
		t.Error(err)
	}
	// And a database that has no tables.
	p.schema = "nowhere"
	list = p.examine(t, p.admin)
	if f, ok := find(list, pgstore.Error, "G14", "has no counterfoil_records"); !ok || f.Remedy != "run counterfoil store migrate" {
		t.Errorf("%+v", bad(list))
	}
	if err := pgstore.Refuse(list); err == nil || !strings.Contains(err.Error(), "store migrate") {
		t.Error(err)
	}
}

func TestDoctorPooler(t *testing.T) {
	s := server(t)
	p := admit(t, s, "public")
	bouncer := pgtest.PgBouncer(t, s, pgtest.BouncerOptions{})
	through := bouncer.Through(p.admin)
	if _, ok := find(p.examine(t, through), pgstore.Warning, "G09", "1.21"); !ok {
		t.Error("cached statements through a pooler are not remarked upon")
	}
	for _, more := range []string{"&default_query_exec_mode=exec", "&default_query_exec_mode=simple_protocol"} {
		if _, ok := find(p.examine(t, through+more), pgstore.OK, "G09", "through a pooler"); !ok {
			t.Error(more)
		}
	}
	for _, f := range p.examine(t, p.admin) {
		if f.Code == "G09" {
			t.Errorf("a direct connection: %+v", f)
		}
	}
}

func TestDoctorStandby(t *testing.T) {
	s := server(t)
	p := admit(t, s, "public")
	standby := s.Standby(t, "s1")
	list := p.examine(t, standby.URL(p.database))
	if f, ok := find(list, pgstore.Error, "G08", "is a standby"); !ok || !strings.Contains(f.Remedy, "target_session_attrs") {
		t.Errorf("%+v", bad(list))
	}
	s.Synchronous(t, "s1")
	list = p.examine(t, p.node)
	if _, ok := find(list, pgstore.OK, "G06", "durability class A"); !ok {
		t.Errorf("%+v", list)
	}
	class, why, err := pgstore.DurabilityOf(t.Context(), call(t, p.node))
	if err != nil || class != policy.DurabilityA || !strings.Contains(why, "s1") {
		t.Error(class, why, err)
	}
	class, why, err = pgstore.DurabilityOf(t.Context(), call(t, asRole(t, p.node, nodeRole, "-c synchronous_commit=local")))
	if err != nil || class != policy.DurabilityC || !strings.Contains(why, "local") {
		t.Error(class, why, err)
	}
	// A role that may not see it has what it can be sure of.
	pgtest.Exec(t, p.admin, "REVOKE pg_monitor FROM node")
	list = p.examine(t, p.node)
	if f, ok := find(list, pgstore.Warning, "G06", "durability class B"); !ok || !strings.Contains(f.Remedy, "GRANT pg_read_all_stats") {
		t.Errorf("%+v", list)
	}
	s.Synchronous(t, "")
}
