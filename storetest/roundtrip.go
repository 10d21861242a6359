package storetest

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil"
)

// fullRecord is a record with every field set, the long ones as long as they
// may be. A tombstone has no token and no reference.
func (f *fixture) fullRecord(s counterfoil.State) counterfoil.Record {
	at := f.now()
	tick := func() time.Time { at = at.Add(-time.Hour - time.Millisecond); return at }
	r := counterfoil.Record{
		ID:          f.newID(),
		Principal:   counterfoil.PrincipalDigest{1, 0, 255, 0, 7, 9},
		Operation:   math.MaxUint32,
		State:       s,
		Attempt:     counterfoil.MaxAttempts,
		Token:       counterfoil.NewToken(),
		Reference:   strings.Repeat("r", counterfoil.MaxReason),
		Fingerprint: counterfoil.Fingerprint{Version: 255, Sum: [16]byte{15: 255}},
		Policy:      math.MaxUint32,
		Dispatched:  true,
		Observed:    true,
		Erased:      true,
		Proof:       counterfoil.ProofEarly,
		CreatedAt:   tick(), ClaimedAt: tick(), FirstDispatch: tick(), LastDispatch: tick(),
		QuietAt: tick(), SettledAt: tick(), AnnouncedAt: tick(),
		LeaseUntil: at.Add(1000 * time.Hour), ReplayUntil: at.Add(2000 * time.Hour), Horizon: at.Add(90_000 * time.Hour),
		Outcome: counterfoil.Outcome{Class: counterfoil.Declined, Status: 599, Resource: "/" + strings.Repeat("ü", (counterfoil.MaxResource-1)/2)},
	}
	for i := range 16 {
		r.Gates = append(r.Gates, counterfoil.Gate{Name: fmt.Sprintf("gate_%d", i), Until: at.Add(time.Duration(i-8) * time.Hour)})
	}
	for range 4 {
		r.Holds = append(r.Holds, counterfoil.Hold{At: tick(), Actor: strings.Repeat("a", counterfoil.MaxReason), Reason: strings.Repeat("\x00", counterfoil.MaxReason)})
	}
	for i := range counterfoil.MaxEvidence {
		r.Evidence = append(r.Evidence, counterfoil.Evidence{
			Kind: counterfoil.EvidenceKind(1 + i%11), At: tick(), Count: math.MaxUint32, Attempt: uint32(i),
			Outcome: counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201, Resource: fmt.Sprintf("/pay/%d", i)},
			Actor:   strings.Repeat("o", counterfoil.MaxReason), Reason: strings.Repeat("é", counterfoil.MaxReason/2),
		})
	}
	if s == counterfoil.Tombstone || s == counterfoil.Announced {
		r.Token, r.Reference = counterfoil.Token{}, ""
	}
	return r
}

// bareRecord has nothing set that a record can do without.
func (f *fixture) bareRecord(s counterfoil.State) counterfoil.Record {
	r := counterfoil.Record{ID: f.newID(), State: s, Token: counterfoil.NewToken()}
	if s == counterfoil.InProgress {
		r.LeaseUntil = f.now()
	}
	if s == counterfoil.Tombstone || s == counterfoil.Announced {
		r.Token = counterfoil.Token{}
	}
	return r
}

// written inserts records of every state, with every field set and with none,
// and returns them as they stand.
func (f *fixture) written() []counterfoil.Record {
	f.Helper()
	var out []counterfoil.Record
	for _, s := range states {
		for _, r := range []counterfoil.Record{f.fullRecord(s), f.bareRecord(s)} {
			r.Rev = 1
			got := f.create(&counterfoil.Draft{Record: r})
			if g := diff(got, r); g != "" {
				f.Fatalf("Create of a record %s:\n%s", s, g)
			}
			out = append(out, r)
		}
	}
	return out
}

var roundTripTests = []test{
	{"C67 records come back as they were written, to the last field", func(f *fixture) {
		if missing := unset(reflect.ValueOf(f.fullRecord(counterfoil.InProgress)), "Record"); len(missing) > 0 {
			f.Fatalf("the record that should have every field set lacks %s", missing)
		}
		want := f.written()
		for _, r := range want {
			f.same(r)
		}
		byID := make(map[counterfoil.ID]counterfoil.Record)
		for _, r := range f.all(counterfoil.Query{Page: counterfoil.Page{Limit: 4}}) {
			byID[r.ID] = r
		}
		for _, r := range want {
			if g := diff(byID[r.ID], r); g != "" {
				f.Fatalf("Scan of a record %s:\n%s", r.State, g)
			}
			got := f.update(r, func(*counterfoil.Write) {})
			r.Rev = 2
			if g := diff(got, r); g != "" {
				f.Fatalf("Update of a record %s to what it was:\n%s", r.State, g)
			}
			f.same(r)
		}
	}},

	{"C68 the version of a fingerprint is kept with it", func(f *fixture) {
		for _, v := range []uint8{0, 1, 2, 127, 128, 255} {
			r := f.claim(func(d *counterfoil.Draft) { d.Record.Fingerprint.Version = v })
			r = f.update(r, func(w *counterfoil.Write) { settle(w, counterfoil.Completed) })
			if r.Fingerprint.Version != v {
				f.Fatalf("fingerprint of version %d came back as %d", v, r.Fingerprint.Version)
			}
			f.same(r)
		}
	}},

	{"C26 instants are UTC, in whole milliseconds, at any age", func(f *fixture) {
		for _, at := range []time.Time{
			time.Date(1969, 12, 31, 23, 59, 59, 999e6, time.UTC), time.UnixMilli(0).UTC(), time.UnixMilli(1).UTC(),
			time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC), time.Date(2299, 12, 31, 0, 0, 0, 1e6, time.UTC),
		} {
			r := f.standing(counterfoil.Tombstone, func(w *counterfoil.Write) {
				w.Record.CreatedAt, w.Record.SettledAt, w.Record.Horizon, w.Record.ReplayUntil = at, at, at, at
				w.Stamps = counterfoil.Stamps{}
			})
			for _, got := range []time.Time{r.CreatedAt, r.SettledAt, r.Horizon, r.ReplayUntil} {
				if !got.Equal(at) || got.Location() != time.UTC {
					f.Errorf("wrote %s, got %s", at, got)
				}
			}
			f.same(r)
		}
	}},

	{"an unreadable record is never absent", func(f *fixture) {
		f.need(needSpoil)
		r := f.past(counterfoil.Tombstone)
		f.o.Spoil(f.T, f.store, r.ID)
		f.spoilt = true
		_, err := f.store.Get(f.ctx, r.ID)
		f.is(err, counterfoil.ErrUnreadable, "Get")
		d := f.draft()
		d.Record.ID = r.ID
		st, err := f.store.Create(f.ctx, d)
		f.is(err, counterfoil.ErrUnreadable, "Create")
		if st.Created {
			f.Fatal("Create wrote over a record it could not read")
		}
		_, err = f.store.Update(f.ctx, next(r))
		f.is(err, counterfoil.ErrUnreadable, "Update")
		f.store.Sweep(f.ctx, counterfoil.SweepOrder{}) // may complain, must not delete
		_, err = f.store.Get(f.ctx, r.ID)
		f.is(err, counterfoil.ErrUnreadable, "Get after a sweep")
	}},
}

// unset lists the fields of v that have their zero value.
func unset(v reflect.Value, path string) (out []string) {
	if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() {
		for i := range v.NumField() {
			out = append(out, unset(v.Field(i), path+"."+v.Type().Field(i).Name)...)
		}
		return out
	}
	// The store numbers writes and knows its responses itself.
	if v.IsZero() && path != "Record.Rev" && path != "Record.HasResponse" {
		out = append(out, path)
	}
	return out
}
