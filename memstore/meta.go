package memstore

import (
	"bytes"
	"context"
	"fmt"

	"github.com/counterfoil/counterfoil"
)

// Meta implements [counterfoil.Store].
func (s *Store) Meta(ctx context.Context, name string) (counterfoil.Meta, error) {
	if err := s.enter(ctx); err != nil {
		return counterfoil.Meta{}, fmt.Errorf("memstore: meta %q: %w", name, err)
	}
	defer s.mu.Unlock()
	m, ok := s.meta[name]
	if !ok {
		return counterfoil.Meta{}, fmt.Errorf("memstore: meta %q: %w", name, counterfoil.ErrNotFound)
	}
	m.Value = bytes.Clone(m.Value)
	return m, nil
}

// SetMeta implements [counterfoil.Store]. What is written to MetaForgotten is
// joined with what stands there: the later instant of each operation is kept,
// so a writer can raise F and never lower it. ErrUnreadable when it is not an
// encoded [counterfoil.Forgotten]; nothing is written then.
func (s *Store) SetMeta(ctx context.Context, name string, ifRev uint64, value []byte) (uint64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, fmt.Errorf("memstore: set meta %q: %w", name, err)
	}
	defer s.mu.Unlock()
	rev := s.meta[name].Rev
	if rev != ifRev {
		return 0, fmt.Errorf("memstore: set meta %q: %w", name, counterfoil.ErrConflict)
	}
	if name == counterfoil.MetaForgotten {
		f, err := counterfoil.DecodeForgotten(value)
		if err != nil {
			return 0, fmt.Errorf("memstore: set meta %q: %w", name, err)
		}
		for op, t := range f {
			s.forgotten.Raise(op, t)
		}
		s.writeForgotten()
		return rev + 1, nil
	}
	s.meta[name] = counterfoil.Meta{Rev: rev + 1, Value: bytes.Clone(value)}
	return rev + 1, nil
}

// writeForgotten puts F where Meta finds it.
func (s *Store) writeForgotten() {
	rev := s.meta[counterfoil.MetaForgotten].Rev
	s.meta[counterfoil.MetaForgotten] = counterfoil.Meta{Rev: rev + 1, Value: s.forgotten.Encode()}
}
