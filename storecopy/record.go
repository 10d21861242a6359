package storecopy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
)

// counter counts what many workers do.
type counter struct{ n atomic.Int64 }

func (c *counter) add()       { c.n.Add(1) }
func (c *counter) get() int64 { return c.n.Load() }

// maxTries bounds how often a record that moves under the copy is looked at
// again. Nothing moves but by an answer that got lost.
const maxTries = 3

// record brings one record of the source to the target.
func (r *run) record(ctx context.Context, s *counterfoil.Record) error {
	response, err := r.response(ctx, r.from, s)
	if err != nil {
		return err
	}
	r.take(s, response)
	look := r.target.look
	for range maxTries {
		err = r.write(ctx, s, response, look)
		if !errors.Is(err, counterfoil.ErrConflict) && !errors.Is(err, counterfoil.ErrFenced) && !errors.Is(err, counterfoil.ErrNotFound) {
			break
		}
		look = true
	}
	switch {
	case errors.Is(err, counterfoil.ErrUnreadable):
		r.refuse(s.ID, "the target has a record that this version cannot read")
		return nil
	case err != nil:
		return fmt.Errorf("the target: %w", err)
	}
	return nil
}

// write makes the target's record what s is. look says that it may be there.
func (r *run) write(ctx context.Context, s *counterfoil.Record, response []byte, look bool) error {
	next := s.Clone()
	next.Rev, next.HasResponse = 0, false
	t, made := counterfoil.Record{}, false
	if look {
		snap, err := r.to.Get(ctx, s.ID)
		if err != nil && !errors.Is(err, counterfoil.ErrNotFound) {
			return err
		}
		t = snap.Record
	}
	if t.State == counterfoil.Absent {
		st, err := r.to.Create(ctx, &counterfoil.Draft{Record: next})
		if err != nil {
			return err
		}
		t, made = st.Record, st.Created
	}
	same := sameContent(s, &t)
	if same && (response == nil || t.HasResponse) {
		r.count(made, false, s, nil)
		return nil
	}
	if !same && order(s, &t) <= 0 && !(r.target.resumed && order(s, &t) == 0) {
		r.refuse(s.ID, describe(s, &t))
		return nil
	}
	next.HasResponse = response != nil
	_, err := r.to.Update(ctx, &counterfoil.Write{Record: next, IfRev: t.Rev, IfToken: t.Token, Response: response})
	if err != nil {
		return err
	}
	r.count(made, true, s, response)
	return nil
}

// count notes what was done for a record of the source.
func (r *run) count(made, written bool, s *counterfoil.Record, response []byte) {
	r.note(func(rep *Report) {
		switch {
		case made:
			rep.Copied++
		case written:
			rep.Updated++
		default:
			rep.Present++
		}
		if made || written {
			rep.Bytes += int64(len(content(s)) + len(response))
		}
		if response != nil {
			rep.Responses++
		}
	})
}

// take sums up a record of the source and the response that is copied with it.
func (r *run) take(s *counterfoil.Record, response []byte) {
	r.records.add(s, response)
	r.revs.addStanding(s)
	switch {
	case !s.HasResponse || response != nil:
	case due(s, r.cut):
		r.note(func(rep *Report) { rep.ResponsesDue++ })
	default:
		r.note(func(rep *Report) { rep.ResponsesLost++ })
	}
}

// response returns what s keeps for t, or nil where there is nothing to copy.
func (r *run) response(ctx context.Context, s counterfoil.Store, t *counterfoil.Record) ([]byte, error) {
	if !t.HasResponse || due(t, r.cut) {
		return nil, nil
	}
	b, err := s.Response(ctx, t.ID, t.Rev)
	switch {
	case errors.Is(err, counterfoil.ErrNotFound):
		return nil, nil // it can no longer be read; the record is what protects
	case errors.Is(err, counterfoil.ErrConflict) && s == r.from:
		return nil, fmt.Errorf("%w: record %s", ErrSourceChanged, t.ID)
	case err != nil:
		return nil, err
	case b == nil:
		b = []byte{} // an empty response is one, too
	}
	return b, nil
}

// due reports that the next sweep drops the response.
func due(r *counterfoil.Record, now time.Time) bool {
	return r.State == counterfoil.Completed && !now.Before(r.ReplayUntil)
}

// letGo reports that a sweep may have deleted the record by then.
func letGo(r *counterfoil.Record, now time.Time) bool {
	if r.State == counterfoil.Failed {
		return !r.Horizon.IsZero() && !now.Before(r.Horizon) && r.GateOpen(now) == ""
	}
	return r.PastItsTime(now)
}

// content is what of a record the two stores must agree in: all but its rev,
// and whether a response is kept, which is judged by the response itself.
func content(r *counterfoil.Record) []byte {
	c := *r
	c.Rev, c.HasResponse = 0, false
	return counterfoil.AppendRecord(nil, &c)
}

func sameContent(a, b *counterfoil.Record) bool {
	return a.ID == b.ID && bytes.Equal(content(a), content(b))
}

// order tells which of two contents of one record is the later one: more than 0
// for a, less for b, and 0 where the two do not say. Records begin anew under
// late: count; attempts and, within an attempt, states only go forward.
// Tombstone and announced change places.
func order(a, b *counterfoil.Record) int {
	if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Attempt, b.Attempt); c != 0 {
		return c
	}
	if a.Token != b.Token && !a.Token.IsZero() && !b.Token.IsZero() {
		return 0 // two claims of one attempt, which one store never makes
	}
	return cmp.Compare(rank(a.State), rank(b.State))
}

func rank(s counterfoil.State) counterfoil.State {
	if s == counterfoil.Announced {
		return counterfoil.Tombstone
	}
	return s // in the order in which a record comes to them
}

// describe says in which way the target's record t is not the source's s.
func describe(s, t *counterfoil.Record) string {
	if s.State != t.State || s.Attempt != t.Attempt || !s.CreatedAt.Equal(t.CreatedAt) {
		return fmt.Sprintf("the target has %s, the source %s", inWords(t), inWords(s))
	}
	var names []string
	a, b := reflect.ValueOf(*s), reflect.ValueOf(*t)
	for i := range a.NumField() {
		name := a.Type().Field(i).Name
		if name != "Rev" && name != "HasResponse" && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			names = append(names, name)
		}
	}
	return "they differ in " + strings.Join(names, ", ")
}

func inWords(r *counterfoil.Record) string {
	return fmt.Sprintf("attempt %d, %s, made %s", r.Attempt, r.State, r.CreatedAt.Format(time.RFC3339))
}
