package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The SQLSTATEs that are explained.
const (
	insufficientPrivilege = "42501"
	lockNotAvailable      = "55P03"
	readOnlyTransaction   = "25006"
)

// connect reaches a server that takes writes.
func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err) // pgx leaves the password out
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w: %w", counterfoil.ErrUnavailable, err)
	}
	var standby, readOnly bool
	err = conn.QueryRow(ctx, "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::boolean",
		pgx.QueryExecModeSimpleProtocol).Scan(&standby, &readOnly)
	switch {
	case err != nil:
		err = fmt.Errorf("migrate: %w: %w", counterfoil.ErrUnavailable, err)
	case standby:
		err = fmt.Errorf("migrate: %w: %s is a standby; name the primary, or add target_session_attrs=read-write to the connection string", pgstore.ErrReadOnly, cfg.Host)
	case readOnly:
		err = fmt.Errorf("migrate: %w by default; write ALTER ROLE %s SET default_transaction_read_only = off", pgstore.ErrReadOnly, pgx.Identifier{cfg.User}.Sanitize())
	}
	if err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// closeConn says goodbye; nothing depends on whether that is heard.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// direct refuses a connection that goes through a pooler. A pooler makes up the
// process id that it greets its clients with, since it has many servers' to
// offer.
func direct(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return fmt.Errorf("migrate: %w: %w", counterfoil.ErrUnavailable, err)
	}
	if greeted := conn.PgConn().PID(); greeted != pid {
		cfg := conn.Config()
		return fmt.Errorf("migrate: %s:%d is a pooler (it calls itself process %d, the server is process %d), through which the migration's lock does not hold; give the address of the server itself, or run the SQL by hand",
			cfg.Host, cfg.Port, greeted, pid)
	}
	return nil
}

// explain adds what to do about an error of the server's.
func explain(ctx context.Context, conn *pgx.Conn, o Options, err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case insufficientPrivilege:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if remedy := lacking(ctx, conn, o); remedy != "" {
			return fmt.Errorf("%w; %s", err, remedy)
		}
		return fmt.Errorf("%w; run the migration as the owner of the database", err)
	case lockNotAvailable:
		return fmt.Errorf("%w; another transaction holds the table for long: nothing was changed, try again when it has ended", err)
	case readOnlyTransaction:
		return fmt.Errorf("%w: %w", pgstore.ErrReadOnly, err)
	}
	return err
}

// lacking says which privilege the role of a connection lacks, and who gives it
// how; empty when nothing is seen to be lacking.
func lacking(ctx context.Context, conn *pgx.Conn, o Options) string {
	var user, database, owner string
	var there, mayCreate, mayUse bool
	err := conn.QueryRow(ctx, fmt.Sprintf(`
		SELECT quote_ident(current_user), quote_ident(current_database()), n.oid IS NOT NULL,
			CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')
				ELSE has_schema_privilege(n.oid, 'CREATE') END,
			CASE WHEN n.oid IS NULL THEN true ELSE has_schema_privilege(n.oid, 'USAGE') END,
			coalesce((SELECT min(quote_ident(pg_get_userbyid(c.relowner))) FROM pg_class c
				WHERE c.relnamespace = n.oid AND c.relname LIKE 'counterfoil\_%%' AND c.relkind IN ('r', 'p')
				AND NOT pg_has_role(c.relowner, 'USAGE')), '')
		FROM (SELECT) one LEFT JOIN pg_namespace n ON n.nspname = '%s'`, o.Schema),
		pgx.QueryExecModeSimpleProtocol).Scan(&user, &database, &there, &mayCreate, &mayUse, &owner)
	switch schema := o.schema(); {
	case err != nil:
		return ""
	case !there && !mayCreate:
		return fmt.Sprintf("the role %s lacks CREATE on the database: write CREATE SCHEMA %s AUTHORIZATION %[1]s; or GRANT CREATE ON DATABASE %[3]s TO %[1]s", user, schema, database)
	case !mayUse || !mayCreate:
		return fmt.Sprintf("the role %s lacks USAGE or CREATE on the schema: write GRANT USAGE, CREATE ON SCHEMA %s TO %[1]s", user, schema)
	case owner != "":
		return fmt.Sprintf("the tables belong to %s: run the migration as %[1]s, or write GRANT %[1]s TO %s", owner, user)
	}
	return ""
}
