package storetest_test

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/storetest"
)

// mutant is a store with one fault planted in it. What is nil is left right.
type mutant struct {
	counterfoil.Store
	clock *storetest.Clock
	mu    sync.Mutex // guards cache
	cache map[counterfoil.ID][]byte

	create   func(m *mutant, d counterfoil.Draft) (counterfoil.Standing, error)
	update   func(m *mutant, w *counterfoil.Write)
	updated  func(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, bool)
	response func(m *mutant, id counterfoil.ID, rev uint64) ([]byte, error)
	query    func(q *counterfoil.Query)
	records  func(m *mutant, r *counterfoil.Records)
	overdue  func(m *mutant, r *counterfoil.Records)
	sweep    func(m *mutant, o *counterfoil.SweepOrder)
	swept    func(r *counterfoil.SweepReport)
	setMeta  func(m *mutant, name string) uint64
	stats    func(s *counterfoil.Stats)
	open     bool // stays open after Close
}

var background = context.Background()

func (m *mutant) Create(ctx context.Context, d *counterfoil.Draft) (counterfoil.Standing, error) {
	if m.create != nil {
		return m.create(m, *d)
	}
	return m.Store.Create(ctx, d)
}

func (m *mutant) Update(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, error) {
	if m.updated != nil {
		if snap, done := m.updated(ctx, w); done {
			return snap, nil
		}
	}
	v := *w
	if m.update != nil {
		m.update(m, &v)
	}
	return m.Store.Update(ctx, &v)
}

func (m *mutant) Response(ctx context.Context, id counterfoil.ID, rev uint64) ([]byte, error) {
	if m.response != nil {
		return m.response(m, id, rev)
	}
	return m.Store.Response(ctx, id, rev)
}

func (m *mutant) Scan(ctx context.Context, q counterfoil.Query) (counterfoil.Records, error) {
	if m.query != nil {
		m.query(&q)
	}
	r, err := m.Store.Scan(ctx, q)
	if m.records != nil {
		m.records(m, &r)
	}
	return r, err
}

func (m *mutant) Overdue(ctx context.Context, q counterfoil.Page) (counterfoil.Records, error) {
	r, err := m.Store.Overdue(ctx, q)
	if m.overdue != nil && err == nil {
		m.overdue(m, &r)
	}
	return r, err
}

func (m *mutant) Sweep(ctx context.Context, o counterfoil.SweepOrder) (counterfoil.SweepReport, error) {
	if m.sweep != nil {
		m.sweep(m, &o)
	}
	r, err := m.Store.Sweep(ctx, o)
	if m.swept != nil {
		m.swept(&r)
	}
	return r, err
}

func (m *mutant) SetMeta(ctx context.Context, name string, ifRev uint64, value []byte) (uint64, error) {
	if m.setMeta != nil {
		ifRev = m.setMeta(m, name)
	}
	return m.Store.SetMeta(ctx, name, ifRev, value)
}

func (m *mutant) Stats(ctx context.Context) (counterfoil.Stats, error) {
	s, err := m.Store.Stats(ctx)
	if m.stats != nil && err == nil {
		m.stats(&s)
	}
	return s, err
}

func (m *mutant) Close() error {
	if m.open {
		return nil
	}
	return m.Store.Close()
}

// ease writes on every record before a sweep, as a sweeper would judge that
// does not see what change takes away.
func ease(change func(r *counterfoil.Record) bool) func(*mutant, *counterfoil.SweepOrder) {
	return func(m *mutant, o *counterfoil.SweepOrder) {
		page, _ := m.Store.Scan(background, counterfoil.Query{Page: counterfoil.Page{Limit: 1 << 20}})
		for _, r := range page.Records {
			w := counterfoil.Write{Record: r.Clone(), IfRev: r.Rev, IfToken: r.Token}
			if change(&w.Record) {
				m.Store.Update(background, &w)
			}
		}
	}
}

// mutants are the faults, each with the subtest that must find it. Those with a
// model mark must be found by Compare as well.
var mutants = []struct {
	name, test string
	model      bool
	plant      func(m *mutant)
}{
	{"update ignores token and rev", "P5_a_late_owner_is_powerless", true, func(m *mutant) {
		m.update = func(m *mutant, w *counterfoil.Write) {
			if snap, err := m.Get(background, w.Record.ID); err == nil {
				w.IfRev, w.IfToken = snap.Record.Rev, snap.Record.Token
			}
		}
	}},
	{"update ignores rev", "one_of_many_writes_on_the_same_rev_is_done", true, func(m *mutant) {
		m.update = func(m *mutant, w *counterfoil.Write) {
			if snap, err := m.Get(background, w.Record.ID); err == nil && snap.Record.Token == w.IfToken {
				w.IfRev = snap.Record.Rev
			}
		}
	}},
	{"create in two steps", "C29_claim_is_atomic", false, func(m *mutant) {
		m.create = func(m *mutant, d counterfoil.Draft) (counterfoil.Standing, error) {
			_, err := m.Get(background, d.Record.ID)
			runtime.Gosched()
			st, cerr := m.Store.Create(background, &d)
			if err != nil && st.Record.Rev == 1 {
				st.Created = true
			}
			return st, cerr
		}
	}},
	{"own token not known again", "C73_one's_own_token_is_a_success", true, func(m *mutant) {
		m.create = func(m *mutant, d counterfoil.Draft) (counterfoil.Standing, error) {
			snap, err := m.Get(background, d.Record.ID)
			if err == nil {
				return counterfoil.Standing{Snapshot: snap}, nil
			}
			return m.Store.Create(background, &d)
		}
	}},
	{"no token taken for one's own", "C73_no_token_is_nobody's", false, func(m *mutant) {
		m.create = func(m *mutant, d counterfoil.Draft) (counterfoil.Standing, error) {
			st, err := m.Store.Create(background, &d)
			st.Created = st.Created || err == nil && st.Record.Rev > 0 && st.Record.Token == d.Record.Token
			return st, err
		}
	}},
	{"lease in whole seconds", "C26_durations_are_kept_in_their_unit_and_never_end_early", true, func(m *mutant) {
		m.create = func(m *mutant, d counterfoil.Draft) (counterfoil.Standing, error) {
			if lease, ok := d.Stamps.LeaseUntil.Get(); ok {
				d.Stamps.LeaseUntil = counterfoil.In(lease.Truncate(time.Second))
			}
			return m.Store.Create(background, &d)
		}
	}},
	{"lease for ever where none is given", "C72_no_in-progress_record_without_a_deadline", false, func(m *mutant) {
		m.create = func(m *mutant, d counterfoil.Draft) (counterfoil.Standing, error) {
			if _, ok := d.Stamps.LeaseUntil.Get(); !ok && d.Record.LeaseUntil.IsZero() {
				d.Stamps.LeaseUntil = counterfoil.In(1e6 * time.Hour)
			}
			return m.Store.Create(background, &d)
		}
	}},
	{"F ignored by create", "F_keeps_a_key_out_that_was_not_born_after_it", true, func(m *mutant) {
		m.create = func(m *mutant, d counterfoil.Draft) (counterfoil.Standing, error) {
			d.Born = time.Time{}
			return m.Store.Create(background, &d)
		}
	}},
	{"F compared with or-equal", "F_keeps_a_key_out_that_was_not_born_after_it", false, func(m *mutant) {
		m.create = func(m *mutant, d counterfoil.Draft) (counterfoil.Standing, error) {
			if !d.Born.IsZero() {
				d.Born = d.Born.Add(time.Millisecond)
			}
			return m.Store.Create(background, &d)
		}
	}},
	{"quota ignored by create", "P13_a_principal_over_quota_is_refused_and_loses_nothing", true, func(m *mutant) {
		m.create = func(m *mutant, d counterfoil.Draft) (counterfoil.Standing, error) {
			d.MaxOpen = 0
			return m.Store.Create(background, &d)
		}
	}},
	{"quota ignored by update", "P13_a_write_that_opens_a_record_is_bounded,_one_that_keeps_it_open_is_not", true, func(m *mutant) {
		m.update = func(_ *mutant, w *counterfoil.Write) { w.MaxOpen = 0 }
	}},
	{"quota of one more", "P13_callers_at_once_do_not_pass_the_bound", true, func(m *mutant) {
		m.create = func(m *mutant, d counterfoil.Draft) (counterfoil.Standing, error) {
			if d.MaxOpen > 0 {
				d.MaxOpen++
			}
			return m.Store.Create(background, &d)
		}
	}},
	{"completion drops the fingerprint", "C67_completing_a_record_loses_no_part_of_it", true, func(m *mutant) {
		m.update = func(_ *mutant, w *counterfoil.Write) {
			if w.Record.State == counterfoil.Completed {
				w.Record.Fingerprint = counterfoil.Fingerprint{}
			}
		}
	}},
	{"a field of evidence is lost", "C67_records_come_back_as_they_were_written,_to_the_last_field", false, func(m *mutant) {
		m.update = func(_ *mutant, w *counterfoil.Write) {
			w.Record = w.Record.Clone()
			if n := len(w.Record.Evidence); n > 0 {
				w.Record.Evidence[n-1].Outcome.Status = 0
			}
		}
	}},
	{"update writes into the caller's record", "Update_replaces_the_record_and_raises_its_rev", false, func(m *mutant) {
		m.updated = func(_ context.Context, w *counterfoil.Write) (counterfoil.Snapshot, bool) {
			w.Record.Attempt++
			return counterfoil.Snapshot{}, false
		}
	}},
	{"update says done and is not", "a_caller_who_has_given_up_gets_an_error_or_a_true_answer", false, func(m *mutant) {
		m.updated = func(ctx context.Context, w *counterfoil.Write) (counterfoil.Snapshot, bool) {
			return counterfoil.Snapshot{Record: w.Record}, ctx.Err() != nil
		}
	}},
	{"every write drops the response", "a_response_is_attached,_kept,_replaced_and_dropped_with_its_record", true, func(m *mutant) {
		m.update = func(_ *mutant, w *counterfoil.Write) { w.Record.HasResponse = false }
	}},
	{"an empty response is none", "P9_a_response_comes_back_byte_for_byte,_empty_and_large", true, func(m *mutant) {
		m.update = func(_ *mutant, w *counterfoil.Write) {
			if len(w.Response) == 0 {
				w.Response = nil
			}
		}
	}},
	{"long responses cut", "P9_a_response_comes_back_byte_for_byte,_empty_and_large", false, func(m *mutant) {
		m.update = func(_ *mutant, w *counterfoil.Write) {
			if len(w.Response) > 1<<16 {
				w.Response = w.Response[:1<<16]
			}
		}
	}},
	{"response handed out at any rev", "a_response_of_another_rev_is_never_handed_out", true, func(m *mutant) {
		m.response = func(m *mutant, id counterfoil.ID, rev uint64) ([]byte, error) {
			if snap, err := m.Get(background, id); err == nil {
				rev = snap.Record.Rev
			}
			return m.Store.Response(background, id, rev)
		}
	}},
	{"response shared between callers", "what_is_handed_in_and_out_is_copied", false, func(m *mutant) {
		m.cache = make(map[counterfoil.ID][]byte)
		m.response = func(m *mutant, id counterfoil.ID, rev uint64) ([]byte, error) {
			b, err := m.Store.Response(background, id, rev)
			m.mu.Lock()
			defer m.mu.Unlock()
			if c := m.cache[id]; err == nil && len(c) == len(b) {
				return c, nil
			}
			m.cache[id] = b
			return b, err
		}
	}},
	{"equality is overdue", "C74_equality_is_alive", true, func(m *mutant) {
		m.overdue = func(m *mutant, r *counterfoil.Records) {
			page, _ := m.Store.Scan(background, counterfoil.Query{State: counterfoil.InProgress})
			for _, x := range page.Records {
				if x.LeaseUntil.Equal(r.AsOf) {
					r.Records = append(r.Records, x)
				}
			}
		}
	}},
	{"overdue forgets the second page", "overdue_claims_come_in_pages,_each_of_them_once", true, func(m *mutant) {
		m.overdue = func(_ *mutant, r *counterfoil.Records) { r.Next = nil }
	}},
	{"scan forgets the second page", "Scan_finds_what_the_query_selects_and_nothing_else", true, func(m *mutant) {
		m.records = func(_ *mutant, r *counterfoil.Records) { r.Next = nil }
	}},
	{"scan ignores the principal", "Scan_finds_what_the_query_selects_and_nothing_else", true, func(m *mutant) {
		m.query = func(q *counterfoil.Query) { q.Principal = counterfoil.PrincipalDigest{} }
	}},
	{"scan ignores the age", "Scan_finds_what_the_query_selects_and_nothing_else", true, func(m *mutant) {
		m.query = func(q *counterfoil.Query) { q.CreatedBefore = time.Time{} }
	}},
	{"time goes back", "P10_the_store's_time_does_not_go_back", true, func(m *mutant) {
		m.records = func(m *mutant, r *counterfoil.Records) { r.AsOf = m.clock.Now() }
	}},
	{"sweep ignores gates", "P11_gates_and_holds_keep_records,_and_are_counted", true, func(m *mutant) {
		m.sweep = ease(func(r *counterfoil.Record) bool { had := len(r.Gates) > 0; r.Gates = nil; return had })
	}},
	{"sweep ignores holds", "P11_a_record_held_or_lengthened_after_it_was_announced_stays", true, func(m *mutant) {
		m.sweep = ease(func(r *counterfoil.Record) bool { had := len(r.Holds) > 0; r.Holds = nil; return had })
	}},
	{"sweep takes unknown records", "C42_sweep_spares_open_records", true, func(m *mutant) {
		m.sweep = ease(func(r *counterfoil.Record) bool {
			was := r.State == counterfoil.Unknown
			if was {
				r.State, r.Horizon = counterfoil.Failed, r.CreatedAt
			}
			return was
		})
	}},
	{"sweep takes records without a horizon", "P11_a_settled_record_without_a_horizon_is_never_deleted", false, func(m *mutant) {
		m.sweep = ease(func(r *counterfoil.Record) bool {
			bare := r.State.Settled() && r.Horizon.IsZero()
			if bare {
				r.Horizon = r.CreatedAt
			}
			return bare
		})
	}},
	{"sweep knows no grace", "a_record_is_announced,_answers_for_the_grace,_and_goes", true, func(m *mutant) {
		m.sweep = func(_ *mutant, o *counterfoil.SweepOrder) { o.Grace = 0 }
	}},
	{"sweep never deletes", "C42_sweep_spares_open_records", true, func(m *mutant) {
		m.sweep = func(_ *mutant, o *counterfoil.SweepOrder) { o.Grace = 1e6 * time.Hour }
	}},
	{"sweep knows no limit", "C41_a_batch_never_exceeds_its_limit", false, func(m *mutant) {
		m.sweep = func(_ *mutant, o *counterfoil.SweepOrder) { o.Limit = 0 }
	}},
	{"sweep never goes on", "C81_a_sweep_that_is_given_up_has_made_progress,_and_the_next_goes_on", true, func(m *mutant) {
		m.swept = func(r *counterfoil.SweepReport) { r.Next = nil }
	}},
	{"sweep ignores skew", "P10_clocks_that_differ_too_much_delete_nothing", true, func(m *mutant) {
		m.sweep = func(_ *mutant, o *counterfoil.SweepOrder) { o.Now = time.Time{} }
	}},
	{"sweep ignores the earlier clock", "P10_the_earlier_of_two_clocks_decides", false, func(m *mutant) {
		m.sweep = func(m *mutant, o *counterfoil.SweepOrder) {
			if page, _ := m.Store.Scan(background, counterfoil.Query{}); o.Now.Sub(page.AsOf).Abs() <= counterfoil.MaxClockSkew {
				o.Now = time.Time{}
			}
		}
	}},
	{"sweep counts nothing kept", "P11_gates_and_holds_keep_records,_and_are_counted", true, func(m *mutant) {
		m.swept = func(r *counterfoil.SweepReport) { r.Kept = nil }
	}},
	{"meta without compare", "a_value_is_set_on_the_rev_that_was_read", true, func(m *mutant) {
		m.setMeta = func(m *mutant, name string) uint64 {
			v, _ := m.Meta(background, name)
			return v.Rev
		}
	}},
	{"stats forget the overdue", "Stats_are_a_recount,_after_every_kind_of_change", true, func(m *mutant) {
		m.stats = func(s *counterfoil.Stats) {
			for op, o := range s.Operations {
				o.Overdue = 0
				s.Operations[op] = o
			}
		}
	}},
	{"stats count one too few", "Stats_count_right_beside_callers", true, func(m *mutant) {
		m.stats = func(s *counterfoil.Stats) {
			for op, o := range s.Operations {
				o.Records[counterfoil.Failed] = max(0, o.Records[counterfoil.Failed]-1)
				s.Operations[op] = o
			}
		}
	}},
	{"open after close", "after_Close_everything_is_ErrClosed", false, func(m *mutant) { m.open = true }},
}
