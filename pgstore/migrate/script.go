package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"text/template"
	"time"

	"github.com/pressly/goose/v3"
)

// SQL is what [Up] would run now, for somebody else to run: the migrations that
// are pending, in order, each in its transaction and with the row that records
// it, so that Up finds nothing pending afterwards. It is empty when the schema
// is up to date. It is plain SQL; psql can run it. Each transaction takes the
// lock that Up takes, and refuses to run out of turn or twice.
//
// Its errors are those of Up; a pooler is no hindrance.
func SQL(ctx context.Context, url string, o Options) (string, error) {
	return pending(ctx, url, o, files())
}

func pending(ctx context.Context, url string, o Options, files fs.FS) (string, error) {
	o, err := o.withDefaults()
	if err != nil {
		return "", err
	}
	set, err := render(files, o)
	if err != nil {
		return "", err
	}
	conn, err := connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer closeConn(conn)
	current, err := version(ctx, conn, o)
	if err != nil {
		return "", err
	}
	if err := set.readable(current); err != nil {
		return "", err
	}
	return set.script(current), nil
}

// All is what [SQL] says of a database that has nothing of ours. It needs no
// server.
func All(o Options) (string, error) {
	return all(o, files())
}

func all(o Options, files fs.FS) (string, error) {
	o, err := o.withDefaults()
	if err != nil {
		return "", err
	}
	set, err := render(files, o)
	if err != nil {
		return "", err
	}
	return set.script(0), nil
}

// migration is a file with the names filled in.
type migration struct {
	version int64
	name    string
	text    string
}

// migrations are in order. As a file system they are what goose reads.
type migrations struct {
	o    Options
	list []migration
}

// latest is the version that the migrations lead to.
func (m migrations) latest() int64 {
	if len(m.list) == 0 {
		return 0
	}
	return m.list[len(m.list)-1].version
}

// render reads the migrations and fills in the names.
func render(files fs.FS, o Options) (migrations, error) {
	set := migrations{o: o}
	names, err := fs.Glob(files, "*.sql") // sorted, and the versions have leading zeros
	if err != nil {
		return set, fmt.Errorf("migrate: %w", err)
	}
	for _, name := range names {
		v, err := goose.NumericComponent(name)
		if err != nil {
			return set, fmt.Errorf("migrate: %s: %w", name, err)
		}
		if v <= set.latest() {
			return set, fmt.Errorf("migrate: %s: version %d comes after version %d", name, v, set.latest())
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return set, fmt.Errorf("migrate: %w", err)
		}
		t, err := template.New(name).Option("missingkey=error").Parse(string(text))
		if err != nil {
			return set, fmt.Errorf("migrate: %w", err)
		}
		var b strings.Builder
		if err := t.Execute(&b, struct {
			Schema     string // quoted
			SchemaText string // for the inside of a string
			Partitions int
			Numbers    []int // of the partitions
		}{o.schema(), o.Schema, o.Partitions, o.numbers()}); err != nil {
			return set, fmt.Errorf("migrate: %w", err)
		}
		set.list = append(set.list, migration{version: v, name: name, text: b.String()})
	}
	if len(set.list) == 0 {
		return set, errors.New("migrate: there are no migrations")
	}
	return set, nil
}

// annotation is a line that is meant for goose.
var annotation = regexp.MustCompile(`(?m)^--\s*\+goose.*\n?`)

// noTransaction is the annotation of a migration that cannot run in one.
var noTransaction = regexp.MustCompile(`(?mi)^--\s*\+goose\s+NO TRANSACTION`)

// script is the SQL that leads from a version to the latest.
func (m migrations) script(from int64) string {
	var b strings.Builder
	table, before := m.o.table(), int64(0)
	for _, step := range m.list {
		if step.version <= from {
			before = step.version
			continue
		}
		if b.Len() == 0 && before == 0 {
			fmt.Fprintf(&b, "-- the schema %s and its table of versions\nBEGIN;\n%s%sCOMMIT;\n", m.o.Schema, settings(true), m.head())
		}
		fmt.Fprintf(&b, "\n-- %s (version %d)\nBEGIN;\n%s%s", step.name, step.version, settings(true), m.guard(before))
		body := strings.TrimSpace(annotation.ReplaceAllString(step.text, ""))
		record := fmt.Sprintf("INSERT INTO %s (version_id, is_applied) VALUES (%d, true);\n", table, step.version)
		if noTransaction.MatchString(step.text) {
			fmt.Fprintf(&b, "COMMIT;\n%s\n%s", body, record)
		} else {
			fmt.Fprintf(&b, "%s\n%sCOMMIT;\n", body, record)
		}
		before = step.version
	}
	return b.String()
}

// settings are those a migration relies upon: names are looked up nowhere but
// where it says, and it waits for nobody so long that claims queue up behind
// it. local ends them with the transaction.
func settings(local bool) string {
	scope := "SESSION"
	if local {
		scope = "LOCAL"
	}
	return fmt.Sprintf("SET %[1]s search_path = '';\nSET %[1]s statement_timeout = 0;\nSET %[1]s lock_timeout = '10s';\n", scope)
}

// head makes the schema and the table of versions, as one statement that
// changes nothing where both are there.
func (m migrations) head() string {
	return fmt.Sprintf(`DO $counterfoil$
BEGIN
	PERFORM set_config('lock_timeout', '0', true);
	PERFORM pg_advisory_xact_lock(%d);
	IF to_regnamespace('%s') IS NULL THEN
		CREATE SCHEMA %[2]s;
	END IF;
	IF to_regclass('%[3]s') IS NULL THEN
		%[4]s;
		INSERT INTO %[3]s (version_id, is_applied) VALUES (0, true);
	END IF;
END $counterfoil$;
`, m.o.lockKey(), m.o.schema(), m.o.table(), createVersionTable(m.o.table()))
}

// guard refuses to go on when the schema is not at the version before.
func (m migrations) guard(before int64) string {
	return fmt.Sprintf(`DO $counterfoil$
DECLARE
	found bigint;
BEGIN
	PERFORM set_config('lock_timeout', '0', true);
	PERFORM pg_advisory_xact_lock(%d);
	PERFORM set_config('lock_timeout', '10s', true);
	SELECT max(version_id) INTO found FROM %s;
	IF found <> %d THEN
		RAISE EXCEPTION 'the schema is at version %%, not %[3]d: print the migrations again', found;
	END IF;
END $counterfoil$;
`, m.o.lockKey(), m.o.table(), before)
}

// Open implements fs.FS.
func (m migrations) Open(name string) (fs.File, error) {
	for _, step := range m.list {
		if step.name == name {
			return &page{Reader: bytes.NewReader([]byte(step.text)), step: step}, nil
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// Glob implements fs.GlobFS, by which goose finds the files.
func (m migrations) Glob(pattern string) ([]string, error) {
	var names []string
	for _, step := range m.list {
		ok, err := path.Match(pattern, step.name)
		if err != nil {
			return nil, err
		}
		if ok {
			names = append(names, step.name)
		}
	}
	return names, nil
}

// page is an open migration, and its own fs.FileInfo.
type page struct {
	io.Reader
	step migration
}

func (p *page) Stat() (fs.FileInfo, error) { return p, nil }
func (p *page) Close() error               { return nil }
func (p *page) Name() string               { return p.step.name }
func (p *page) Size() int64                { return int64(len(p.step.text)) }
func (p *page) Mode() fs.FileMode          { return 0o444 }
func (p *page) ModTime() time.Time         { return time.Time{} }
func (p *page) IsDir() bool                { return false }
func (p *page) Sys() any                   { return nil }
