package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil"
)

// metaValue is a meta value in memory, all of which are.
type metaValue struct {
	counterfoil.Meta
	commit *commit
}

// Meta implements [counterfoil.Store].
func (s *Store) Meta(ctx context.Context, name string) (counterfoil.Meta, error) {
	err := s.enter(ctx)
	if err == nil {
		defer s.leave()
		s.mu.RLock()
		m, ok := s.meta[name]
		s.mu.RUnlock()
		if !ok {
			err = counterfoil.ErrNotFound
		} else if err = s.await(ctx, m.commit); err == nil {
			m.Value = bytes.Clone(m.Value)
			return m.Meta, nil
		}
	}
	return counterfoil.Meta{}, fmt.Errorf("pebblestore: meta %q: %w", name, err)
}

// SetMeta implements [counterfoil.Store]. What is written to MetaForgotten is
// joined with what stands there: the later instant of each operation is kept,
// so a writer can raise F and never lower it. ErrUnreadable when it is not an
// encoded [counterfoil.Forgotten]; nothing is written then.
func (s *Store) SetMeta(ctx context.Context, name string, ifRev uint64, value []byte) (uint64, error) {
	o := ops.Get().(*op)
	o.kind, o.name, o.ifRev, o.value = opMeta, name, ifRev, bytes.Clone(value)
	err := s.do(ctx, o)
	if err == nil {
		err = o.err
	}
	if err != nil {
		return 0, fmt.Errorf("pebblestore: set meta %q: %w", name, err)
	}
	rev := o.rev
	o.recycle()
	return rev, nil
}

func (w *writer) setMeta(o *op) {
	rev := w.meta[o.name].Rev
	if rev != o.ifRev {
		o.err = counterfoil.ErrConflict
		return
	}
	if o.err = w.refuses(false); o.err != nil {
		return
	}
	o.rev = rev + 1
	if o.name == counterfoil.MetaForgotten {
		f, err := counterfoil.DecodeForgotten(o.value)
		if err != nil {
			o.err = err
			return
		}
		w.mu.Lock()
		for op, t := range f {
			w.forgotten.Raise(op, t)
		}
		w.mu.Unlock()
		w.putForgotten()
		return
	}
	w.putMeta(o.name, o.value)
}

// putMeta writes the next content of a meta value.
func (w *writer) putMeta(name string, value []byte) {
	w.mu.Lock()
	m := metaValue{counterfoil.Meta{Rev: w.meta[name].Rev + 1, Value: value}, w.batch.commit}
	w.meta[name] = m
	w.mu.Unlock()
	w.scratch = append(binary.AppendUvarint(w.scratch[:0], m.Rev), m.Value...)
	w.rows.Set(metaKey(name), w.scratch, nil)
}

// putForgotten writes F.
func (w *writer) putForgotten() {
	w.putMeta(counterfoil.MetaForgotten, w.forgotten.Encode())
}

// forgottenThrough is F of an operation and its kin, for Create. When F cannot
// be read nothing is known to be new.
func (w *writer) forgottenThrough(op counterfoil.OperationNumber, kin []counterfoil.OperationNumber) time.Time {
	if w.forgottenBad != nil {
		return w.now
	}
	f := w.forgotten[op]
	for _, k := range kin {
		if w.forgotten[k].After(f) {
			f = w.forgotten[k]
		}
	}
	if w.ledger.floor.After(f) {
		f = w.ledger.floor
	}
	return f
}

func decodeMeta(b []byte) (counterfoil.Meta, error) {
	rev, n := binary.Uvarint(b)
	if n <= 0 {
		return counterfoil.Meta{}, fmt.Errorf("%w: meta value", counterfoil.ErrUnreadable)
	}
	return counterfoil.Meta{Rev: rev, Value: bytes.Clone(b[n:])}, nil
}
