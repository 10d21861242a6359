package storecopy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/counterfoil/counterfoil"
)

// sum counts records by operation and state and adds up a digest of each, so
// that it comes out the same in any order. It is safe for concurrent use.
type sum struct {
	mu sync.Mutex // guards what follows
	n  int64
	// lanes are the digests of the records, added up as four numbers each.
	lanes [4]uint64
	ops   map[counterfoil.OperationNumber]*counterfoil.OperationStats
}

// add takes in a record with the response that is kept for it, or nil.
func (s *sum) add(r *counterfoil.Record, response []byte) {
	b := append(r.ID[:len(r.ID):len(r.ID)], content(r)...)
	if response != nil {
		d := sha256.Sum256(response)
		b = append(b, d[:]...)
	}
	s.take(r, sha256.Sum256(b))
}

// addStanding takes in a record as it stands, with its rev, by which one tells
// that a response was replaced as well.
func (s *sum) addStanding(r *counterfoil.Record) {
	s.take(r, sha256.Sum256(counterfoil.AppendRecord(r.ID[:len(r.ID):len(r.ID)], r)))
}

func (s *sum) take(r *counterfoil.Record, digest [32]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	for i := range s.lanes {
		s.lanes[i] += binary.BigEndian.Uint64(digest[8*i:])
	}
	o := s.ops[r.Operation]
	if o == nil {
		if s.ops == nil {
			s.ops = make(map[counterfoil.OperationNumber]*counterfoil.OperationStats)
		}
		o = new(counterfoil.OperationStats)
		s.ops[r.Operation] = o
	}
	o.Records[r.State]++
}

// less takes away what is in t.
func (s *sum) less(t *sum) {
	s.n -= t.n
	for i := range s.lanes {
		s.lanes[i] -= t.lanes[i]
	}
	for op, o := range t.ops {
		for state, n := range o.Records {
			s.ops[op].Records[state] -= n
		}
	}
}

// equal reports that both are over the same records.
func (s *sum) equal(t *sum) bool {
	if s.n != t.n || s.lanes != t.lanes {
		return false
	}
	for _, both := range [][2]*sum{{s, t}, {t, s}} {
		for op, o := range both[0].ops {
			other := both[1].ops[op]
			if other == nil && o.Total() != 0 || other != nil && other.Records != o.Records {
				return false
			}
		}
	}
	return true
}

func (s *sum) digest() (b []byte) {
	for _, lane := range s.lanes {
		b = binary.BigEndian.AppendUint64(b, lane)
	}
	return b
}

func (s *sum) operations() map[counterfoil.OperationNumber]counterfoil.OperationStats {
	out := make(map[counterfoil.OperationNumber]counterfoil.OperationStats, len(s.ops))
	for op, o := range s.ops {
		out[op] = *o
	}
	return out
}

// reread sums the source up without copying.
func (r *run) reread(ctx context.Context) error {
	return r.pass(ctx, r.from, PhaseReread, func(ctx context.Context, s *counterfoil.Record) error {
		response, err := r.response(ctx, r.from, s)
		if err == nil {
			r.take(s, response)
		}
		return err
	})
}

// whole refuses a source that holds more than it lists: a scan leaves out what
// it cannot read, and what is not copied would run again.
func (r *run) whole(ctx context.Context) error {
	stats, err := r.from.Stats(ctx)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	if n := totalOf(stats); n > r.records.n {
		return fmt.Errorf("the source: %w: it counts %d records and lists %d, so %d would be forgotten; see its log and counterfoil doctor, or use the version of Counterfoil that wrote them",
			counterfoil.ErrUnreadable, n, r.records.n, n-r.records.n)
	}
	return nil
}

// verify compares the target with the sum over the source, and makes sure that
// the source is still what it was.
func (r *run) verify(ctx context.Context) error {
	if err := r.unchanged(ctx); err != nil {
		return err
	}
	if err := r.whole(ctx); err != nil {
		return err
	}
	var got sum
	err := r.pass(ctx, r.to, PhaseVerify, func(ctx context.Context, t *counterfoil.Record) error {
		response, err := r.response(ctx, r.to, t)
		if err != nil {
			return err
		}
		got.add(t, response)
		return nil
	})
	if err != nil {
		return err
	}
	if !got.equal(&r.records) {
		left, err := r.search(ctx)
		if err != nil {
			return err
		}
		if r.rep.Refused > 0 {
			return fmt.Errorf("%w: %d records are not the same, the first is %s: %s; stop whatever uses the target and copy again, into an empty store where the target has records of its own",
				ErrDiffers, r.rep.Refused, r.rep.Differences[0].ID, r.rep.Differences[0].What)
		}
		got.less(left)
		if !got.equal(&r.records) {
			return fmt.Errorf("%w by their counts or digests, and no record by record: one of the two is in use; stop what uses it and run again", ErrDiffers)
		}
		r.rep.LeftOver = left.n
	}
	r.rep.Verified = true
	return nil
}

// unchanged reads the source again.
func (r *run) unchanged(ctx context.Context) error {
	var now sum
	err := r.pass(ctx, r.from, PhaseReread, func(_ context.Context, s *counterfoil.Record) error {
		now.addStanding(s)
		return nil
	})
	if err != nil {
		return err
	}
	changed := !now.equal(&r.revs)
	for name, was := range map[string]counterfoil.Meta{
		counterfoil.MetaCharter: r.source.charter, counterfoil.MetaForgotten: r.source.forgotten, counterfoil.MetaTrust: r.source.trust,
	} {
		m, err := meta(ctx, r.from, name)
		if err != nil {
			return fmt.Errorf("the source: %w", err)
		}
		changed = changed || m.Rev != was.Rev
	}
	if changed {
		return fmt.Errorf("%w: stop the serve that uses it, and run again", ErrSourceChanged)
	}
	return nil
}

// search goes through both stores for the records in which they differ, and
// returns the sum of those that the source may have let go.
func (r *run) search(ctx context.Context) (left *sum, err error) {
	left = new(sum)
	err = r.pass(ctx, r.to, PhaseSearch, func(ctx context.Context, t *counterfoil.Record) error {
		have, err := r.response(ctx, r.to, t)
		if err != nil {
			return err
		}
		snap, err := r.from.Get(ctx, t.ID)
		switch {
		case errors.Is(err, counterfoil.ErrNotFound) && letGo(t, r.cut):
			left.add(t, have)
			return nil
		case errors.Is(err, counterfoil.ErrNotFound):
			r.refuse(t.ID, "the source does not have it")
			return nil
		case err != nil:
			return err
		case !sameContent(&snap.Record, t):
			r.refuse(t.ID, describe(&snap.Record, t))
			return nil
		}
		want, err := r.response(ctx, r.from, &snap.Record)
		if err == nil && ((want == nil) != (have == nil) || string(want) != string(have)) {
			r.refuse(t.ID, "their responses differ")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = r.pass(ctx, r.from, PhaseSearch, func(ctx context.Context, s *counterfoil.Record) error {
		_, err := r.to.Get(ctx, s.ID)
		if errors.Is(err, counterfoil.ErrNotFound) {
			r.refuse(s.ID, "the target does not have it")
			return nil
		}
		return err
	})
	return left, err
}
