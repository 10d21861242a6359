package pebblestore

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/counterfoil/counterfoil"
)

// reserve finds room for the responses of the batch and begins to write them,
// before anything depends on where they are.
func (w *writer) reserve() {
	for _, o := range w.batch.ops {
		if !o.attach {
			continue
		}
		if o.err = w.space.refuses(false); o.err != nil {
			continue
		}
		until := o.rec.ReplayUntil
		if d, set := o.stamps.ReplayUntil.Get(); set {
			until = w.now.Add(d + time.Millisecond) // records round up
		}
		o.at, o.err = w.shelf.reserve(w.ledger, &o.id, o.response, w.now, until)
		if o.err != nil {
			o.err = fmt.Errorf("%w: response: %w", counterfoil.ErrUnavailable, o.err)
		}
	}
	dirty := w.shelf.flush()
	if len(dirty) == 0 {
		return
	}
	b := w.batch // not the one under way by the time a sync fails
	for _, g := range dirty {
		if g.broken != nil {
			w.failResponses(g)
			continue
		}
		b.responses.Go(func() {
			if err := g.file.SyncData(); err != nil {
				b.syncFailed(fmt.Errorf("sync of segment %d: %w", g.number, err))
			}
		})
	}
	if w.shelf.dirSync {
		w.shelf.dirSync = false
		b.responses.Go(func() {
			if err := w.shelf.root.Sync(); err != nil {
				b.syncFailed(fmt.Errorf("sync of the responses' directory: %w", err))
			}
		})
	}
}

// failResponses fails the ops whose responses could not be written to g.
func (w *writer) failResponses(g *segment) {
	for _, o := range w.batch.ops {
		if o.attach && o.at.segment == g.number && o.err == nil {
			o.err = fmt.Errorf("%w: response: %w", counterfoil.ErrUnavailable, g.broken)
		}
	}
}

func (w *writer) create(o *op) {
	if cur := w.lookup(o.id); cur != nil {
		o.found, o.err = cur, cur.bad
		// A zero token is nobody's: tombstones have it too.
		o.created = !o.rec.Token.IsZero() && cur.rec.Token == o.rec.Token
		return
	}
	if f := w.forgottenThrough(o.rec.Operation, o.kin); !o.born.IsZero() && !f.IsZero() && !o.born.After(f) {
		o.forgot = f
		return
	}
	if o.maxOpen > 0 && o.rec.State.Open() && w.quota[o.rec.Principal] >= o.maxOpen {
		o.over = true
		return
	}
	o.stamps.Apply(o.rec, w.now)
	o.rec.Rev, o.rec.HasResponse = 1, false
	if o.err = o.rec.Check(); o.err != nil {
		return
	}
	if o.err = w.refuses(true); o.err != nil {
		return
	}
	o.found, o.created = &row{rec: o.rec}, true
	w.put(nil, o.found)
}

func (w *writer) update(o *op) {
	cur := w.lookup(o.id)
	switch {
	case cur == nil:
		o.err = counterfoil.ErrNotFound
	case cur.bad != nil:
		o.err = cur.bad
	case cur.rec.Token != o.ifToken:
		o.err = counterfoil.ErrFenced
	case cur.rec.Rev != o.ifRev:
		o.err = counterfoil.ErrConflict
	}
	if o.err != nil {
		return
	}
	opens := o.rec.State.Open() && !cur.rec.State.Open()
	if opens && o.maxOpen > 0 && w.quota[o.rec.Principal] >= o.maxOpen {
		o.err = counterfoil.ErrOverQuota
		return
	}
	o.stamps.Apply(o.rec, w.now)
	if o.err = o.rec.Check(); o.err != nil {
		return
	}
	if o.err = w.refuses(opens); o.err != nil {
		return
	}
	next := &row{rec: o.rec}
	switch {
	case o.attach:
		next.ref = o.at
	case o.rec.HasResponse && cur.ref.segment != 0:
		next.ref = cur.ref
		w.shelf.raise(cur.ref, o.rec.ReplayUntil)
	}
	o.rec.Rev, o.rec.HasResponse = cur.rec.Rev+1, next.ref.segment != 0
	o.found = next
	w.put(cur, next)
}

// lookup is the current content of a record, nil when there is none.
func (w *writer) lookup(id counterfoil.ID) *row {
	// No lock: only this goroutine writes the maps.
	if r := w.open[id]; r != nil {
		return r
	}
	if r := w.settled[id]; r != nil {
		return r
	}
	recent := w.recent.has(id)
	it := &w.iter
	if recent {
		it = &w.full
	}
	if *it == nil {
		var err error
		if *it, err = w.newSettledIter(!recent); err != nil {
			return &row{rec: &counterfoil.Record{ID: id}, bad: fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)}
		}
	}
	return seek(*it, id)
}

// seek is the settled row of id, nil when there is none.
func seek(it *pebble.Iterator, id counterfoil.ID) *row {
	key := settledKey(id)
	if !it.SeekPrefixGE(key[:]) {
		if err := it.Error(); err != nil {
			return &row{rec: &counterfoil.Record{ID: id}, bad: fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)}
		}
		return nil
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return &row{rec: &counterfoil.Record{ID: id}, bad: fmt.Errorf("%w: %w", counterfoil.ErrUnavailable, err)}
	}
	return decodeRow(id, value)
}

func (w *writer) closeIter() {
	for _, it := range []**pebble.Iterator{&w.iter, &w.full} {
		if *it != nil {
			(*it).Close()
			*it = nil
		}
	}
}
