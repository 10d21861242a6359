package storetest

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/counterfoil/counterfoil"
)

// metaIs wants a named value to be what it was set to.
func (f *fixture) metaIs(name string, rev uint64, value []byte) {
	f.Helper()
	m, err := f.store.Meta(f.ctx, name)
	f.ok(err)
	if m.Rev != rev || !bytes.Equal(m.Value, value) {
		f.Fatalf("Meta %q: got rev %d and %d bytes, want rev %d and %d bytes", name, m.Rev, len(m.Value), rev, len(value))
	}
}

var metaTests = []test{
	{"a value is set on the rev that was read", func(f *fixture) {
		_, err := f.store.Meta(f.ctx, "charter")
		f.is(err, counterfoil.ErrNotFound, "Meta of a value never set")
		_, err = f.store.SetMeta(f.ctx, "charter", 3, []byte("x"))
		f.is(err, counterfoil.ErrConflict, "SetMeta on a rev that never was")
		first, err := f.store.SetMeta(f.ctx, "charter", 0, []byte("one"))
		f.ok(err)
		if first == 0 {
			f.Fatal("SetMeta: got rev 0, which stands for never set")
		}
		f.metaIs("charter", first, []byte("one"))
		for _, rev := range []uint64{0, first + 1, first - 1} {
			_, err = f.store.SetMeta(f.ctx, "charter", rev, []byte("other"))
			f.is(err, counterfoil.ErrConflict, "SetMeta on another rev")
		}
		f.metaIs("charter", first, []byte("one"))
		second, err := f.store.SetMeta(f.ctx, "charter", first, []byte("two"))
		f.ok(err)
		if second <= first {
			f.Fatalf("SetMeta: got rev %d after %d", second, first)
		}
		f.metaIs("charter", second, []byte("two"))
	}},

	{"values do not touch each other or any record", func(f *fixture) {
		r := f.claim()
		revs := make(map[string]uint64)
		for _, name := range []string{counterfoil.MetaCharter, counterfoil.MetaTrust, counterfoil.MetaSweep, "a", "ab", "ghosts/pay/2026-03"} {
			rev, err := f.store.SetMeta(f.ctx, name, 0, []byte("value of "+name))
			f.ok(err)
			revs[name] = rev
		}
		for name, rev := range revs {
			f.metaIs(name, rev, []byte("value of "+name))
		}
		f.same(r)
		if got := f.all(counterfoil.Query{}); len(got) != 1 {
			f.Fatalf("Scan: got %d records, want 1", len(got))
		}
	}},

	{"a value may be empty or large", func(f *fixture) {
		var rev uint64
		for _, v := range [][]byte{{}, noise(1), noise(64 << 10), noise(1 << 20), {}} {
			next, err := f.store.SetMeta(f.ctx, "note", rev, v)
			f.ok(err)
			f.metaIs("note", next, v)
			rev = next
		}
	}},

	{"values set at once are set one after the other", func(f *fixture) {
		const callers, each = 8, 25
		together(callers, func(int) {
			for range each {
				if err := f.countUp("counter"); err != nil {
					f.Error(err)
					return
				}
			}
		})
		m, err := f.store.Meta(f.ctx, "counter")
		f.ok(err)
		if n := binary.BigEndian.Uint64(m.Value); n != callers*each {
			f.Fatalf("counted %d times, got %d", callers*each, n)
		}
	}},

	{"P10 F raised at once by sweeps and writers loses no raise", func(f *fixture) {
		const n = 20
		old := f.now()
		for range n {
			f.past(counterfoil.Tombstone)
		}
		together(3, func(i int) {
			switch i {
			case 0:
				f.sweep(counterfoil.SweepOrder{Limit: 1})
			default:
				for op := range n {
					f.forget(counterfoil.OperationNumber(1000*i+op), old)
				}
			}
		})
		if _, known := f.forgotten(); len(known) != 1+2*n {
			f.Fatalf("F knows %d operations, want %d", len(known), 1+2*n)
		}
	}},
}

// countUp adds one to a named number, reading again after each conflict.
func (f *fixture) countUp(name string) error {
	for {
		m, err := f.store.Meta(f.ctx, name)
		if errors.Is(err, counterfoil.ErrNotFound) {
			m = counterfoil.Meta{Value: make([]byte, 8)}
		} else if err != nil {
			return err
		}
		v := binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(m.Value)+1)
		if _, err := f.store.SetMeta(f.ctx, name, m.Rev, v); !errors.Is(err, counterfoil.ErrConflict) {
			return err
		}
	}
}
