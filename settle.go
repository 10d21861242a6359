package counterfoil

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// report is what an owner says of its attempt.
type report struct {
	call     string
	state    State // Completed, Failed or Unknown
	outcome  Outcome
	response []byte
	evidence Evidence
}

// settling carries one report into the store, through conflicts and through
// unclear writes. It is used by one goroutine at a time.
type settling struct {
	book
	op  *policy.Operation
	rep report
	// completedIn: the owner may have completed the record in a transaction of
	// its own, which ended one way or the other. What stands is read first, and
	// a completion that stands is its own word.
	completedIn bool
	// undoable: what is written may yet be rolled back, so that no contradiction
	// is put down or counted.
	undoable bool
	// id, token, attempt and created are the owner's.
	id      ID
	token   Token
	attempt uint32
	created time.Time
	// current is the record as last seen, read at asOf; asOf is zero when it was
	// not read but written.
	current *Record
	asOf    time.Time
	// first is the first write, in here to spare an allocation. Later ones are
	// made anew: a store may still hold one whose call it did not answer.
	first Write
	tried bool
}

func newSettling(bk book, op *policy.Operation, owner *Record, rep report) *settling {
	return &settling{
		book: bk, op: op, rep: rep, current: owner,
		id: owner.ID, token: owner.Token, attempt: owner.Attempt, created: owner.CreatedAt,
	}
}

// detach lets go of the owner's record, to go on in the background.
func (s *settling) detach() {
	c := s.current.Clone()
	s.current = &c
}

// final reports whether an error of run is an answer, not a failure to find out.
func (s *settling) final(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrSettled)
}

// run writes the report, or finds that it stands already. ErrSettled and
// ErrFenced come with the record that stands.
func (s *settling) run(ctx context.Context) (Snapshot, error) {
	tries := maxTries
	if s.undoable {
		tries = 2 // a transaction may go on seeing what it saw
	}
	for range tries {
		if s.asOf.IsZero() && (s.completedIn || s.current.State == Unknown) {
			if err := s.reread(ctx); err != nil {
				return Snapshot{}, err
			}
		}
		step := s.next()
		if step.write != nil {
			snap, err := s.update(ctx, s.rep.call, step.write)
			switch {
			case err == nil:
				step.done = snap
			case errors.Is(err, ErrConflict), errors.Is(err, ErrFenced), errors.Is(err, ErrNotFound):
				if err = s.reread(ctx); err == nil {
					continue
				}
			}
			if err != nil && !step.stands {
				return Snapshot{}, err
			}
		}
		if step.contradicted {
			s.e.o.Trace.contradicted(s.op.Name, s.id)
		}
		return step.done, step.err
	}
	return Snapshot{}, fmt.Errorf("%w: record %s keeps changing", ErrUnavailable, s.id)
}

func (s *settling) reread(ctx context.Context) error {
	snap, err := s.read(ctx, s.id)
	if errors.Is(err, ErrNotFound) {
		// Only a settled record is ever deleted: somebody else settled it.
		s.current = &Record{ID: s.id}
		return nil
	}
	if err != nil {
		return err
	}
	s.current, s.asOf = &snap.Record, snap.AsOf
	return nil
}

// step is one move of settling: a write to try, then done and err as answer.
type step struct {
	write        *Write
	done         Snapshot
	err          error
	contradicted bool
	// stands: done is so whether or not the write succeeds.
	stands bool
}

// next decides, by the transitions of design.md §3, what the report does to
// the record as last seen.
func (s *settling) next() step {
	cur := s.current
	mine := cur.Token == s.token && !cur.Token.IsZero() ||
		cur.Token.IsZero() && cur.State.Settled() && cur.Attempt == s.attempt && cur.CreatedAt.Equal(s.created)
	stand := Snapshot{Record: *cur}
	if !mine {
		// A later attempt opened, or the record is gone: this owner is powerless.
		return step{
			done: stand, err: fmt.Errorf("%s: %w", s.rep.call, ErrFenced),
			contradicted: s.rep.state == Completed && !s.undoable,
		}
	}
	if cur.Closed(s.asOf) {
		return s.onSettled(stand)
	}
	switch cur.State {
	case InProgress, Unknown:
		return step{write: s.settle(nil)}
	case Failed:
		switch {
		case s.rep.state == Failed:
			return step{done: stand}
		case s.rep.state == Completed && !cur.Proof.byOwner():
			// Somebody said there was no effect, and the owner knows better.
			w := s.settle(&Evidence{Kind: EvidenceContradicted, Attempt: cur.Attempt, Outcome: s.rep.outcome, Reason: "the owner completed after absence was said to be proved (" + cur.Proof.String() + ")"})
			return step{write: w, contradicted: true}
		}
		return step{done: stand, err: fmt.Errorf("%s: %w", s.rep.call, ErrSettled)}
	}
	return s.onSettled(stand)
}

// onSettled handles a record whose outcome is already final, or closed.
func (s *settling) onSettled(stand Snapshot) step {
	cur := s.current
	told := s.rep.outcome
	switch s.rep.state {
	case Unknown:
		return step{done: stand, err: fmt.Errorf("%s: %w", s.rep.call, ErrSettled)}
	case Failed:
		told = Outcome{Class: NoEffect}
	}
	switch {
	case s.completedIn && cur.Outcome.agrees(told):
		return step{done: stand, write: s.attach(), stands: true}
	case cur.Outcome == told:
		return step{done: stand} // our own write, whose answer was lost
	}
	next := cur.Clone()
	if cur.State == Unknown || cur.Outcome.Class == OutcomeUnknown {
		stamps := closeRecord(&next)
		next.Outcome = told
		stamps.EvidenceAt = In(0)
		ev := Evidence{Kind: EvidenceResolved, Attempt: cur.Attempt, Outcome: told, Reason: "the owner reported late"}
		if next.AddEvidence(ev) == nil {
			return step{write: &Write{Record: next, IfRev: cur.Rev, IfToken: cur.Token, Stamps: stamps}}
		}
	}
	out := step{done: stand, err: fmt.Errorf("%s: %w", s.rep.call, ErrSettled)}
	if s.undoable || s.completedIn && s.rep.state == Failed {
		// The owner takes for undone what it had committed: it stands.
		return out
	}
	out.contradicted = true
	next = cur.Clone()
	if next.AddEvidence(Evidence{Kind: EvidenceContradicted, Attempt: cur.Attempt, Outcome: told}) == nil {
		out.write = &Write{Record: next, IfRev: cur.Rev, IfToken: cur.Token, Stamps: Stamps{EvidenceAt: In(0)}}
	}
	return out
}

// attach is the write that adds the response to a record that the owner's own
// transaction completed; nil where there is none to keep.
func (s *settling) attach() *Write {
	cur := s.current
	if s.rep.response == nil || cur.State != Completed || cur.HasResponse || cur.Observed || cur.Erased || s.op.Replay() <= 0 ||
		cur.Outcome.Status != 0 && cur.Outcome.Status != s.rep.outcome.Status {
		return nil
	}
	next := cur.Clone()
	next.HasResponse = true
	return &Write{
		Record: next, IfRev: cur.Rev, IfToken: cur.Token, Response: s.rep.response,
		Stamps: Stamps{ReplayUntil: In(s.op.Replay())},
	}
}

// settle is the write that puts the report on an open or failed record.
func (s *settling) settle(extra *Evidence) *Write {
	next := s.current.Clone()
	evidence := s.rep.evidence
	if extra != nil {
		evidence = *extra
	}
	w := &s.first
	if s.tried {
		w = &Write{}
	}
	s.tried = true
	w.IfRev, w.IfToken = s.current.Rev, s.current.Token
	to := s.rep.state
	if to == Failed && s.current.redispatched() {
		// That this sending came to nothing says nothing of those before it.
		to = Unknown
	}
	if to != Failed && !next.Dispatched {
		// A handler that marks no dispatch counts as dispatched from the claim.
		next.Dispatched, next.FirstDispatch, next.LastDispatch, next.Gates = true, next.ClaimedAt, next.ClaimedAt, nil
		for _, g := range s.op.Gates {
			next.Gates = append(next.Gates, Gate{Name: g.Name, Until: instantAfter(next.ClaimedAt, g.For)})
		}
	}
	w.Stamps = settleRecord(&next, s.op, to, s.rep.outcome, ProofStated)
	if s.rep.state == Completed && s.rep.response != nil && s.op.Replay() > 0 && !next.Observed {
		next.HasResponse = true
		w.Response = s.rep.response
		w.Stamps.ReplayUntil = In(s.op.Replay())
	}
	if evidence.Kind != 0 {
		evidence.Attempt = next.Attempt
		if next.AddEvidence(evidence) == nil {
			w.Stamps.EvidenceAt = In(0)
		}
	}
	w.Record = next
	return w
}

// settleRecord moves r to Completed, Failed or Unknown under op and returns the
// instants to stamp. The horizon counts from completion, or from t_quiet for
// an unknown outcome (design.md §3).
func settleRecord(r *Record, op *policy.Operation, to State, out Outcome, proof Proof) Stamps {
	r.State, r.Outcome, r.HasResponse = to, out, false
	r.Proof = ProofNone
	r.Horizon = time.Time{}
	switch to {
	case Completed:
		r.Reference = ""
		return Stamps{SettledAt: In(0), Horizon: In(op.Retention())}
	case Failed:
		r.Proof, r.Outcome = proof, Outcome{}
		return Stamps{SettledAt: In(0), Horizon: In(op.TTL())}
	}
	r.Horizon = closesAt(r, op)
	return Stamps{}
}

// closeRecord makes a tombstone of an unknown record whose own time has come,
// as a sweep would, and returns the instants to stamp.
func closeRecord(r *Record) Stamps {
	if r.State != Unknown {
		return Stamps{}
	}
	r.State, r.Token, r.Reference = Tombstone, Token{}, ""
	return Stamps{SettledAt: In(0)}
}

// closesAt is when an unknown record becomes a tombstone by itself; zero under
// on_unknown: hold. A redispatch window is waited out first.
func closesAt(r *Record, op *policy.Operation) time.Time {
	if op.OnUnknown.Rule == policy.UnknownHold {
		return time.Time{}
	}
	t := r.QuietAt.Add(op.Retention())
	if op.OnUnknown.Rule == policy.UnknownRedispatch {
		if w := r.FirstDispatch.Add(op.OnUnknown.Within); w.After(t) {
			t = w
		}
	}
	return t
}

// background retries try until it returns true, the time is up, or the engine
// is closed; then it calls done.
func (e *Engine) background(until time.Time, try func(context.Context) bool, done func()) {
	e.ending.Lock()
	if e.closing {
		e.ending.Unlock()
		done()
		return
	}
	e.wg.Add(1)
	e.ending.Unlock()
	e.unsettle.Add(1)
	go func() {
		defer e.wg.Done()
		defer e.unsettle.Add(-1)
		defer done()
		pause := 50 * time.Millisecond
		for time.Now().Before(until) {
			t := time.NewTimer(min(pause, time.Until(until)))
			select {
			case <-e.stop.Done():
				t.Stop()
				return
			case <-t.C:
			}
			pause = min(2*pause, 2*time.Second)
			ctx, cancel := context.WithTimeout(e.stop, e.o.StoreTimeout)
			ok := try(ctx)
			cancel()
			if ok {
				return
			}
		}
	}()
}

// maxDisowned bounds the claims being taken back at one time; beyond it they
// lapse instead, and become unknown.
const maxDisowned = 1000

// writesLand is how long after its caller gave up a write may still be done.
const writesLand = 15 * time.Second

// disown takes back a claim whose creation was not confirmed: the effect was
// never attempted, so if it stands after all it is failed, by our own word. In a
// transaction the caller takes it back, by rolling back.
func (b *book) disown(op *policy.Operation, rec Record, start time.Time) {
	if b.tx != nil || b.e.unsettle.Load() >= maxDisowned {
		return
	}
	bk := *b // b itself ends with its Begin
	bk.e.background(start.Add(op.QuietAfter()), func(ctx context.Context) bool {
		snap, err := bk.store.Get(ctx, rec.ID)
		if errors.Is(err, ErrNotFound) || err == nil && snap.Record.Token != rec.Token {
			// It may still be under way to the store.
			return time.Since(start) > writesLand
		}
		if err != nil {
			return false
		}
		s := newSettling(bk, op, &snap.Record, report{
			call: "fail", state: Failed,
			evidence: Evidence{Kind: EvidenceFailed, Reason: "the claim was not confirmed in time, and the effect not attempted"},
		})
		_, err = s.run(ctx)
		return err == nil || s.final(err)
	}, func() {})
}
