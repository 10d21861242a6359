package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// table is one of ours.
type table struct {
	name string
	// key is its primary key; "" for any.
	key string
	// rights are what a node does with it.
	rights string
}

// tables are what the schema holds. Rights on a partition are those of its
// parent, except where one is named by itself.
var tables = []table{
	{"counterfoil_records", "id", "SELECT, INSERT, UPDATE, DELETE"},
	{"counterfoil_responses", "expires_on, id", "SELECT, INSERT, UPDATE, DELETE"},
	{"counterfoil_responses_default", "expires_on, id", "SELECT, DELETE"},
	{"counterfoil_meta", "name", "SELECT, INSERT, UPDATE"},
	{"counterfoil_forgotten", "operation", "SELECT, INSERT, UPDATE"},
	{"counterfoil_store", "", "SELECT, UPDATE"},
	{migrationsTable, "", "SELECT"},
}

// migrationsTable is written by package migrate.
const migrationsTable = "counterfoil_migrations"

const migrateRemedy = "run counterfoil store migrate"

// relation is a table of ours or a partition of one, as the catalogue has it.
type relation struct {
	name, top, kind, persistence string
	key, idType                  string
	hidden                       bool   // rows of it, by row security
	disabled, before, after      string // triggers
	rules                        string
	lacks                        string // rights
	owned, truncates             bool
}

// relations are the tables that are there and their partitions.
func (e *examination) relations(ctx context.Context) ([]relation, error) {
	names, rights := make([]string, len(tables)), make([]string, len(tables))
	for i, t := range tables {
		names[i], rights[i] = t.name, t.rights
	}
	rows, err := e.conn.Query(ctx, `
		WITH RECURSIVE wanted AS (
			SELECT * FROM unnest($2::text[], $3::text[]) AS w (name, rights)
		), ours AS (
			SELECT c.oid, c.relname::text AS top FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relname IN (SELECT name FROM wanted) AND c.relkind NOT IN ('i', 'I', 'S', 'c')
			UNION
			SELECT i.inhrelid, o.top FROM pg_inherits i JOIN ours o ON o.oid = i.inhparent
		)
		SELECT DISTINCT ON (c.oid) c.relname, o.top, c.relkind::text, c.relpersistence::text,
			coalesce((SELECT string_agg(a.attname, ', ' ORDER BY k.place)
				FROM pg_index x CROSS JOIN unnest(x.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
				JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.attnum
				WHERE x.indrelid = c.oid AND x.indisprimary AND x.indisvalid), ''),
			coalesce((SELECT format_type(a.atttypid, NULL) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'id' AND NOT a.attisdropped), ''),
			row_security_active(c.oid),
			coalesce((SELECT string_agg(quote_ident(t.tgname), ', ') FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgenabled IN ('D', 'R')), ''),
			coalesce((SELECT string_agg(quote_ident(t.tgname), ', ') FROM pg_trigger t
				WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgname NOT LIKE 'counterfoil\_%' AND t.tgtype::int & 66 <> 0), ''),
			coalesce((SELECT string_agg(quote_ident(t.tgname), ', ') FROM pg_trigger t
				WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgname NOT LIKE 'counterfoil\_%' AND t.tgtype::int & 66 = 0), ''),
			coalesce((SELECT string_agg(quote_ident(r.rulename), ', ') FROM pg_rewrite r WHERE r.ev_class = c.oid), ''),
			coalesce((SELECT string_agg(p, ', ' ORDER BY place) FROM wanted w CROSS JOIN regexp_split_to_table(w.rights, ', ') WITH ORDINALITY AS s (p, place)
				WHERE w.name = c.relname AND NOT has_table_privilege(c.oid, p)), ''),
			pg_has_role(c.relowner, 'USAGE'), has_table_privilege(c.oid, 'TRUNCATE')
		FROM ours o JOIN pg_class c ON c.oid = o.oid
		ORDER BY c.oid, o.top DESC`, exec, e.schema, names, rights)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r relation, err error) {
		err = row.Scan(&r.name, &r.top, &r.kind, &r.persistence, &r.key, &r.idType, &r.hidden, &r.disabled, &r.before, &r.after, &r.rules, &r.lacks, &r.owned, &r.truncates)
		return r, err
	})
}

// tables looks for what an operator may have changed about them (G13, G14).
func (e *examination) tables(ctx context.Context) error {
	found, err := e.relations(ctx)
	if err != nil {
		return err
	}
	var missing []string
	for _, t := range tables {
		if !slices.ContainsFunc(found, func(r relation) bool { return r.name == t.name }) {
			missing = append(missing, t.name)
		}
	}
	if len(missing) > 0 {
		e.d.bad(Error, "G14", migrateRemedy, "the schema %s has no %s", e.schema, strings.Join(missing, ", "))
	}
	for _, r := range found {
		e.shape(r)
	}
	e.d.fine("G13", "keys are bytes, compared as such")
	e.d.fine("G14", "%d tables and partitions are as they were made", len(found))
	return nil
}

func (e *examination) shape(r relation) {
	name := pgx.Identifier{e.schema, r.name}.Sanitize()
	if keyed := r.top == "counterfoil_records" || r.top == "counterfoil_responses"; keyed && r.idType != "bytea" {
		e.d.bad(Error, "G13", "restore the table from a backup, or make it anew", "the id of %s is %s, not bytea: keys that differ may be taken for one", name, r.idType)
	}
	if r.kind != "r" && r.kind != "p" {
		e.d.bad(Error, "G14", "make it a table again", "%s is not a table (kind %q)", name, r.kind)
		return
	}
	if r.persistence != "p" {
		e.d.bad(Error, "G14", fmt.Sprintf("ALTER TABLE %s SET LOGGED", name), "%s is unlogged: a crash empties it", name)
	}
	i := slices.IndexFunc(tables, func(t table) bool { return t.name == r.name })
	if i < 0 { // a partition, whose key is its parent's
		i = slices.IndexFunc(tables, func(t table) bool { return t.name == r.top })
	}
	switch key := tables[i].key; {
	case r.key == "":
		e.d.bad(Error, "G14", fmt.Sprintf("ALTER TABLE %s ADD PRIMARY KEY (%s)", name, or(key, "…")), "%s has no primary key: two callers may both be told to go ahead", name)
	case key != "" && r.key != key:
		e.d.bad(Error, "G14", fmt.Sprintf("make (%s) its primary key", key), "the primary key of %s is (%s)", name, r.key)
	}
	if r.hidden {
		e.d.bad(Error, "G14", fmt.Sprintf("ALTER TABLE %s DISABLE ROW LEVEL SECURITY; or ALTER ROLE %s BYPASSRLS", name, e.role), "row security may hide rows of %s from the role: a record that is there would be taken for absent", name)
	}
	if r.disabled != "" {
		e.d.bad(Error, "G14", fmt.Sprintf("ALTER TABLE %s ENABLE TRIGGER ALL", name), "%s has disabled triggers: %s", name, r.disabled)
	}
	if r.before != "" {
		e.d.bad(Error, "G14", fmt.Sprintf("DROP TRIGGER … ON %s", name), "%s has triggers that may change or drop a write: %s", name, r.before)
	}
	if r.after != "" {
		e.d.bad(Warning, "G14", fmt.Sprintf("DROP TRIGGER … ON %s, unless it is known to be harmless", name), "%s has triggers that are not ours: %s", name, r.after)
	}
	if r.rules != "" {
		e.d.bad(Error, "G14", fmt.Sprintf("DROP RULE … ON %s", name), "%s has rules that change what a statement does: %s", name, r.rules)
	}
}

// version compares the schema with what this package knows.
func (e *examination) version(ctx context.Context) error {
	v, readable, err := installedVersion(ctx, e.conn, e.schema)
	quoted := pgx.Identifier{e.schema}.Sanitize()
	switch {
	case err != nil:
		return err
	case !readable:
		e.d.bad(Error, "G14", fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT ON %[1]s.%[3]s TO %[2]s", quoted, e.role, migrationsTable), "the role may not read which version the schema has")
	case v < SchemaVersion:
		e.d.bad(Error, "G14", migrateRemedy, "the schema is at version %d, and this program needs %d", v, SchemaVersion)
	case v > SchemaVersion:
		e.d.bad(Error, "G14", "use a newer program", "the schema is at version %d, and this program knows versions up to %d", v, SchemaVersion)
	default:
		e.d.ok("G14", "the schema is at version %d", v)
	}
	return nil
}

// installedVersion is the version of the tables: 0 when there are none, and not
// readable when the role may not look.
func installedVersion(ctx context.Context, conn *pgx.Conn, schema string) (version int64, readable bool, err error) {
	var there, may bool
	err = conn.QueryRow(ctx, `
		SELECT count(*) > 0, coalesce(bool_and(has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')), true)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind = 'r'`, exec, schema, migrationsTable).Scan(&there, &may)
	if err != nil || !there || !may {
		return 0, may, err
	}
	err = conn.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+pgx.Identifier{schema, migrationsTable}.Sanitize(), exec).Scan(&version)
	return version, true, err
}

// rights: a node should be able to do its work and no more (G16).
func (e *examination) rights(ctx context.Context) error {
	found, err := e.relations(ctx)
	if err != nil || len(found) == 0 {
		return err
	}
	var lacks, owned, truncates []string
	for _, r := range found {
		name := pgx.Identifier{e.schema, r.name}.Sanitize()
		if r.lacks != "" {
			lacks = append(lacks, fmt.Sprintf("%s on %s", r.lacks, name))
		}
		if r.name != r.top {
			continue // days are made and dropped by whoever sweeps
		}
		if r.owned {
			owned = append(owned, r.name)
		} else if r.truncates {
			truncates = append(truncates, r.name)
		}
	}
	if len(lacks) > 0 {
		e.d.bad(Error, "G16", grants(e.schema, e.role), "the role %s lacks %s", e.role, strings.Join(lacks, "; "))
	}
	switch {
	case e.superuser:
		e.d.bad(Warning, "G16", "connect as a role of its own: CREATE ROLE counterfoil LOGIN; "+grants(e.schema, "counterfoil"), "the role %s is a superuser: it may do anything to the records, and to everything else", e.role)
	case len(owned) > 0:
		e.d.bad(Warning, "G16", "run store migrate as another role, connect as one of its own: CREATE ROLE counterfoil LOGIN; "+grants(e.schema, "counterfoil"), "the role %s owns %s, so it may drop them", e.role, strings.Join(owned, ", "))
	case len(truncates) > 0:
		e.d.bad(Warning, "G16", fmt.Sprintf("REVOKE TRUNCATE ON ALL TABLES IN SCHEMA %s FROM %s", pgx.Identifier{e.schema}.Sanitize(), e.role), "the role %s may empty %s", e.role, strings.Join(truncates, ", "))
	}
	e.d.fine("G16", "the role %s may do its work and no more", e.role)
	return nil
}

// grants are what a node's role needs.
func grants(schema, role string) string {
	quoted := pgx.Identifier{schema}.Sanitize()
	var b strings.Builder
	fmt.Fprintf(&b, "GRANT USAGE ON SCHEMA %s TO %s", quoted, role)
	for _, t := range tables {
		fmt.Fprintf(&b, "; GRANT %s ON %s.%s TO %s", t.rights, quoted, t.name, role)
	}
	return b.String()
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
