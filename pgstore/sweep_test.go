package pgstore_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/migrate"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
	"github.com/counterfoil/counterfoil/storetest"
	"github.com/counterfoil/counterfoil/sweep"
)

func idOf(name string, n int) counterfoil.ID {
	sum := sha256.Sum256(binary.AppendUvarint([]byte(name), uint64(n)))
	return counterfoil.ID(sum[:20])
}

// tombstone is a settled record whose horizon is d from now.
func tombstone(id counterfoil.ID, d time.Duration) *counterfoil.Draft {
	return &counterfoil.Draft{
		Record: counterfoil.Record{ID: id, Operation: 1, State: counterfoil.Tombstone, Attempt: 1, Policy: 1},
		Stamps: counterfoil.Stamps{CreatedAt: counterfoil.In(-time.Hour), SettledAt: counterfoil.In(-time.Hour), Horizon: counterfoil.In(d)},
	}
}

// fill inserts n records, many at a time.
func fill(t testing.TB, s counterfoil.Store, name string, n int, d time.Duration) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < n; i += 64 {
				if _, err := s.Create(context.Background(), tombstone(idOf(name, i), d)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func count(t testing.TB, url string) int64 {
	t.Helper()
	return pgtest.Value[int64](t, url, "SELECT count(*) FROM counterfoil_records")
}

// Of still-valid (expires in an hour) and expired (a minute ago) the sweep
// leaves only still-valid: by the store, and by the procedure for pg_cron.
func TestSweepLeavesWhatIsValid(t *testing.T) {
	for _, by := range []string{"store", "procedure"} {
		t.Run(by, func(t *testing.T) {
			url := database(t)
			s := open(t, url, lossy)
			valid, expired := idOf("still-valid", 0), idOf("expired", 0)
			for id, d := range map[counterfoil.ID]time.Duration{valid: time.Hour, expired: -time.Minute} {
				if _, err := s.Create(t.Context(), tombstone(id, d)); err != nil {
					t.Fatal(err)
				}
			}
			if by == "store" {
				rep, err := s.Sweep(t.Context(), counterfoil.SweepOrder{})
				if err != nil || rep.TombstonesDeleted != 1 {
					t.Fatalf("%+v, %v", rep, err)
				}
			} else {
				pgtest.Exec(t, url, "CALL counterfoil_sweep_pass('0')")
				last, err := sweep.LastRun(t.Context(), s)
				if err != nil || last.Deleted != 1 || time.Since(last.Run).Abs() > time.Minute {
					t.Fatalf("the note of the pass: %+v, %v", last, err)
				}
			}
			if left := pgtest.Value[[]byte](t, url, "SELECT id FROM counterfoil_records"); string(left) != string(valid[:]) {
				t.Fatalf("left is %x, want %s", left, valid)
			}
		})
	}
}

// C41: a batch never looks at, or deletes, more than its limit, whatever plan
// the server makes for it.
func TestC41NoPlanExceedsTheLimit(t *testing.T) {
	methods := []string{"enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_seqscan", "enable_nestloop", "enable_hashjoin", "enable_mergejoin", "enable_material", "enable_sort"}
	for _, partitions := range []int{0, 4} {
		url := databaseWith(t, migrate.Options{Partitions: partitions})
		s := open(t, url, lossy)
		const n, limit = 400, 7
		fill(t, s, "due", n, -time.Minute)
		deleted := 0
		for i := range 1 << len(methods) {
			if i%9 != 0 { // a spread of the 512 combinations
				continue
			}
			var off []string
			for k, m := range methods {
				if i>>k&1 == 1 {
					off = append(off, m+"=off")
				}
			}
			off = append(off, "plan_cache_mode="+[]string{"force_generic_plan", "force_custom_plan"}[i%2])
			one := open(t, with(t, url, off...), lossy)
			before := count(t, url)
			rep, err := one.Sweep(t.Context(), counterfoil.SweepOrder{Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			one.Close()
			gone := int(before - count(t, url))
			if rep.Examined > limit || gone > limit || gone != rep.TombstonesDeleted {
				t.Fatalf("with %v: examined %d, deleted %d, reported %d; the limit is %d", off, rep.Examined, gone, rep.TombstonesDeleted, limit)
			}
			deleted += gone
		}
		if deleted < n/2 {
			t.Errorf("only %d records were deleted in all", deleted)
		}
	}
}

// C81: a statement_timeout that a whole batch does not meet does not stop the
// sweep for ever.
func TestC81SweepUnderStatementTimeout(t *testing.T) {
	url := database(t)
	s := open(t, url, lossy)
	const n = 12_000
	fill(t, s, "due", n, -time.Minute)
	slow := open(t, with(t, url, "statement_timeout=60ms"), lossy)
	var o counterfoil.SweepOrder
	deadline := time.Now().Add(time.Minute)
	for deleted := 0; deleted < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d records are left", count(t, url), n)
		}
		rep, err := slow.Sweep(t.Context(), o)
		if err != nil {
			continue // on a machine this busy even the smallest batch may be late
		}
		deleted += rep.TombstonesDeleted
		o.Cursor = rep.Next
	}
	if left := count(t, url); left != 0 {
		t.Fatalf("%d records are left", left)
	}
	if !strings.Contains(pgtest.Shared(t).Log(), "canceling statement due to statement timeout") {
		t.Error("no batch ran into the timeout: the test shows nothing")
	}
}

// C42: what somebody else holds, and what is open, is passed over at once.
func TestSweepPassesOverWhatIsHeld(t *testing.T) {
	url := database(t)
	s := open(t, url, lossy)
	fill(t, s, "due", 20, -time.Minute)
	conn := connect(t, url)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	held := idOf("due", 3)
	if _, err := tx.Exec(t.Context(), "SELECT FROM counterfoil_records WHERE id = $1 FOR UPDATE", held[:]); err != nil {
		t.Fatal(err)
	}
	rep, err := s.Sweep(t.Context(), counterfoil.SweepOrder{})
	if err != nil || rep.TombstonesDeleted != 19 {
		t.Fatalf("beside a held record: %+v, %v", rep, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rep, err = s.Sweep(t.Context(), counterfoil.SweepOrder{}); err != nil || rep.TombstonesDeleted != 1 {
		t.Fatalf("after it was let go: %+v, %v", rep, err)
	}
}

// The procedure for pg_cron does what the store does: two databases with the
// same records, swept in the two ways, hold the same afterwards.
func TestProcedureSweepsByTheSameRules(t *testing.T) {
	var dumps [2]string
	for i := range dumps {
		url := database(t)
		clock := storetest.NewClock()
		s := newTimed(t, url, open(t, url, lossy), clock)
		n := 0
		for _, state := range []counterfoil.State{counterfoil.InProgress, counterfoil.Unknown, counterfoil.Failed, counterfoil.Completed, counterfoil.Tombstone, counterfoil.Announced} {
			for _, gated := range []time.Duration{0, -time.Hour, time.Hour} {
				for _, held := range []bool{false, true} {
					for _, due := range []time.Duration{-time.Hour, time.Hour} {
						n++
						r := counterfoil.Record{
							ID: idOf("rules", n), Operation: 1 + counterfoil.OperationNumber(n%3), State: state, Attempt: 1, Policy: 1, Token: counterfoil.Token{1, byte(n)},
							CreatedAt: clock.Now().Add(-time.Duration(n) * time.Minute), LeaseUntil: clock.Now().Add(due),
							ReplayUntil: clock.Now().Add(due), Horizon: clock.Now().Add(due),
						}
						if gated != 0 {
							r.Gates = []counterfoil.Gate{{Name: "settlement", Until: clock.Now().Add(gated)}}
						}
						if held {
							r.Holds = []counterfoil.Hold{{At: clock.Now(), Actor: "ana", Reason: "audit"}}
						}
						if _, err := s.Create(t.Context(), &counterfoil.Draft{Record: r}); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
		const grace = 30 * time.Second
		for range 3 {
			if i == 0 {
				for o := (counterfoil.SweepOrder{Limit: 10, Grace: grace}); ; {
					rep, err := s.Sweep(t.Context(), o)
					if err != nil {
						t.Fatal(err)
					}
					if o.Cursor = rep.Next; o.Cursor == nil {
						break
					}
				}
			} else {
				s.tell()
				pgtest.Exec(t, url, "CALL counterfoil_sweep_pass('30 seconds', 10)")
			}
			clock.Advance(20 * time.Second)
		}
		dumps[i] = pgtest.Value[string](t, url, "SELECT json_agg(r ORDER BY r.id)::text FROM counterfoil_records r") +
			pgtest.Value[string](t, url, "SELECT json_agg(f ORDER BY f.operation)::text FROM counterfoil_forgotten f")
	}
	if dumps[0] != dumps[1] {
		t.Errorf("the store left\n%s\nthe procedure left\n%s", dumps[0], dumps[1])
	}
	if n := strings.Count(dumps[0], `"rev"`); n < 20 || n > 66 {
		t.Errorf("%d of 72 records are left: the rules were not put to the test", n)
	}
}

// Responses are in the partition of the day on which they expire; a day that
// is over is dropped whole, and the days ahead are there before they are needed.
func TestDaysOfResponses(t *testing.T) {
	url := database(t)
	clock := storetest.NewClock()
	s := newTimed(t, url, open(t, url, lossy), clock)
	s.tell()
	pgtest.Exec(t, url, "SELECT counterfoil_days(40, false)")
	complete := func(n int, replay time.Duration) counterfoil.Record {
		d := tombstone(idOf("days", n), 1000*time.Hour)
		d.Record.State, d.Record.Token = counterfoil.Completed, counterfoil.NewToken()
		st, err := s.Create(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		w := &counterfoil.Write{Record: st.Record, IfRev: 1, IfToken: st.Record.Token, Response: []byte("answer"), Stamps: counterfoil.Stamps{ReplayUntil: counterfoil.In(replay)}}
		snap, err := s.Update(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		return snap.Record
	}
	soon, later, never := complete(1, 24*time.Hour), complete(2, 30*24*time.Hour), complete(3, 3000*24*time.Hour)
	for r, want := range map[*counterfoil.Record]string{
		&soon: "counterfoil_responses_20260305", &later: "counterfoil_responses_20260403", &never: "counterfoil_responses_default",
	} {
		if got := pgtest.Value[string](t, url, "SELECT tableoid::regclass::text FROM counterfoil_responses WHERE id = $1", r.ID[:]); got != want {
			t.Errorf("the response that expires %s is in %s, want %s", r.ReplayUntil, got, want)
		}
		if b, err := s.Response(t.Context(), r.ID, r.Rev); err != nil || string(b) != "answer" {
			t.Errorf("response: %q, %v", b, err)
		}
	}
	sweepAll := func() {
		t.Helper()
		for o := (counterfoil.SweepOrder{}); ; {
			rep, err := s.Sweep(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if o.Cursor = rep.Next; o.Cursor == nil {
				return
			}
		}
	}
	there := func(name string) bool {
		return pgtest.Value[bool](t, url, "SELECT to_regclass($1) IS NOT NULL", name)
	}
	clock.Advance(3 * 24 * time.Hour)
	sweepAll()
	if there("counterfoil_responses_20260305") {
		t.Error("a day that is over was not dropped")
	}
	if !there("counterfoil_responses_20260403") || !there("counterfoil_responses_20260416") {
		t.Error("days that lie ahead are not there")
	}
	if b, err := s.Response(t.Context(), later.ID, later.Rev); err != nil || string(b) != "answer" {
		t.Errorf("a response of a day that is not over: %q, %v", b, err)
	}
	if snap, err := s.Get(t.Context(), soon.ID); err != nil || snap.Record.State != counterfoil.Tombstone || snap.Record.HasResponse {
		t.Errorf("its record: %+v, %v", snap.Record, err)
	}
	// Somebody reads responses in a long transaction: nobody queues behind the
	// day that cannot be dropped.
	reader := connect(t, url)
	tx, err := reader.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM counterfoil_responses"); err != nil {
		t.Fatal(err)
	}
	clock.Advance(40 * 24 * time.Hour)
	sweepAll()
	if !there("counterfoil_responses_20260403") {
		t.Error("a day was dropped that a transaction had open")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	sweepAll()
	if there("counterfoil_responses_20260403") {
		t.Error("the day was not dropped afterwards")
	}
	// What belongs to no day that was made is deleted with its record.
	clock.Advance(3000 * 24 * time.Hour)
	sweepAll()
	if n := pgtest.Value[int64](t, url, "SELECT count(*) FROM counterfoil_responses"); n != 0 {
		t.Errorf("%d responses are left", n)
	}
}

// A lock table that is too small for a batch makes it smaller, and loses nothing.
func TestFullLockTable(t *testing.T) {
	s := pgtest.Start(t, pgtest.Options{Settings: map[string]string{"max_locks_per_transaction": "10", "max_connections": "10", "max_wal_senders": "0", "max_prepared_transactions": "0", "autovacuum_max_workers": "1", "max_worker_processes": "0"}})
	url := s.Database(t)
	if _, err := migrate.Up(t.Context(), url, migrate.Options{}); err != nil {
		t.Fatal(err)
	}
	o := lossy
	o.Batch, o.Workers = 5000, 1
	fill2 := open(t, url, o)
	var wg sync.WaitGroup
	for i := range 3000 {
		wg.Go(func() {
			st, err := fill2.Create(context.Background(), tombstone(idOf("locks", i), time.Hour))
			if err != nil || !st.Created {
				t.Errorf("record %d: %+v, %v", i, st, err)
			}
		})
	}
	wg.Wait()
	if n := count(t, url); n != 3000 {
		t.Errorf("%d records stand, want 3000", n)
	}
	if !strings.Contains(s.Log(), "out of shared memory") {
		t.Error("the lock table was never full: the test shows nothing")
	}
}

// C79: pools of one and of five, 50 keys and 50 duplicates of one more, through
// engines that wait and through transactions of the caller's: all end, and
// nothing is left idle in a transaction.
func TestC79SmallPools(t *testing.T) {
	for _, size := range []int{1, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			b := newBank(t, 2*time.Second)
			url := with(t, b.url, fmt.Sprintf("pool_max_conns=%d", size))
			store := open(t, url, lossy)
			e, err := counterfoil.Open(t.Context(), store, b.engine.Policy(), counterfoil.Options{StoreTimeout: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close(context.Background())
			small := *b
			small.store, small.engine, small.pool = store, e, poolOf(t, url)
			var wg sync.WaitGroup
			for i := range 100 {
				key := "one"
				if i < 50 {
					key = fmt.Sprintf("k%d", i)
				}
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					for ctx.Err() == nil {
						d, err := small.store.Do(ctx, e, small.pool, pgx.TxOptions{}, b.request(key), func(ctx context.Context, tx pgx.Tx, _ *counterfoil.Claim) (counterfoil.Result, error) {
							return transfer(ctx, tx, key)
						})
						if err != nil {
							t.Errorf("%s: %v", key, err)
							return
						}
						if d.Verdict != counterfoil.VerdictInProgress {
							return
						}
					}
					t.Errorf("%s: hangs", key)
				})
				wg.Go(func() { // and through the store's own connections
					d, err := e.Begin(context.Background(), b.request("plain-"+key))
					if err != nil {
						t.Errorf("%s: %v", key, err)
						return
					}
					if d.Claim != nil {
						if _, err := d.Claim.Complete(context.Background(), counterfoil.Outcome{Class: counterfoil.Succeeded}, nil); err != nil {
							t.Errorf("%s: %v", key, err)
						}
					}
				})
			}
			wg.Wait()
			b.balanced(51)
			if n := pgtest.Value[int64](t, b.url, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"); n != 0 {
				t.Errorf("%d connections are idle in a transaction", n)
			}
		})
	}
}

// Sizes are there for records and responses, split or not.
func TestStatsBytes(t *testing.T) {
	for _, partitions := range []int{0, 4} {
		s := open(t, databaseWith(t, migrate.Options{Partitions: partitions}), lossy)
		empty, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fill(t, s, "size", 2000, time.Hour)
		full, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if grown := full.Bytes["tombstone"] - empty.Bytes["tombstone"]; grown < 2000*100 || full.Bytes["response"] <= 0 {
			t.Errorf("%d partitions: 2,000 records take %d bytes more, all is %v", partitions, grown, full.Bytes)
		}
	}
}

// Close does not hang on a commit that waits for a standby, and cancels nothing.
func TestCloseWhileTheStandbyIsFrozen(t *testing.T) {
	s := pgtest.Start(t, pgtest.Options{})
	url := s.Database(t)
	if _, err := migrate.Up(t.Context(), url, migrate.Options{}); err != nil {
		t.Fatal(err)
	}
	standby := s.Standby(t, "s1")
	s.Synchronous(t, "s1")
	store, err := pgstore.Open(t.Context(), url, lossy)
	if err != nil {
		t.Fatal(err)
	}
	standby.Freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := store.Create(ctx, tombstone(idOf("frozen", 1), time.Hour)); err == nil {
		t.Fatal("a claim was told durable while the standby was frozen")
	}
	ended := make(chan struct{})
	go func() { store.Close(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("Close hangs")
	}
	standby.Thaw(t)
	if log := s.Log(); strings.Contains(log, "canceling") {
		t.Errorf("something was cancelled:\n%s", log)
	}
}
