package migrate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/migrate"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
	"github.com/jackc/pgx/v5"
)

func run(t *testing.T, url string, statements ...string) {
	t.Helper()
	for _, s := range statements {
		pgtest.Exec(t, url, s)
	}
}

func ask[T any](t *testing.T, url, query string, args ...any) T {
	t.Helper()
	return pgtest.Value[T](t, url, query, args...)
}

func database(t *testing.T) string {
	t.Helper()
	return pgtest.Shared(t).Database(t)
}

// as is the address for another role, with more parameters.
func as(t *testing.T, address, role, more string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if role != "" {
		u.User = url.User(role)
	}
	if more != "" {
		u.RawQuery += "&" + more
	}
	return u.String()
}

// psql feeds a script to psql, as an administrator would.
func psql(t *testing.T, url, script string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("psql: %w: %s", err, out)
	}
	return nil
}

// dump is the schema as pg_dump writes it.
func dump(t *testing.T, url string) string {
	t.Helper()
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "pg_dump", "--schema-only", "-d", url)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		t.Fatalf("pg_dump: %v: %s", err, complaint.String())
	}
	// Newer ones fence the text with a word of the day.
	return regexp.MustCompile(`(?m)^\\(un)?restrict .*$`).ReplaceAllString(out.String(), "")
}

// count counts the migrations there are.
func count(t *testing.T, files fs.FS) int {
	t.Helper()
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	return len(names)
}

func TestUp(t *testing.T) {
	for _, o := range []migrate.Options{{}, {Schema: "Pay-Ments", Partitions: 4}, {Schema: "select", Partitions: 1}} {
		t.Run(o.Schema, func(t *testing.T) {
			url := database(t)
			if current, latest, err := migrate.Version(t.Context(), url, o.Schema); err != nil || current != 0 || latest == 0 {
				t.Fatal(current, latest, err)
			}
			var told []migrate.Step
			o.Progress = func(s migrate.Step) { told = append(told, s) }
			steps, err := migrate.Up(t.Context(), url, o)
			if err != nil {
				t.Fatal(err)
			}
			if want := count(t, migrate.Files()); len(steps) != want || len(told) != want || steps[0].Name == "" || steps[0].Version != 1 {
				t.Fatalf("ran %+v, told %+v; want %d", steps, told, want)
			}
			if current, latest, err := migrate.Version(t.Context(), url, o.Schema); err != nil || current != latest {
				t.Fatal(current, latest, err)
			}
			steps, err = migrate.Up(t.Context(), url, o)
			if err != nil || len(steps) != 0 {
				t.Fatalf("again: %+v, %v", steps, err)
			}
			schema := o.Schema
			if schema == "" {
				schema = "public"
			}
			kind, want := ask[string](t, url, "SELECT relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = $1 AND relname = 'counterfoil_records'", schema), "r"
			if o.Partitions > 1 {
				want = "p"
			}
			if kind != want {
				t.Errorf("the table of records is of kind %q, want %q", kind, want)
			}
			children := ask[int](t, url, "SELECT count(*) FROM pg_inherits WHERE inhparent = $1::regclass", pgx.Identifier{schema, "counterfoil_records"}.Sanitize())
			if want := o.Partitions; want > 1 && children != want || want <= 1 && children != 0 {
				t.Errorf("%d partitions, want %d", children, want)
			}
			stray := ask[int](t, url, "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE relname LIKE 'counterfoil%' AND nspname <> $1", schema)
			if stray != 0 {
				t.Errorf("%d tables are in other schemas", stray)
			}
		})
	}
}

// TestTwoSchemas: two stores in one database do not see each other.
func TestTwoSchemas(t *testing.T) {
	url := database(t)
	for _, schema := range []string{"one", "two"} {
		if steps, err := migrate.Up(t.Context(), url, migrate.Options{Schema: schema}); err != nil || len(steps) == 0 {
			t.Fatal(steps, err)
		}
	}
}

// TestManyAtOnce: nodes that start together run each migration once.
func TestManyAtOnce(t *testing.T) {
	url := database(t)
	files := fstest.MapFS{}
	for i := 1; i <= 5; i++ {
		files[fmt.Sprintf("%05d_t.sql", i)] = &fstest.MapFile{Data: fmt.Appendf(nil, "-- +goose Up\nCREATE TABLE {{.Schema}}.t%d (id int);\nSELECT pg_sleep(0.1);\n", i)}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	ran := map[int64]int{}
	for range 4 {
		wg.Go(func() {
			steps, err := migrate.UpFiles(t.Context(), url, migrate.Options{Schema: "crowd"}, files)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, s := range steps {
				ran[s.Version]++
			}
		})
	}
	wg.Wait()
	for v := int64(1); v <= 5; v++ {
		if ran[v] != 1 {
			t.Errorf("version %d ran %d times", v, ran[v])
		}
	}
	if n := ask[int](t, url, "SELECT count(*) FROM crowd.counterfoil_migrations"); n != 6 {
		t.Errorf("%d rows of versions", n)
	}
}

// TestSQL: what is printed, run by psql, makes what Up makes, and Up knows.
func TestSQL(t *testing.T) {
	for _, o := range []migrate.Options{{}, {Schema: "Pay-Ments", Partitions: 3}} {
		t.Run(o.Schema, func(t *testing.T) {
			byUp, byHand := database(t), database(t)
			if _, err := migrate.Up(t.Context(), byUp, o); err != nil {
				t.Fatal(err)
			}
			script, err := migrate.SQL(t.Context(), byHand, o)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(script, "+goose") || strings.Contains(script, "{{") {
				t.Error("something was not filled in or left out")
			}
			whole, err := migrate.All(o)
			if err != nil || whole != script {
				t.Errorf("All differs from SQL on an empty database: %v", err)
			}
			if err := psql(t, byHand, script); err != nil {
				t.Fatal(err)
			}
			if a, b := dump(t, byUp), dump(t, byHand); a != b {
				t.Errorf("the schemas differ:\n%s\n----\n%s", a, b)
			}
			versions := `SELECT string_agg(format('%s %s', version_id, is_applied), ', ' ORDER BY id) FROM ` + pgx.Identifier{or(o.Schema, "public"), "counterfoil_migrations"}.Sanitize()
			if a, b := ask[string](t, byUp, versions), ask[string](t, byHand, versions); a != b {
				t.Errorf("the versions differ: %s, %s", a, b)
			}
			if steps, err := migrate.Up(t.Context(), byHand, o); err != nil || len(steps) != 0 {
				t.Errorf("afterwards Up ran %+v, %v", steps, err)
			}
			if again, err := migrate.SQL(t.Context(), byHand, o); err != nil || again != "" {
				t.Errorf("afterwards there is %q, %v", again, err)
			}
			if err := psql(t, byHand, script); err == nil || !strings.Contains(err.Error(), "print the migrations again") {
				t.Errorf("a second run: %v", err)
			}
		})
	}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// TestSQLOfTheRest: only what is pending is printed, and a migration that runs
// in no transaction is printed so.
func TestSQLOfTheRest(t *testing.T) {
	url := database(t)
	files := fstest.MapFS{
		"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE {{.Schema}}.a (id int);\n")},
		"00002_b.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\nCREATE INDEX CONCURRENTLY a_id ON {{.Schema}}.a (id);\n")},
		"00003_c.sql": {Data: []byte("-- +goose Up\n-- +goose StatementBegin\nDO $$ BEGIN PERFORM 1; END $$;\n-- +goose StatementEnd\n")},
	}
	first := fstest.MapFS{"00001_a.sql": files["00001_a.sql"]}
	o := migrate.Options{Schema: "rest"}
	if _, err := migrate.UpFiles(t.Context(), url, o, first); err != nil {
		t.Fatal(err)
	}
	script, err := migrate.PendingFiles(t.Context(), url, o, files)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(script, "CREATE TABLE") || !strings.Contains(script, "00002_b.sql") || !strings.Contains(script, "00003_c.sql") {
		t.Error(script)
	}
	if err := psql(t, url, script); err != nil {
		t.Fatal(err)
	}
	if steps, err := migrate.UpFiles(t.Context(), url, o, files); err != nil || len(steps) != 0 {
		t.Fatal(steps, err)
	}
	// And by Up.
	o.Schema = "rest2"
	if steps, err := migrate.UpFiles(t.Context(), url, o, files); err != nil || len(steps) != 3 {
		t.Fatal(steps, err)
	}
}

// TestFailure: a migration that fails leaves nothing of itself behind.
func TestFailure(t *testing.T) {
	files := fstest.MapFS{
		"00001_good.sql": {Data: []byte("-- +goose Up\nCREATE TABLE {{.Schema}}.good (id int);\n")},
		"00002_bad.sql":  {Data: []byte("-- +goose Up\nCREATE TABLE {{.Schema}}.half (id int);\nSELECT 1/0;\nCREATE TABLE {{.Schema}}.rest (id int);\n")},
		"00003_next.sql": {Data: []byte("-- +goose Up\nCREATE TABLE {{.Schema}}.next (id int);\n")},
	}
	o := migrate.Options{Schema: "f"}
	byUp, byHand := database(t), database(t)
	steps, err := migrate.UpFiles(t.Context(), byUp, o, files)
	if err == nil || len(steps) != 1 || steps[0].Name != "00001_good.sql" || !strings.Contains(err.Error(), "00002_bad.sql") {
		t.Fatalf("%+v, %v", steps, err)
	}
	script, err := migrate.AllFiles(o, files)
	if err != nil {
		t.Fatal(err)
	}
	// A tool that goes on after an error must not skip a migration.
	if err := psql(t, byHand, "\\set ON_ERROR_STOP off\n"+script); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{byUp, byHand} {
		if got := ask[string](t, url, "SELECT string_agg(tablename, ' ' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'f'"); got != "counterfoil_migrations good" {
			t.Errorf("there is %q", got)
		}
		if v := ask[int](t, url, "SELECT max(version_id) FROM f.counterfoil_migrations"); v != 1 {
			t.Errorf("version %d", v)
		}
	}
	// Mended, it goes on from there.
	files["00002_bad.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nSELECT 1;\n")}
	if steps, err := migrate.UpFiles(t.Context(), byUp, o, files); err != nil || len(steps) != 2 {
		t.Fatal(steps, err)
	}
}

func TestNewer(t *testing.T) {
	url := database(t)
	if _, err := migrate.Up(t.Context(), url, migrate.Options{}); err != nil {
		t.Fatal(err)
	}
	run(t, url, "INSERT INTO counterfoil_migrations (version_id, is_applied) VALUES (7777, true)")
	_, err := migrate.Up(t.Context(), url, migrate.Options{})
	_, errSQL := migrate.SQL(t.Context(), url, migrate.Options{})
	for _, err := range []error{err, errSQL} {
		if !errors.Is(err, pgstore.ErrSchema) || !strings.Contains(err.Error(), "7777") {
			t.Error(err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	url := "postgres://nobody:secret@127.0.0.1:1/none?connect_timeout=2"
	_, err := migrate.Up(t.Context(), url, migrate.Options{})
	_, errSQL := migrate.SQL(t.Context(), url, migrate.Options{})
	_, _, errVersion := migrate.Version(t.Context(), url, "")
	for _, err := range []error{err, errSQL, errVersion} {
		if !errors.Is(err, counterfoil.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
	}
}

func TestReadOnly(t *testing.T) {
	url := database(t)
	_, err := migrate.Up(t.Context(), as(t, url, "", "options=-c%20default_transaction_read_only%3Don"), migrate.Options{})
	if !errors.Is(err, pgstore.ErrReadOnly) || !strings.Contains(err.Error(), "default_transaction_read_only = off") {
		t.Error(err)
	}
}

func TestStandby(t *testing.T) {
	primary := pgtest.Start(t, pgtest.Options{})
	standby := primary.Standby(t, "s1")
	_, err := migrate.Up(t.Context(), standby.URL("postgres"), migrate.Options{})
	if !errors.Is(err, pgstore.ErrReadOnly) || !strings.Contains(err.Error(), "target_session_attrs") {
		t.Error(err)
	}
}

// TestPooler: through PgBouncer nothing is migrated, but the SQL is shown, and a
// schema that is up to date is no error.
func TestPooler(t *testing.T) {
	server := pgtest.Shared(t)
	direct := server.Database(t)
	through := pgtest.PgBouncer(t, server, pgtest.BouncerOptions{}).Through(direct)
	if _, err := migrate.Up(t.Context(), through, migrate.Options{}); err == nil || !strings.Contains(err.Error(), "is a pooler") {
		t.Error(err)
	}
	script, err := migrate.SQL(t.Context(), through, migrate.Options{})
	if err != nil || script == "" {
		t.Error(err)
	}
	if _, err := migrate.Up(t.Context(), direct, migrate.Options{}); err != nil {
		t.Fatal(err)
	}
	if steps, err := migrate.Up(t.Context(), through, migrate.Options{}); err != nil || len(steps) != 0 {
		t.Error(steps, err)
	}
}

// TestInterrupted: whoever gives up while another migrates, or in the middle,
// leaves no lock behind.
func TestInterrupted(t *testing.T) {
	url := database(t)
	files := fstest.MapFS{
		"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE {{.Schema}}.a (id int);\n")},
		"00002_b.sql": {Data: []byte("-- +goose Up\nCREATE TABLE {{.Schema}}.b (id int);\nSELECT pg_sleep(60);\n")},
	}
	ctx, cancel := context.WithCancel(t.Context())
	o := migrate.Options{Schema: "stopped", Progress: func(migrate.Step) { cancel() }}
	steps, err := migrate.UpFiles(ctx, url, o, files)
	if !errors.Is(err, context.Canceled) || len(steps) != 1 {
		t.Fatal(steps, err)
	}
	files["00002_b.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE {{.Schema}}.b (id int);\n")}
	if steps, err := migrate.UpFiles(t.Context(), url, o, files); err != nil || len(steps) != 1 {
		t.Fatal(steps, err)
	}
}

// TestPrivileges: who may not is told what to write, and writing it helps.
func TestPrivileges(t *testing.T) {
	url := database(t)
	role := strings.ToLower(regexp.MustCompile(`\W`).ReplaceAllString(t.Name(), ""))
	run(t, url, "DROP ROLE IF EXISTS "+role, "CREATE ROLE "+role+" LOGIN")
	weak := as(t, url, role, "")
	db := ask[string](t, url, "SELECT current_database()")

	for _, c := range []struct {
		o            migrate.Options
		says, remedy string
	}{
		{migrate.Options{}, "GRANT USAGE, CREATE ON SCHEMA \"public\" TO " + role, "GRANT USAGE, CREATE ON SCHEMA public TO " + role},
		{migrate.Options{Schema: "apart"}, "GRANT CREATE ON DATABASE " + db, "GRANT CREATE ON DATABASE " + db + " TO " + role},
	} {
		if _, err := migrate.Up(t.Context(), weak, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.o, err)
		}
		run(t, url, c.remedy)
		if _, err := migrate.Up(t.Context(), weak, c.o); err != nil {
			t.Errorf("after the remedy: %v", err)
		}
	}
	// A schema that belongs to somebody else.
	o := migrate.Options{Schema: "theirs"}
	first := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE {{.Schema}}.counterfoil_a (id int);\n")}}
	if _, err := migrate.UpFiles(t.Context(), url, o, first); err != nil {
		t.Fatal(err)
	}
	first["00002_b.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nALTER TABLE {{.Schema}}.counterfoil_a ADD COLUMN b int;\n")}
	if _, err := migrate.UpFiles(t.Context(), weak, o, first); err == nil || !strings.Contains(err.Error(), "GRANT USAGE, CREATE ON SCHEMA") {
		t.Error(err)
	}
	run(t, url, "GRANT USAGE, CREATE ON SCHEMA theirs TO "+role, "GRANT ALL ON theirs.counterfoil_migrations TO "+role)
	if _, err := migrate.UpFiles(t.Context(), weak, o, first); err == nil || !strings.Contains(err.Error(), "run the migration as ") {
		t.Error(err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, schema := range []string{"a b", `a"b`, "a'b", "a.b", "1a", "-a", "pg_toast", "PG_x", "Information_Schema", strings.Repeat("x", 64), "ü", "a;b", "$"} {
		if _, err := migrate.All(migrate.Options{Schema: schema}); err == nil {
			t.Errorf("%q is accepted", schema)
		}
	}
	_, err := migrate.All(migrate.Options{Schema: "a b", Partitions: -1})
	if err == nil || !strings.Contains(err.Error(), "a b") || !strings.Contains(err.Error(), "-1") {
		t.Errorf("not every fault is named: %v", err)
	}
	_, err = migrate.AllFiles(migrate.Options{}, fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nSELECT {{.Shema}};\n")}})
	if err == nil {
		t.Error("a name that is not there is accepted")
	}
	_, err = migrate.AllFiles(migrate.Options{}, fstest.MapFS{})
	if err == nil {
		t.Error("no migrations are accepted")
	}
}

// TestForwardOnly: no migration says how to undo it.
func TestForwardOnly(t *testing.T) {
	err := fs.WalkDir(migrate.Files(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrate.Files(), name)
		if err != nil {
			return err
		}
		if !regexp.MustCompile(`^\d{5}_[a-z_]+\.sql$`).MatchString(name) {
			t.Errorf("%s: name it 00001_what.sql", name)
		}
		if regexp.MustCompile(`(?i)\+goose\s+down`).Match(text) {
			t.Errorf("%s has a Down section: evidence is never dropped", name)
		}
		if regexp.MustCompile(`(?i)drop\s+table\s+(if\s+exists\s+)?\{\{\.Schema\}\}\.counterfoil_`).Match(text) {
			t.Errorf("%s drops a table", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSchemaVersion: pgstore, which does not import this package, knows the
// version of the newest file.
func TestSchemaVersion(t *testing.T) {
	if _, latest, err := migrate.Version(t.Context(), database(t), ""); err != nil || latest != pgstore.SchemaVersion {
		t.Errorf("the newest file has version %d, pgstore has %d (%v)", latest, pgstore.SchemaVersion, err)
	}
}
