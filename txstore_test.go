package counterfoil_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// txStore gives a memory store transactions, as a database would: what a
// transaction writes holds its ID, others get ErrBusy for it and read what is
// committed, until it is committed or rolled back.
type txStore struct {
	counterfoil.Store // what is committed

	mu   sync.Mutex // guards what follows, and every transaction
	held map[counterfoil.ID]*tx
	// busyReads: what only reads a held record is answered ErrBusy too, as a
	// store may.
	busyReads bool
	// refused is how many writes were answered ErrBusy.
	refused int
}

// tx is one transaction, itself a Store bound to it.
type tx struct {
	*txStore
	rows map[counterfoil.ID][]row // what was written, in order
	over bool
}

type row struct {
	rec      counterfoil.Record
	response []byte
}

func (s *txStore) begin() *tx { return &tx{txStore: s, rows: map[counterfoil.ID][]row{}} }

// hold takes id for t, nil standing for a call outside of transactions.
func (s *txStore) hold(id counterfoil.ID, t *tx) error {
	if h := s.held[id]; h != nil && h != t {
		s.refused++
		return counterfoil.ErrBusy
	}
	if t != nil {
		if s.held == nil {
			s.held = map[counterfoil.ID]*tx{}
		}
		s.held[id] = t
	}
	return nil
}

// unread reports that t cannot tell whether there is a record with id: another
// transaction inserts it, or reads wait for that.
func (s *txStore) unread(ctx context.Context, id counterfoil.ID, t *tx) bool {
	if h := s.held[id]; h == nil || h == t {
		return false
	}
	_, err := s.Store.Get(ctx, id)
	return err != nil || s.busyReads
}

func (s *txStore) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

func (s *txStore) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread(ctx, d.Record.ID, nil) {
		return counterfoil.Standing{}, counterfoil.ErrBusy
	}
	return s.Store.Create(ctx, d)
}

func (s *txStore) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.hold(w.Record.ID, nil); err != nil {
		return counterfoil.Snapshot{}, err
	}
	return s.Store.Update(ctx, w)
}

func (s *txStore) Get(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busyReads && s.held[id] != nil {
		return counterfoil.Snapshot{}, counterfoil.ErrBusy
	}
	return s.Store.Get(ctx, id)
}

// last is what t sees of id.
func (t *tx) last(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return counterfoil.Snapshot{}, err
	}
	if t.over {
		return counterfoil.Snapshot{}, counterfoil.ErrClosed
	}
	if rows := t.rows[id]; len(rows) > 0 {
		return counterfoil.Snapshot{Record: rows[len(rows)-1].rec.Clone(), AsOf: time.Now().UTC()}, nil
	}
	return t.Store.Get(ctx, id)
}

func (t *tx) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unread(ctx, d.Record.ID, t) {
		return counterfoil.Standing{}, counterfoil.ErrBusy
	}
	snap, err := t.last(ctx, d.Record.ID)
	if err == nil {
		return counterfoil.Standing{Snapshot: snap, Created: snap.Record.Token == d.Record.Token && !snap.Record.Token.IsZero()}, nil
	}
	if counterfoil.Code(err) != "not-found" {
		return counterfoil.Standing{}, err
	}
	f := counterfoil.Forgotten{}
	if m, err := t.Store.Meta(ctx, counterfoil.MetaForgotten); err == nil {
		if f, err = counterfoil.DecodeForgotten(m.Value); err != nil {
			return counterfoil.Standing{}, err
		}
	}
	if at := d.KeptOut(f); !at.IsZero() {
		return counterfoil.Standing{Forgotten: at}, nil
	}
	if t.full(ctx, &d.Record, d.MaxOpen) {
		return counterfoil.Standing{OverQuota: true}, nil
	}
	snap, err = t.put(counterfoil.Write{Record: d.Record, Stamps: d.Stamps})
	return counterfoil.Standing{Snapshot: snap, Created: err == nil}, err
}

// full reports that the principal has max open records that are committed.
func (t *tx) full(ctx context.Context, r *counterfoil.Record, max int) bool {
	if max == 0 {
		return false
	}
	open := 0
	all, _ := t.Store.Scan(ctx, counterfoil.Query{Principal: r.Principal})
	for _, r := range all.Records {
		if r.State.Open() {
			open++
		}
	}
	return open >= max
}

func (t *tx) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	snap, err := t.last(ctx, w.Record.ID)
	if err != nil {
		return counterfoil.Snapshot{}, err
	}
	switch err = t.hold(w.Record.ID, t); {
	case err != nil:
		return counterfoil.Snapshot{}, err
	case !snap.Record.State.Open() && t.full(ctx, &w.Record, w.MaxOpen):
		return counterfoil.Snapshot{}, counterfoil.ErrOverQuota
	case snap.Record.Token != w.IfToken:
		return counterfoil.Snapshot{}, counterfoil.ErrFenced
	case snap.Record.Rev != w.IfRev:
		return counterfoil.Snapshot{}, counterfoil.ErrConflict
	}
	return t.put(*w)
}

// put keeps a write that is allowed, stamped.
func (t *tx) put(w counterfoil.Write) (counterfoil.Snapshot, error) {
	now := time.Now().UTC()
	rec := w.Record.Clone()
	w.Stamps.Apply(&rec, now)
	rec.Rev = w.IfRev + 1
	if err := rec.Check(); err != nil {
		return counterfoil.Snapshot{}, err
	}
	if err := t.hold(rec.ID, t); err != nil {
		return counterfoil.Snapshot{}, err
	}
	t.rows[rec.ID] = append(t.rows[rec.ID], row{rec, w.Response})
	return counterfoil.Snapshot{Record: rec.Clone(), AsOf: now}, nil
}

func (t *tx) Get(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last(ctx, id)
}

func (t *tx) Response(ctx context.Context, id counterfoil.ID, rev uint64) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := t.rows[id]
	for i := len(rows) - 1; i >= 0; i-- {
		switch {
		case rows[i].rec.Rev != rev && i == len(rows)-1:
			return nil, counterfoil.ErrConflict
		case rows[i].response != nil:
			return rows[i].response, nil
		}
	}
	return t.Store.Response(ctx, id, rev)
}

// commit makes what t wrote durable, in the order it was written.
func (t *tx) commit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rows := range t.rows {
		for _, r := range rows {
			var err error
			if r.rec.Rev == 1 {
				_, err = t.Store.Create(context.Background(), &counterfoil.Draft{Record: r.rec})
			} else {
				var was counterfoil.Snapshot
				if was, err = t.Store.Get(context.Background(), r.rec.ID); err == nil {
					_, err = t.Store.Update(context.Background(), &counterfoil.Write{
						Record: r.rec, IfRev: r.rec.Rev - 1, IfToken: was.Record.Token, Response: r.response,
					})
				}
			}
			if err != nil {
				panic("what a transaction holds was written by somebody else: " + err.Error())
			}
		}
	}
	t.end()
}

// rollback leaves no trace of t; it does nothing after commit.
func (t *tx) rollback() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
}

func (t *tx) end() {
	t.over = true
	for id, h := range t.held {
		if h == t {
			delete(t.held, id)
		}
	}
}

// inTxWorld is inWorld over a store with transactions.
func inTxWorld(t *testing.T, f func(t *testing.T, w *world, s *txStore), changes ...func(*policy.Operation)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, policyOf(1, capture(changes...)), counterfoil.Options{})
		s := &txStore{Store: w.store}
		w.faults.Store = s
		f(t, w, s)
	})
}

// reads runs f with a store that reads past open transactions, and with one
// that does not.
func reads(t *testing.T, f func(t *testing.T, w *world, s *txStore), changes ...func(*policy.Operation)) {
	t.Helper()
	for name, busy := range map[string]bool{"reads what is committed": false, "reads are busy": true} {
		t.Run(name, func(t *testing.T) {
			inTxWorld(t, func(t *testing.T, w *world, s *txStore) {
				s.busyReads = busy
				f(t, w, s)
			}, changes...)
		})
	}
}
