package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/counterfoil/counterfoil"
)

// Meta implements [counterfoil.Store].
func (s *Store) Meta(ctx context.Context, name string) (counterfoil.Meta, error) {
	m, err := s.meta(ctx, name)
	if err != nil {
		return counterfoil.Meta{}, fmt.Errorf("pgstore: meta %q: %w", name, err)
	}
	return m, nil
}

func (s *Store) meta(ctx context.Context, name string) (m counterfoil.Meta, err error) {
	if s.closed.Load() {
		return m, errClosed
	}
	var rev int64
	if name != counterfoil.MetaForgotten {
		err := s.pool.QueryRow(ctx, "SELECT rev, value FROM "+s.schema+".counterfoil_meta WHERE name = $1", name).Scan(&rev, &m.Value)
		m.Rev = uint64(rev)
		return m, s.metaError(err)
	}
	// F is a row an operation, so that claims can compare with it.
	rows, err := s.pool.Query(ctx, "SELECT m.rev, f.operation, f.through FROM "+s.schema+".counterfoil_meta m LEFT JOIN "+
		s.schema+".counterfoil_forgotten f ON true WHERE m.name = $1", name)
	if err != nil {
		return m, s.metaError(err)
	}
	f := counterfoil.Forgotten{}
	found := false
	var op *int64
	var through *time.Time
	_, err = pgx.ForEachRow(rows, []any{&rev, &op, &through}, func() error {
		found = true
		if op != nil && through != nil {
			f.Raise(counterfoil.OperationNumber(*op), *through)
		}
		return nil
	})
	if err != nil {
		return m, s.metaError(err)
	}
	if !found {
		return m, counterfoil.ErrNotFound
	}
	return counterfoil.Meta{Rev: uint64(rev), Value: f.Encode()}, nil
}

func (s *Store) metaError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return counterfoil.ErrNotFound
	}
	return s.explain(err)
}

// SetMeta implements [counterfoil.Store]. What is written to MetaForgotten is
// joined with what stands there: F only grows.
func (s *Store) SetMeta(ctx context.Context, name string, ifRev uint64, value []byte) (uint64, error) {
	rev, err := s.setMeta(ctx, name, ifRev, value)
	if err != nil {
		return 0, fmt.Errorf("pgstore: set meta %q: %w", name, err)
	}
	return rev, nil
}

func (s *Store) setMeta(ctx context.Context, name string, ifRev uint64, value []byte) (uint64, error) {
	if s.closed.Load() {
		return 0, errClosed
	}
	var f counterfoil.Forgotten
	if name == counterfoil.MetaForgotten {
		var err error
		if f, err = counterfoil.DecodeForgotten(value); err != nil {
			return 0, err
		}
	}
	if value == nil {
		value = []byte{}
	}
	// Like every durable call it is not cancelled with its caller.
	call := context.WithoutCancel(ctx)
	err := s.inCommit(ctx, func(tx pgx.Tx) error {
		var tag pgconn.CommandTag
		var err error
		kept := value
		if f != nil {
			kept = []byte{}
		}
		if ifRev == 0 {
			tag, err = tx.Exec(call, "INSERT INTO "+s.schema+".counterfoil_meta (name, rev, value) VALUES ($1, 1, $2) ON CONFLICT (name) DO NOTHING", name, kept)
		} else {
			tag, err = tx.Exec(call, "UPDATE "+s.schema+".counterfoil_meta SET rev = rev + 1, value = $2 WHERE name = $1 AND rev = $3", name, kept, int64(ifRev))
		}
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return counterfoil.ErrConflict
		}
		for op, t := range f {
			_, err := tx.Exec(call, "INSERT INTO "+s.schema+".counterfoil_forgotten AS f (operation, through) VALUES ($1, $2) "+
				"ON CONFLICT (operation) DO UPDATE SET through = excluded.through WHERE f.through < excluded.through", int64(op), t)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, counterfoil.ErrConflict) {
		return 0, err
	}
	if err != nil {
		// Unclear, perhaps: what stands tells.
		if m, rerr := s.meta(ctx, name); rerr == nil && f == nil && m.Rev == ifRev+1 && bytes.Equal(m.Value, value) {
			return m.Rev, nil
		}
		return 0, s.explain(err)
	}
	return ifRev + 1, nil
}

// inCommit runs do in a transaction whose commit waits for disk and standbys.
func (s *Store) inCommit(ctx context.Context, do func(pgx.Tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	call := context.WithoutCancel(ctx)
	before := warnings(conn).Load()
	tx, err := conn.BeginTx(call, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return err
	}
	_, err = tx.Exec(call, "SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)")
	if err == nil {
		err = do(tx)
	}
	if err != nil {
		return errors.Join(err, ignoreClosed(tx.Rollback(call)))
	}
	if err := tx.Commit(call); err != nil {
		return err
	}
	if warnings(conn).Load() != before {
		return errors.New("the server committed with a warning")
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return nil
	}
	return err
}
