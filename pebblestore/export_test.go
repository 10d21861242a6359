package pebblestore

import (
	"context"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil"
)

// Dir is where the store is.
func Dir(s *Store) string { return s.dir }

// Look makes a round of what the store does every second.
func Look(s *Store) { s.look() }

// Spoil changes the stored record of id into one of an unknown version.
func Spoil(s *Store, id counterfoil.ID) error {
	return s.task(context.Background(), func(w *writer) error {
		if r := w.open[id]; r != nil {
			w.mu.Lock()
			w.open[id] = &row{rec: &counterfoil.Record{ID: id, State: counterfoil.InProgress}, bad: counterfoil.ErrUnreadable, place: r.place}
			w.mu.Unlock()
			key := openKey(r.place)
			return w.rows.Set(key[:], append(id[:], 0, 0xff, 1, 2, 3), nil)
		}
		w.mu.Lock()
		delete(w.settled, id)
		w.mu.Unlock()
		key := settledKey(id)
		w.recent.note(id)
		return w.rows.Set(key[:], []byte{0, 0xff, 1, 2, 3}, nil)
	})
}

// Fill puts in many records at once, past the writer, and compacts them.
func Fill(s *Store, n int, record func(i int) counterfoil.Record) error {
	ctx := context.Background()
	for at := 0; at < n; {
		if err := s.task(ctx, func(w *writer) error {
			for i := 0; i < 20_000 && at < n; i++ {
				rec := record(at)
				key := settledKey(rec.ID)
				w.recent.note(rec.ID)
				w.rows.Set(key[:], appendRow(nil, &row{rec: &rec}), nil)
				w.mu.Lock()
				w.tally(&rec, 1)
				w.mu.Unlock()
				at++
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if err := s.db.Flush(); err != nil {
		return err
	}
	return s.db.Compact(ctx, []byte{kindSettled}, []byte{kindOpen}, false)
}

// DiskBytes is what all tables take.
func DiskBytes(s *Store) uint64 {
	m := s.db.Metrics().Total()
	return uint64(m.TablesSize)
}

// Lookup looks IDs up as the writer does, and one by one with Get.
func Lookup(s *Store, ids []counterfoil.ID) (batched, plain time.Duration) {
	ids = slices.Clone(ids)
	start := time.Now()
	slices.SortFunc(ids, counterfoil.ID.Compare)
	it, err := s.newSettledIter(true)
	if err != nil {
		panic(err)
	}
	for _, id := range ids {
		if seek(it, id) != nil {
			panic("found a record that is not there")
		}
	}
	it.Close()
	batched = time.Since(start)
	start = time.Now()
	for _, id := range ids {
		key := settledKey(id)
		if _, _, err := s.db.Get(key[:]); err == nil {
			panic("found a record that is not there")
		}
	}
	return batched, time.Since(start)
}

// SmallMemTables makes Pebble flush all the time.
func (o Options) SmallMemTables() Options {
	o.memTable = 64 << 10
	return o
}

// Recent is how many rows are taken to be in Pebble's memory.
func Recent(s *Store) (n int) {
	s.task(context.Background(), func(w *writer) error {
		n = len(w.recent.ids)
		return nil
	})
	return n
}
