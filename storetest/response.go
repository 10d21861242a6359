package storetest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"github.com/counterfoil/counterfoil"
)

// completed is a new completed record with this response.
func (f *fixture) completed(body []byte) counterfoil.Record {
	f.Helper()
	return f.standing(counterfoil.Completed, func(w *counterfoil.Write) { w.Response = body })
}

// noise is n bytes that do not compress, the same in every run.
func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

var responseTests = []test{
	{"a response is attached, kept, replaced and dropped with its record", func(f *fixture) {
		r := f.completed([]byte("one"))
		if !r.HasResponse {
			f.Fatal("record with a response attached does not say so")
		}
		f.response(r, []byte("one"))
		r = f.update(r, func(w *counterfoil.Write) { w.Record.Policy = 2 })
		f.response(r, []byte("one"))
		r = f.update(r, func(w *counterfoil.Write) { w.Response = []byte("a longer two") })
		f.response(r, []byte("a longer two"))
		r = f.update(r, func(w *counterfoil.Write) { w.Record.HasResponse, w.Response = false, []byte("three") })
		if !r.HasResponse {
			f.Fatal("an attached response counts, whatever HasResponse said")
		}
		f.response(r, []byte("three"))
		r = f.update(r, func(w *counterfoil.Write) { w.Record.HasResponse = false })
		f.response(r, nil)
		f.same(r)
		r = f.update(r, func(w *counterfoil.Write) { w.Response = []byte("four") })
		f.response(r, []byte("four"))
	}},

	{"a record does not claim a response that is not there", func(f *fixture) {
		r := f.claim(func(d *counterfoil.Draft) { d.Record.HasResponse = true })
		if r.HasResponse {
			f.Fatal("a new record claims a response")
		}
		r = f.update(r, func(w *counterfoil.Write) { w.Record.HasResponse = true })
		if r.HasResponse {
			f.Fatal("a record claims a response that was never attached")
		}
		f.response(r, nil)
		_, err := f.store.Response(f.ctx, f.newID(), 1)
		f.is(err, counterfoil.ErrNotFound, "Response of an absent record")
	}},

	{"P9 a response comes back byte for byte, empty and large", func(f *fixture) {
		for _, body := range [][]byte{
			{},
			{0},
			[]byte("a"), []byte("\x00\xff\r\n"), noise(4095), noise(4096), noise(4097),
			noise(65535), noise(65537), noise(1 << 20), bytes.Repeat([]byte("a"), 1<<20), noise(3<<20 + 1),
		} {
			r := f.completed(body)
			if !r.HasResponse {
				f.Fatalf("record with a response of %d bytes does not say so", len(body))
			}
			got, err := f.store.Response(f.ctx, r.ID, r.Rev)
			f.ok(err)
			if !bytes.Equal(got, body) {
				f.Fatalf("response of %d bytes came back as other %d", len(body), len(got))
			}
		}
	}},

	{"a response of another rev is never handed out", func(f *fixture) {
		r := f.completed([]byte("one"))
		for _, rev := range []uint64{0, r.Rev - 1, r.Rev + 1} {
			_, err := f.store.Response(f.ctx, r.ID, rev)
			f.is(err, counterfoil.ErrConflict, "Response at another rev")
		}
		later := f.update(r, func(w *counterfoil.Write) { w.Response = []byte("two") })
		_, err := f.store.Response(f.ctx, r.ID, r.Rev)
		f.is(err, counterfoil.ErrConflict, "Response at the rev before")
		f.response(later, []byte("two"))
	}},

	{"C02 a record whose response is not kept still stands", func(f *fixture) {
		r := f.standing(counterfoil.Tombstone)
		f.response(r, nil)
		f.same(r)
		d := f.draft()
		d.Record.ID = r.ID
		st, err := f.store.Create(f.ctx, d)
		if f.ok(err); st.Created {
			f.Fatal("a record without a response was taken for absent")
		}
	}},

	{"record and response change in one step", func(f *fixture) {
		r := f.completed([]byte{1})
		id := r.ID
		var done atomic.Bool
		together(4, func(i int) {
			if i == 0 {
				defer done.Store(true)
				for n := range f.rounds(200) {
					v := byte(n)
					r = f.update(r, func(w *counterfoil.Write) {
						w.Record.Policy = uint32(v)
						w.Response = bytes.Repeat([]byte{v}, 1+int(v))
					})
				}
				return
			}
			for !done.Load() {
				snap, err := f.store.Get(f.ctx, id)
				if err != nil {
					f.Error(err)
					return
				}
				got, err := f.store.Response(f.ctx, snap.Record.ID, snap.Record.Rev)
				if errors.Is(err, counterfoil.ErrConflict) {
					continue
				}
				if err != nil {
					f.Error(err)
					return
				}
				if v := byte(snap.Record.Policy); snap.Record.Rev > 2 && !bytes.Equal(got, bytes.Repeat([]byte{v}, 1+int(v))) {
					f.Errorf("rev %d was written with %d bytes of %d; got %d bytes", snap.Record.Rev, 1+int(v), v, len(got))
					return
				}
			}
		})
	}},
}
