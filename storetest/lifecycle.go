package storetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
)

// calls are all that can be asked of an open store, for a record that stands.
func (f *fixture) calls(ctx context.Context, r counterfoil.Record) map[string]error {
	errs := make(map[string]error)
	_, errs["Create"] = f.store.Create(ctx, f.draft())
	_, errs["Update"] = f.store.Update(ctx, next(r))
	_, errs["Get"] = f.store.Get(ctx, r.ID)
	_, errs["Response"] = f.store.Response(ctx, r.ID, r.Rev)
	_, errs["Overdue"] = f.store.Overdue(ctx, counterfoil.Page{Limit: 1})
	_, errs["Scan"] = f.store.Scan(ctx, counterfoil.Query{})
	_, errs["Sweep"] = f.store.Sweep(ctx, counterfoil.SweepOrder{})
	_, errs["Meta"] = f.store.Meta(ctx, "note")
	_, errs["SetMeta"] = f.store.SetMeta(ctx, "note", 0, nil)
	_, errs["Stats"] = f.store.Stats(ctx)
	return errs
}

var lifecycleTests = []test{
	{"P10 the store's time does not go back", func(f *fixture) {
		f.needsClock()
		f.clock.Advance(time.Hour)
		last := f.now()
		f.claim(lapsedBy(time.Millisecond))
		for range 3 {
			f.clock.Advance(-24 * time.Hour)
			r := f.claim()
			if f.now().Before(last) || r.CreatedAt.Before(last) || r.LeaseUntil.Before(last.Add(30*time.Second)) {
				f.Fatalf("clock set back: the store says %s and stamps %s; it said %s before", f.now(), r.CreatedAt, last)
			}
		}
		if len(f.overdue(0)) != 1 {
			f.Fatal("a claim that had lapsed is alive again because the clock was set back")
		}
		f.clock.Set(last.Add(time.Minute))
		if !f.now().Equal(last.Add(time.Minute)) {
			f.Fatalf("after the clock caught up: got %s", f.now())
		}
	}},

	{"a caller who has given up gets an error or a true answer", func(f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		for range 20 {
			d := f.draft()
			st, err := f.store.Create(ctx, d)
			snap, gerr := f.store.Get(f.ctx, d.Record.ID)
			switch {
			case err == nil && (!st.Created || gerr != nil):
				f.Fatalf("Create said created %t; then Get: %v", st.Created, gerr)
			case gerr == nil && snap.Record.Token != d.Record.Token:
				f.Fatal("Create with a context already cancelled left another record")
			case gerr != nil:
				f.is(gerr, counterfoil.ErrNotFound, "Get after Create")
			}
			// Whatever came of it, trying again finds one's own claim.
			st, err = f.store.Create(f.ctx, d)
			if f.ok(err); !st.Created {
				f.Fatal("Create tried again: got a foreign claim")
			}
			old := st.Record
			w := next(old)
			settle(w, counterfoil.Completed)
			w.Response = []byte("whole")
			_, err = f.store.Update(ctx, w)
			got := f.get(old.ID)
			switch {
			case got.Rev == old.Rev:
				if err == nil {
					f.Fatal("Update said done and was not")
				}
				f.same(old)
				f.response(got, nil)
			default:
				if got.Rev != old.Rev+1 || got.State != counterfoil.Completed {
					f.Fatalf("half an Update: %+v", got)
				}
				f.response(got, []byte("whole"))
			}
		}
	}},

	{"after Close everything is ErrClosed", func(f *fixture) {
		r := f.completed([]byte("x"))
		info := f.store.Info()
		f.ok(f.store.Close())
		for call, err := range f.calls(f.ctx, r) {
			f.is(err, counterfoil.ErrClosed, call)
		}
		if f.store.Info() != info {
			f.Fatal("Info changed with Close")
		}
		f.store.Close() // may complain, must return
	}},

	{"calls under way when the store closes finish or are ErrClosed", func(f *fixture) {
		r := f.completed([]byte("x"))
		var started sync.WaitGroup
		var closed atomic.Bool
		started.Add(8)
		together(9, func(i int) {
			if i == 8 {
				started.Wait()
				if err := f.store.Close(); err != nil {
					f.Error(err)
				}
				closed.Store(true)
				return
			}
			once := sync.OnceFunc(started.Done)
			for {
				over := closed.Load()
				_, err := f.store.Create(f.ctx, f.draft())
				once()
				if over && err == nil {
					f.Error("a call begun after Close was carried out")
					return
				}
				if err == nil {
					_, err = f.store.Response(f.ctx, r.ID, r.Rev)
				}
				if errors.Is(err, counterfoil.ErrClosed) {
					return
				}
				if err != nil {
					f.Errorf("got %v, want success or ErrClosed", err)
					return
				}
			}
		})
	}},

	{"C80 a store says what it is", func(f *fixture) {
		info := f.store.Info()
		if info.Kind == "" || info.ID == "" || !info.Durability.Meets("C") {
			f.Fatalf("Info: got %+v", info)
		}
		other := newFixture(f.T, f.o)
		if other.store.Info().ID == info.ID {
			f.Fatalf("two stores have one id: %s", info.ID)
		}
		if f.o.Reopen == nil && info.Durability != "C" {
			f.Fatalf("nothing outlives the store, yet its durability is %s", info.Durability)
		}
	}},

	{"answers say as of when they are true", func(f *fixture) {
		before := f.now()
		d := f.draft()
		st, err := f.store.Create(f.ctx, d)
		f.ok(err)
		snap, err := f.store.Get(f.ctx, d.Record.ID)
		f.ok(err)
		written, err := f.store.Update(f.ctx, next(st.Record))
		f.ok(err)
		late, err := f.store.Overdue(f.ctx, counterfoil.Page{Limit: 1})
		f.ok(err)
		page, err := f.store.Scan(f.ctx, counterfoil.Query{})
		f.ok(err)
		swept, err := f.store.Sweep(f.ctx, counterfoil.SweepOrder{})
		f.ok(err)
		stats, err := f.store.Stats(f.ctx)
		f.ok(err)
		last := before
		for i, at := range []time.Time{st.AsOf, snap.AsOf, written.AsOf, late.AsOf, page.AsOf, swept.AsOf, stats.AsOf} {
			if at.Before(last) || at.Location() != time.UTC {
				f.Fatalf("answer %d is as of %s, the one before as of %s", i+1, at, last)
			}
			last = at
		}
		// A draft that is kept out is answered with a time too.
		f.forget(opPay, last.Add(time.Hour))
		d = f.draft()
		d.Born = last
		if st, err = f.store.Create(f.ctx, d); err != nil || st.AsOf.IsZero() {
			f.Fatalf("kept out: got as of %s and %v", st.AsOf, err)
		}
	}},
}
