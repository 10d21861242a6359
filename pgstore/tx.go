package pgstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil"
)

// TxStore is the store inside one transaction of the caller's, for
// [counterfoil.Engine.InTx] and [counterfoil.Claim.CompleteIn]: Create, Update,
// Get and Response run in the transaction and vanish with it. The other methods
// are those of the store, on connections of its own.
//
// Each call has a savepoint of its own, so that a duplicate leaves the
// transaction usable, and lets go of every lock it took in vain. Nothing waits:
// what another transaction holds is [counterfoil.ErrBusy]. At REPEATABLE READ
// and SERIALIZABLE a call may end in a serialization failure (SQLSTATE 40001):
// run the whole transaction again.
//
// With synchronous standbys an answer that was only read is not yet proved to
// be on them: show it when the transaction has been committed, whose commit
// waits for that too.
//
// It is no safer for concurrent use than the transaction.
type TxStore struct {
	*Store
	run runner
}

// runner does statements in a transaction of some driver.
type runner interface {
	// exec runs statements without parameters.
	exec(ctx context.Context, sql string) error
	// step does one step.
	step(ctx context.Context, s *step) (answer, error)
}

// InTx binds the store to a transaction of pgx. Begin it on the database in
// which the tables are.
func (s *Store) InTx(tx pgx.Tx) *TxStore { return &TxStore{s, &pgxRunner{s, tx}} }

// InSQLTx binds the store to a transaction of database/sql, of any driver for
// PostgreSQL that takes $1 for a parameter.
func (s *Store) InSQLTx(tx *sql.Tx) *TxStore { return &TxStore{s, &sqlRunner{s, tx}} }

// Create implements [counterfoil.Store]. A record that stands is standing even
// if it carries the draft's own token: it was committed before.
func (t *TxStore) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	st, err := newCreate(d)
	var out counterfoil.Standing
	if err == nil {
		var a answer
		if a, err = t.do(ctx, st); err == nil {
			out, err = a.standing(d)
			out.Created = a.outcome == done
		}
	}
	if err != nil {
		return counterfoil.Standing{}, fmt.Errorf("pgstore: create %s in a transaction: %w", d.Record.ID, err)
	}
	return out, nil
}

// Update implements [counterfoil.Store].
func (t *TxStore) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	st, err := newUpdate(w)
	var a answer
	if err == nil {
		t.days.want(t.Store, st)
		if a, err = t.do(ctx, st); err == nil {
			err = a.updated()
		}
	}
	if err != nil {
		return counterfoil.Snapshot{}, fmt.Errorf("pgstore: update %s in a transaction: %w", w.Record.ID, err)
	}
	return counterfoil.Snapshot{Record: a.record, AsOf: a.asOf}, nil
}

// Get implements [counterfoil.Store].
func (t *TxStore) Get(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	a, err := t.do(ctx, newGet(id))
	if err == nil {
		err = a.found()
	}
	if err != nil {
		return counterfoil.Snapshot{AsOf: a.asOf}, fmt.Errorf("pgstore: get %s in a transaction: %w", id, err)
	}
	return counterfoil.Snapshot{Record: a.record, AsOf: a.asOf}, nil
}

// Response implements [counterfoil.Store].
func (t *TxStore) Response(ctx context.Context, id counterfoil.ID, rev uint64) ([]byte, error) {
	a, err := t.do(ctx, newResponse(id, rev))
	if err == nil {
		err = a.found()
	}
	if err != nil {
		return nil, fmt.Errorf("pgstore: response of %s in a transaction: %w", id, err)
	}
	return a.response, nil
}

// Close does nothing: the transaction is the caller's.
func (t *TxStore) Close() error { return nil }

const (
	savepoint = "SAVEPOINT counterfoil"
	release   = "RELEASE SAVEPOINT counterfoil"
	// undo gives back what the call took. What it read is fenced by the caller's
	// own commit, for which there must be something to commit (dangers.md G04).
	undo = "ROLLBACK TO SAVEPOINT counterfoil; RELEASE SAVEPOINT counterfoil"
	seal = "SELECT pg_logical_emit_message(true, 'counterfoil', '') WHERE current_setting('synchronous_standby_names') <> ''"
)

// do does the step under a savepoint, which stays only if something was written.
func (t *TxStore) do(ctx context.Context, st *step) (answer, error) {
	if t.closed.Load() {
		return answer{}, errClosed
	}
	if err := t.run.exec(ctx, savepoint); err != nil {
		return answer{}, t.explain(err)
	}
	a, err := t.run.step(ctx, st)
	if err == nil {
		err = a.err
	} else {
		err = t.explain(err)
	}
	if err == nil && a.outcome == done {
		if err := t.run.exec(ctx, release); err != nil {
			return answer{}, t.explain(err)
		}
		return a, nil
	}
	after := undo
	if err == nil && a.outcome == standing {
		after += "; " + seal
	}
	if rerr := t.run.exec(ctx, after); rerr != nil {
		return answer{}, errors.Join(err, t.explain(rerr))
	}
	if a.outcome == again {
		a.outcome = busy // others inserted it meanwhile
	}
	return a, err
}

// pgxRunner speaks to the connection of a pgx transaction itself: one round
// trip, nothing prepared.
type pgxRunner struct {
	s  *Store
	tx pgx.Tx
}

func (r *pgxRunner) exec(ctx context.Context, sql string) error {
	_, err := r.tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
	return err
}

func (r *pgxRunner) step(ctx context.Context, st *step) (answer, error) {
	answers := make([]answer, 1)
	err := r.s.apply.run(ctx, r.tx.Conn().PgConn(), []*step{st}, answers, true)
	return answers[0], err
}

// sqlRunner goes through database/sql: parameters and results are text and
// numbers that every driver knows.
type sqlRunner struct {
	s  *Store
	tx *sql.Tx
}

func (r *sqlRunner) exec(ctx context.Context, sql string) error {
	for one := range strings.SplitSeq(sql, "; ") { // some drivers take one at a time
		if _, err := r.tx.ExecContext(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

func (r *sqlRunner) step(ctx context.Context, st *step) (a answer, err error) {
	params := r.s.apply.parameters([]*step{st})
	args := make([]any, 0, len(params)+1)
	for _, p := range params {
		args = append(args, p.text())
	}
	args = append(args, "true")
	var w row
	var asOf, forgotten sql.NullInt64
	var at [instants]sql.NullInt64
	var rev, operation, state sql.NullInt64
	var names, untils sql.NullString
	into := []any{&a.outcome, &asOf, &forgotten, &rev, &operation, &state, &w.hasResponse, &w.id, &w.principal, &w.token, &w.reference, &w.body, &names, &untils, &a.response}
	for i := range at {
		into = append(into, &at[i])
	}
	if err := r.tx.QueryRowContext(ctx, r.s.apply.textSQL, args...).Scan(into...); err != nil {
		return a, err
	}
	a.asOf, a.forgotten = microTime(asOf), microTime(forgotten)
	if w.id == nil {
		return a, nil
	}
	w.rev, w.operation, w.state = rev.Int64, operation.Int64, int16(state.Int64)
	for i := range at {
		w.at[i] = microTime(at[i])
	}
	if names.Valid {
		var micros []sql.NullInt64
		if err := unmarshalMicros(untils.String, &micros); err != nil {
			return a, err
		}
		if err := json.Unmarshal([]byte(names.String), &w.gates); err != nil || len(w.gates) != len(micros) {
			return a, errShort
		}
		for _, us := range micros {
			w.untils = append(w.untils, microTime(us))
		}
	}
	a.raw = w.body
	a.record, a.err = w.record()
	return a, nil
}

func unmarshalMicros(text string, to *[]sql.NullInt64) error {
	var list []*int64
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return errShort
	}
	for _, us := range list {
		if us == nil {
			*to = append(*to, sql.NullInt64{})
		} else {
			*to = append(*to, sql.NullInt64{Int64: *us, Valid: true})
		}
	}
	return nil
}

func microTime(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return time.UnixMicro(us.Int64).UTC()
}

// textSQL is the call for [sqlRunner]: parameters are the text forms of arrays,
// instants come back in microseconds since 1970.
func textSQL(quoted string) string {
	types := []string{
		"smallint[]", "bytea[]", "bigint[]", "bigint[]", "smallint[]", "smallint[]", "bytea[]", "bigint[]",
		"bytea[]", "bytea[]", "bytea[]", "bigint[]", "bigint[]", "text[]", "text[]", "text[]",
		"smallint[]", "bytea[]", "bigint[]", "bytea[]", "integer[]", "bigint[]", "text[]", "boolean",
	}
	for i, t := range types {
		types[i] = fmt.Sprintf("$%d::text::%s", i+1, t)
	}
	micros := func(of string) string { return "(extract(epoch FROM " + of + ") * 1000000)::bigint" }
	columns := []string{
		"a.outcome", micros("a.as_of"), micros("a.forgotten"), "(a.rec).rev", "(a.rec).operation", "(a.rec).state",
		"(a.rec).response_on IS NOT NULL", "(a.rec).id", "(a.rec).principal", "(a.rec).token", "(a.rec).reference", "(a.rec).body",
		"to_json((a.rec).gate_names)::text",
		"(SELECT json_agg(" + micros("g.until") + " ORDER BY g.place) FROM unnest((a.rec).gate_untils) WITH ORDINALITY AS g (until, place))::text",
		"a.response",
	}
	for _, c := range []string{
		"created_at", "claimed_at", "lease_until", "first_dispatch", "last_dispatch", "quiet_at",
		"settled_at", "replay_until", "horizon", "announced_at", "evidence_at",
	} {
		columns = append(columns, micros("(a.rec)."+c))
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + quoted + ".counterfoil_apply(" + strings.Join(types, ", ") + ") a"
}
