package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil"
)

func (m *model) create() {
	m.Helper()
	d := m.drawDraft()
	m.did("create %.8s %s op %d principal %.4s token %.4x maxopen %d born %s", d.Record.ID, d.Record.State,
		d.Record.Operation, d.Record.Principal, d.Record.Token, d.MaxOpen, d.Born.Format(time.TimeOnly))
	got, gerr := m.store.Create(m.ctx, d)
	want, werr := m.oracle.Create(m.ctx, d)
	if !m.agree(gerr, werr) {
		return
	}
	if got.Created != want.Created || got.OverQuota != want.OverQuota || !got.Forgotten.Equal(want.Forgotten) {
		m.differs("got created %t, over quota %t, forgotten %s; memstore %t, %t, %s",
			got.Created, got.OverQuota, got.Forgotten, want.Created, want.OverQuota, want.Forgotten)
	}
	m.alike(got.Record, want.Record)
	m.sameTime(got.AsOf, want.AsOf)
}

func (m *model) update() {
	m.Helper()
	id := m.drawID()
	mine, theirs, ok := m.both(id)
	if !ok {
		mine = m.drawDraft().Record
		mine.ID, mine.LeaseUntil = id, m.latest
		theirs = mine
	}
	w := next(mine)
	m.drawWrite(w)
	late, foreign := m.one(6), m.one(8)
	if late {
		w.IfRev--
	}
	if foreign {
		w.IfToken = m.drawToken()
	}
	m.did("update %.8s %s to %s, late %t, foreign %t, response %d, has %t, maxopen %d", id, mine.State,
		w.Record.State, late, foreign, len(w.Response), w.Record.HasResponse, w.MaxOpen)
	v := *w
	v.IfRev = theirs.Rev
	if late {
		v.IfRev--
	}
	got, gerr := m.store.Update(m.ctx, w)
	want, werr := m.oracle.Update(m.ctx, &v)
	if m.agree(gerr, werr) {
		m.alike(got.Record, want.Record)
		m.sameTime(got.AsOf, want.AsOf)
		if got.Record.Rev != mine.Rev+1 {
			m.differs("write on rev %d made rev %d", mine.Rev, got.Record.Rev)
		}
	}
	m.both(id)
}

func (m *model) readResponse() {
	m.Helper()
	id := m.drawID()
	mine, theirs, _ := m.both(id)
	late := m.one(4)
	if late {
		mine.Rev++
		theirs.Rev++
	}
	m.did("response %.8s late %t", id, late)
	got, gerr := m.store.Response(m.ctx, id, mine.Rev)
	want, werr := m.oracle.Response(m.ctx, id, theirs.Rev)
	if m.agree(gerr, werr) && !bytes.Equal(got, want) {
		m.differs("response of %d bytes, memstore %d", len(got), len(want))
	}
}

func (m *model) listOverdue() {
	m.Helper()
	limit := m.rng.IntN(6)
	m.did("overdue in pages of %d", limit)
	got := m.overdue(limit)
	mine := m.store
	m.store = m.oracle
	want := m.overdue(0)
	m.store = mine
	if !slices.Equal(ids(got), ids(want)) {
		m.differs("%d claims overdue, memstore %d", len(got), len(want))
	}
}

func (m *model) listScan() {
	m.Helper()
	q := counterfoil.Query{Page: counterfoil.Page{Limit: m.rng.IntN(6)}}
	if m.one(2) {
		q.Operation = m.drawOperation()
	}
	if m.one(3) {
		q.State = states[m.rng.IntN(len(states))]
	}
	if m.one(3) {
		q.Principal = m.drawPrincipal()
	}
	if m.one(3) {
		q.CreatedBefore = m.latest.Add(-m.drawTime())
	}
	m.did("scan %+v", q)
	got, want := m.pages(m.store, q), m.pages(m.oracle, q)
	if !slices.Equal(ids(got), ids(want)) {
		m.differs("%+v selects %d records, memstore %d", q, len(got), len(want))
	}
}

func (m *model) runSweep() {
	m.Helper()
	o := counterfoil.SweepOrder{Limit: m.rng.IntN(20)}
	if m.one(2) {
		o.Grace = m.drawTime() / 4
	}
	switch m.rng.IntN(6) {
	case 0:
		o.Now = m.now().Add(time.Duration(m.rng.IntN(60)-30) * time.Second)
	case 1:
		o.Now = m.now().Add(2 * counterfoil.MaxClockSkew)
		m.did("sweep with its clock ahead")
		_, gerr := m.store.Sweep(m.ctx, o)
		_, werr := m.oracle.Sweep(m.ctx, o)
		m.agree(gerr, werr)
		m.audit()
		return
	}
	m.did("sweep %+v", o)
	got := m.sweep(o)
	mine := m.store
	m.store = m.oracle
	want := m.sweep(o)
	m.store = mine
	// A store may know where to look and examine less.
	got.Examined, got.Next, got.AsOf = want.Examined, want.Next, want.AsOf
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		m.differs("swept %s,\nmemstore %s", g, w)
	}
	m.audit()
}

func (m *model) writeMeta() {
	m.Helper()
	name := []string{"a", "b", counterfoil.MetaTrust}[m.rng.IntN(3)]
	got, gerr := m.store.Meta(m.ctx, name)
	want, werr := m.oracle.Meta(m.ctx, name)
	if m.agree(gerr, werr) && !bytes.Equal(got.Value, want.Value) {
		m.differs("meta %q is %q, memstore's %q", name, got.Value, want.Value)
	}
	late := uint64(m.rng.IntN(4) / 3)
	value := fmt.Appendf(nil, "step %d", m.step)
	m.did("set meta %q late %d", name, late)
	_, gerr = m.store.SetMeta(m.ctx, name, got.Rev+late, value)
	_, werr = m.oracle.SetMeta(m.ctx, name, want.Rev+late, value)
	m.agree(gerr, werr)
}

func (m *model) raiseForgotten() {
	m.Helper()
	op, limit := m.drawOperation(), counterfoil.Instant(m.latest.Add(-m.drawTime()))
	m.did("raise F of %d to %s", op, limit)
	m.forget(op, limit)
	mine := m.store
	m.store = m.oracle
	m.forget(op, limit)
	m.store = mine
}

// passTime moves the clock on: a little, a lot, or to the very instant at which
// something is to happen.
func (m *model) passTime() {
	m.Helper()
	to := m.clock.Now().Add(m.drawTime())
	if snap, err := m.oracle.Get(m.ctx, m.drawID()); err == nil && m.one(2) {
		r := &snap.Record
		edges := []time.Time{r.LeaseUntil, r.ReplayUntil, r.Horizon}
		for _, g := range r.Gates {
			edges = append(edges, g.Until)
		}
		if e := edges[m.rng.IntN(len(edges))].Add(time.Duration(m.rng.IntN(3)-1) * time.Millisecond); e.After(m.latest) {
			to = e
		}
	}
	m.clock.Set(to)
	if to.After(m.latest) {
		m.latest = to
	}
	m.did("time is %s", to.Format("01-02 15:04:05.000"))
}

// turnBack sets the clock back, after both stores have seen what it said.
func (m *model) turnBack() {
	m.Helper()
	m.both(m.drawID())
	m.did("clock back to %s", m.clock.Advance(-m.drawTime()).Format("01-02 15:04:05.000"))
}

func (m *model) openAgain() {
	m.Helper()
	if m.o.Reopen == nil {
		return
	}
	m.did("reopen")
	m.clock.Set(m.latest) // how much time a store remembers is its own affair
	m.reopen()
	m.audit()
}
