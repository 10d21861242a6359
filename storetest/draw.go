package storetest

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// one is true once in n times.
func (m *model) one(n int) bool { return m.rng.IntN(n) == 0 }

func (m *model) drawID() counterfoil.ID { return m.pool[m.rng.IntN(len(m.pool))] }

func (m *model) drawOperation() counterfoil.OperationNumber {
	return []counterfoil.OperationNumber{opPay, opPay, opRefund}[m.rng.IntN(3)]
}

func (m *model) drawPrincipal() counterfoil.PrincipalDigest {
	return []counterfoil.PrincipalDigest{alice, alice, bob, {}}[m.rng.IntN(4)]
}

func (m *model) drawToken() counterfoil.Token {
	var t counterfoil.Token
	binary.BigEndian.PutUint64(t[:], m.rng.Uint64())
	binary.BigEndian.PutUint64(t[8:], m.rng.Uint64()|1)
	return t
}

// drawTime is a duration from a millisecond to 40 h, short ones as often as
// long ones.
func (m *model) drawTime() time.Duration {
	unit := []time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour}[m.rng.IntN(4)]
	return unit * time.Duration(1+m.rng.IntN(40))
}

// drawDelay is a duration that lies ahead, or sometimes back.
func (m *model) drawDelay() counterfoil.Delay {
	d := m.drawTime()
	if m.one(3) {
		d = -d
	}
	return counterfoil.In(d)
}

func (m *model) drawDraft() *counterfoil.Draft {
	d := &counterfoil.Draft{Record: counterfoil.Record{
		ID:          m.drawID(),
		Principal:   m.drawPrincipal(),
		Operation:   m.drawOperation(),
		State:       counterfoil.InProgress,
		Attempt:     1,
		Token:       m.drawToken(),
		Fingerprint: counterfoil.Fingerprint{Version: uint8(m.rng.IntN(3)), Sum: [16]byte(m.drawToken())},
		Policy:      m.rng.Uint32N(300),
	}}
	d.Stamps.CreatedAt, d.Stamps.ClaimedAt = counterfoil.In(0), counterfoil.In(0)
	d.Stamps.LeaseUntil, d.Stamps.QuietAt = m.drawDelay(), m.drawDelay()
	if m.one(3) {
		d.MaxOpen = 1 + m.rng.IntN(6)
	}
	if m.one(3) {
		d.Born = counterfoil.Instant(m.latest.Add(-m.drawTime()))
	}
	// A caller may try again with the token that stands.
	if snap, err := m.oracle.Get(m.ctx, d.Record.ID); err == nil && m.one(4) && !snap.Record.Token.IsZero() {
		d.Record.Token = snap.Record.Token
	}
	return d
}

// drawWrite makes w some write that an engine or an operator could ask for.
// What design.md leaves no way to, such as a tombstone with a response, is not
// drawn: no store promises anything about it.
func (m *model) drawWrite(w *counterfoil.Write) {
	r, st := &w.Record, &w.Stamps
	// Completed records are drawn more often: responses hang on them.
	if r.State != counterfoil.Completed || m.one(2) {
		r.State = states[m.rng.IntN(len(states))]
		if m.one(4) {
			r.State = counterfoil.Completed
		}
	}
	r.Policy = m.rng.Uint32N(300)
	st.LeaseUntil = m.drawDelay()
	r.HasResponse = r.HasResponse && r.State == counterfoil.Completed && !m.one(4)
	if r.State.Open() {
		r.Reference = strings.Repeat("r", m.rng.IntN(20))
		r.Dispatched = m.one(2)
		if r.Token.IsZero() || m.one(3) {
			r.Attempt++
			r.Token = m.drawToken()
		}
	}
	switch r.State {
	case counterfoil.InProgress:
		st.ClaimedAt = counterfoil.In(0)
		r.Horizon = time.Time{}
	case counterfoil.Unknown:
		r.Horizon = time.Time{}
		if m.one(2) {
			st.Horizon = m.drawDelay()
		}
	case counterfoil.Failed:
		st.SettledAt, st.Horizon = counterfoil.In(0), m.drawDelay()
		r.Proof = counterfoil.Proof(1 + m.rng.IntN(6))
	case counterfoil.Completed:
		r.Outcome = counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201, Resource: strings.Repeat("/p", m.rng.IntN(9))}
		replay := 2 * m.drawTime()
		if m.one(8) {
			replay = -replay
		}
		st.SettledAt, st.ReplayUntil = counterfoil.In(0), counterfoil.In(replay)
		st.Horizon = counterfoil.In(replay + m.drawTime())
		if !m.one(3) {
			w.Response = make([]byte, m.rng.IntN(3)*m.rng.IntN(3000))
			for i := range w.Response {
				w.Response[i] = byte(m.step)
			}
		}
	case counterfoil.Tombstone, counterfoil.Announced:
		r.Token, r.Reference, r.AnnouncedAt = counterfoil.Token{}, "", time.Time{}
		st.Horizon = m.drawDelay()
		if r.State == counterfoil.Announced {
			r.AnnouncedAt = counterfoil.Instant(m.latest.Add(-m.drawTime()))
		}
	}
	m.drawKeepers(w)
	if m.one(3) {
		w.MaxOpen = 1 + m.rng.IntN(6)
	}
}

// drawKeepers adds or takes away gates, holds and evidence.
func (m *model) drawKeepers(w *counterfoil.Write) {
	r := &w.Record
	switch m.rng.IntN(6) {
	case 0:
		d, _ := m.drawDelay().Get()
		gate(w, []string{"settlement", "provider_reference"}[m.rng.IntN(2)], d)
	case 1:
		w.Stamps.Gates = []policy.Gate{}
	}
	switch m.rng.IntN(8) {
	case 0:
		r.Holds = append(r.Holds, hold(counterfoil.Instant(m.latest)))
	case 1, 2, 3:
		r.Holds = nil
	}
	if m.one(3) {
		e := counterfoil.Evidence{Kind: counterfoil.EvidenceKind(1 + m.rng.IntN(4)), Attempt: r.Attempt}
		if m.one(3) {
			e.Actor, e.Reason = "ops", strings.Repeat("why", m.rng.IntN(9))
		}
		if r.AddEvidence(e) == nil {
			w.Stamps.EvidenceAt = counterfoil.In(0)
		}
	}
}
