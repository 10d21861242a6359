package memstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// Options are the settings of a store; the zero value works.
type Options struct {
	// Clock is the store's clock; nil stands for time.Now. It may go back: the
	// store's own time does not.
	Clock func() time.Time
	// ID is the store's id; it is drawn when empty.
	ID string
}

// Store is a [counterfoil.Store] in memory, safe for concurrent use.
type Store struct {
	clock func() time.Time
	info  counterfoil.Info

	mu     sync.Mutex // guards everything below, and every entry
	closed bool
	last   time.Time // the latest time given out
	byID   map[counterfoil.ID]*entry
	// order holds the entries as they were created; the sequence number of an
	// entry is what cursors hold. Entries that were deleted stay in it until
	// they are half of it.
	order   []*entry
	lastSeq uint64
	gone    int
	open    list // the open records
	// ops and quota are kept exact with every write; see count.
	ops           map[counterfoil.OperationNumber]*counterfoil.OperationStats
	quota         map[counterfoil.PrincipalDigest]int
	responseBytes int64

	meta      map[string]counterfoil.Meta
	forgotten counterfoil.Forgotten // what meta[MetaForgotten] says
}

var _ counterfoil.Store = (*Store)(nil)

// New returns an empty store.
func New(o Options) *Store {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.ID == "" {
		id := counterfoil.NewToken()
		o.ID = hex.EncodeToString(id[:])
	}
	return &Store{
		clock: o.Clock,
		info: counterfoil.Info{
			Kind:          "memory",
			ID:            o.ID,
			Durability:    policy.DurabilityC,
			SingleProcess: true,
		},
		byID:      make(map[counterfoil.ID]*entry),
		ops:       make(map[counterfoil.OperationNumber]*counterfoil.OperationStats),
		quota:     make(map[counterfoil.PrincipalDigest]int),
		meta:      make(map[string]counterfoil.Meta),
		forgotten: counterfoil.Forgotten{},
	}
}

// enter takes the lock, unless the caller has given up or the store is closed.
// A call that got in is never cut short: nothing here waits.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return counterfoil.ErrClosed
	}
	return nil
}

// now is the store's time. It stands still while the clock is behind what it
// said before, so that no lease or horizon is judged twice with two results.
func (s *Store) now() time.Time {
	if t := s.clock().Round(0).UTC(); t.After(s.last) {
		s.last = t
	}
	return s.last
}

// Create implements [counterfoil.Store].
func (s *Store) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	if err := s.enter(ctx); err != nil {
		return counterfoil.Standing{}, fmt.Errorf("memstore: create: %w", err)
	}
	defer s.mu.Unlock()
	var st counterfoil.Standing
	st.AsOf = s.now()
	if e := s.byID[d.Record.ID]; e != nil {
		st.Record = e.record.Clone()
		// A zero token is nobody's: tombstones have it too.
		st.Created = !d.Record.Token.IsZero() && e.record.Token == d.Record.Token
		return st, nil
	}
	if f := d.KeptOut(s.forgotten); !f.IsZero() {
		st.Forgotten = f
		return st, nil
	}
	if d.MaxOpen > 0 && d.Record.State.Open() && s.quota[d.Record.Principal] >= d.MaxOpen {
		st.OverQuota = true
		return st, nil
	}
	e := &entry{record: d.Record.Clone()}
	d.Stamps.Apply(&e.record, st.AsOf)
	e.record.Rev = 1
	e.record.HasResponse = false
	if err := e.record.Check(); err != nil {
		return counterfoil.Standing{}, fmt.Errorf("memstore: create %s: %w", d.Record.ID, err)
	}
	s.insert(e)
	st.Record, st.Created = e.record.Clone(), true
	return st, nil
}

// Update implements [counterfoil.Store].
func (s *Store) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	if err := s.enter(ctx); err != nil {
		return counterfoil.Snapshot{}, fmt.Errorf("memstore: update: %w", err)
	}
	defer s.mu.Unlock()
	now := s.now()
	e := s.byID[w.Record.ID]
	if err := admits(e, w); err != nil {
		return counterfoil.Snapshot{}, fmt.Errorf("memstore: update %s: %w", w.Record.ID, err)
	}
	opens := w.Record.State.Open() && !e.record.State.Open()
	if opens && w.MaxOpen > 0 && s.quota[w.Record.Principal] >= w.MaxOpen {
		return counterfoil.Snapshot{}, fmt.Errorf("memstore: update %s: %w", w.Record.ID, counterfoil.ErrOverQuota)
	}
	next := w.Record.Clone()
	w.Stamps.Apply(&next, now)
	if err := next.Check(); err != nil {
		return counterfoil.Snapshot{}, fmt.Errorf("memstore: update %s: %w", w.Record.ID, err)
	}
	response := e.response
	switch {
	case w.Response != nil:
		response = append(make([]byte, 0, len(w.Response)), w.Response...)
	case !next.HasResponse:
		response = nil
	}
	s.replace(e, next, response)
	return counterfoil.Snapshot{Record: e.record.Clone(), AsOf: now}, nil
}

// admits says whether the write still meets the record it was decided on. The
// token is looked at first: a lost claim is final, a moved rev is not.
func admits(e *entry, w *counterfoil.Write) error {
	switch {
	case e == nil:
		return counterfoil.ErrNotFound
	case e.record.Token != w.IfToken:
		return counterfoil.ErrFenced
	case e.record.Rev != w.IfRev:
		return counterfoil.ErrConflict
	}
	return nil
}

// Get implements [counterfoil.Store].
func (s *Store) Get(ctx context.Context, id counterfoil.ID) (counterfoil.Snapshot, error) {
	if err := s.enter(ctx); err != nil {
		return counterfoil.Snapshot{}, fmt.Errorf("memstore: get: %w", err)
	}
	defer s.mu.Unlock()
	now := s.now()
	e := s.byID[id]
	if e == nil {
		return counterfoil.Snapshot{AsOf: now}, fmt.Errorf("memstore: get %s: %w", id, counterfoil.ErrNotFound)
	}
	return counterfoil.Snapshot{Record: e.record.Clone(), AsOf: now}, nil
}

// Response implements [counterfoil.Store].
func (s *Store) Response(ctx context.Context, id counterfoil.ID, rev uint64) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, fmt.Errorf("memstore: response: %w", err)
	}
	defer s.mu.Unlock()
	e := s.byID[id]
	switch {
	case e == nil:
		return nil, fmt.Errorf("memstore: response of %s: %w", id, counterfoil.ErrNotFound)
	case e.record.Rev != rev:
		return nil, fmt.Errorf("memstore: response of %s: %w", id, counterfoil.ErrConflict)
	case e.response == nil:
		return nil, fmt.Errorf("memstore: response of %s: %w", id, counterfoil.ErrNotFound)
	}
	return append(make([]byte, 0, len(e.response)), e.response...), nil
}

// Info implements [counterfoil.Store].
func (s *Store) Info() counterfoil.Info { return s.info }

// Close forgets everything. Later calls return ErrClosed; a second Close does
// nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.byID, s.order, s.open, s.meta = nil, nil, list{}, nil
	return nil
}
