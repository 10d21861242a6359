package pgstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/counterfoil/counterfoil/pgstore/migrate"
	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

// durable is a server with fsync, and a migrated database of it. Its WAL is as
// large as a busy server's, so that checkpoints do not decide.
func durable(b *testing.B) (*pgtest.Server, string) {
	b.Helper()
	s := pgtest.Start(b, pgtest.Options{Durable: true, Settings: map[string]string{"max_wal_size": "4GB", "shared_buffers": "256MB", "max_connections": "400"}})
	url := s.Database(b)
	if _, err := migrate.Up(context.Background(), url, migrate.Options{}); err != nil {
		b.Fatal(err)
	}
	return s, url
}

// BenchmarkPairs is F-P1 and F-P2: pairs (a claim of a new key and its completion with a
// response of 1 KiB) batched, against the same steps one statement a call over
// 16 connections, and against pgbench inserting one row of 36 bytes a
// transaction. They take turns, three rounds each; medians are reported.
func BenchmarkPairs(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s, url := durable(b)
			pgtest.Exec(b, url, "CREATE TABLE raw (id bytea PRIMARY KEY, fingerprint bytea)")
			batched := open(b, url, pgstore.Options{})
			single := open(b, with(b, url, "pool_max_conns=16"), pgstore.Options{Batch: 1, Workers: 16})
			const each = 4 * time.Second
			var rate [3][]float64
			var cpuClient, cpuServer [2][]float64
			for b.Loop() {
				for range 3 {
					for i, store := range []counterfoil.Store{batched, single} {
						client, server := ownCPU(), serverCPU(b, url)
						n := pairs(b, store, callers, each)
						rate[i] = append(rate[i], float64(n)/each.Seconds())
						cpuClient[i] = append(cpuClient[i], float64((ownCPU()-client).Microseconds())/float64(n))
						cpuServer[i] = append(cpuServer[i], float64((serverCPU(b, url)-server).Microseconds())/float64(n))
					}
					rate[2] = append(rate[2], pgbench(b, s, url, callers, each))
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(rate[0]), "pairs/s")
			b.ReportMetric(median(rate[1]), "single-pairs/s")
			b.ReportMetric(median(rate[2]), "raw-inserts/s")
			b.ReportMetric(2*median(rate[0])/median(rate[2]), "2xpairs÷raw")
			b.ReportMetric(median(rate[0])/median(rate[1]), "batched÷single")
			b.ReportMetric(median(cpuClient[0]), "client-µs/pair")
			b.ReportMetric(median(cpuServer[0]), "server-µs/pair")
			b.ReportMetric(median(cpuClient[1]), "single-client-µs/pair")
			b.ReportMetric(median(cpuServer[1]), "single-server-µs/pair")
		})
	}
}

var benchKeys atomic.Uint64

// pairs lets callers make pairs for a while, and returns how many.
func pairs(b *testing.B, s counterfoil.Store, callers int, d time.Duration) int64 {
	var n atomic.Int64
	var wg sync.WaitGroup
	until := time.Now().Add(d)
	body := noise(1 << 10)
	for range callers {
		wg.Go(func() {
			for time.Now().Before(until) {
				if err := pair(s, benchKeys.Add(1), body); err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return n.Load()
}

func noise(n int) []byte {
	var out []byte
	for i := 0; len(out) < n; i++ {
		sum := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
		out = append(out, sum[:]...)
	}
	return out[:n]
}

func pair(s counterfoil.Store, i uint64, body []byte) error {
	ctx := context.Background()
	now := counterfoil.In(0)
	id := idOf("bench", int(i))
	d := counterfoil.Draft{
		MaxOpen: 1000,
		Record: counterfoil.Record{
			ID: id, Operation: 1, State: counterfoil.InProgress, Attempt: 1, Policy: 1, Dispatched: true,
			Token: counterfoil.NewToken(), Fingerprint: counterfoil.Fingerprint{Version: 1, Sum: [16]byte(id[4:])},
			Principal: counterfoil.PrincipalDigest{byte(i % 100), 1},
		},
		Stamps: counterfoil.Stamps{
			CreatedAt: now, ClaimedAt: now, FirstDispatch: now, LastDispatch: now,
			LeaseUntil: counterfoil.In(30 * time.Second), QuietAt: counterfoil.In(90 * time.Second),
		},
	}
	st, err := s.Create(ctx, &d)
	if err != nil {
		return err
	}
	if !st.Created {
		return fmt.Errorf("key %d was not new: %+v", i, st)
	}
	w := counterfoil.Write{
		Record: st.Record, IfRev: st.Record.Rev, IfToken: st.Record.Token, Response: body,
		Stamps: counterfoil.Stamps{SettledAt: now, ReplayUntil: counterfoil.In(24 * time.Hour), Horizon: counterfoil.In(9 * 24 * time.Hour)},
	}
	w.Record.State = counterfoil.Completed
	w.Record.Outcome = counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201, Resource: "/pay/1"}
	_, err = s.Update(ctx, &w)
	return err
}

// pgbench is the baseline: transactions a second of one insert each.
func pgbench(b *testing.B, s *pgtest.Server, url string, clients int, d time.Duration) float64 {
	b.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if err != nil || len(found) == 0 {
		b.Fatal("pgbench is not installed: run make setup")
	}
	script := filepath.Join(b.TempDir(), "insert.sql")
	sql := "INSERT INTO raw VALUES (substr(sha256(convert_to(random()::text || :client_id, 'UTF8')), 1, 20), '\\x00112233445566778899aabbccddeeff') ON CONFLICT DO NOTHING;\n"
	if err := os.WriteFile(script, []byte(sql), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(found[len(found)-1], "--no-vacuum", "--protocol=extended", "--client", strconv.Itoa(clients), "--jobs", "2", "--time", strconv.Itoa(int(d.Seconds())), "--file", script, url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("pgbench: %v\n%s", err, out)
	}
	m := regexp.MustCompile(`tps = ([0-9.]+)`).FindSubmatch(out)
	if m == nil {
		b.Fatalf("pgbench said\n%s", out)
	}
	tps, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		b.Fatal(err)
	}
	return tps
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverCPU is what the postmaster and its children have used, those that have
// ended included.
func serverCPU(b *testing.B, url string) time.Duration {
	b.Helper()
	pid, _, _ := strings.Cut(pgtest.Value[string](b, url, "SELECT pg_read_file('postmaster.pid')"), "\n")
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	var ticks int64
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := bytes.Cut(text, []byte(") "))
		f := strings.Fields(string(rest))
		if len(f) < 15 {
			continue
		}
		own := path == "/proc/"+pid+"/stat"
		if f[1] != pid && !own {
			continue
		}
		last := 13
		if own {
			last = 15 // and its children's
		}
		for _, v := range f[11:last] {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkSweep is F-P3: 300,000 tombstones that are due, deleted in batches of
// 5,000, while claims are paced; the time that claims take beside it and
// without it; the size of a tombstone; and how long a day of 300,000 responses
// takes to drop.
func BenchmarkSweep(b *testing.B) {
	const n = 300_000
	_, url := durable(b)
	s := open(b, url, pgstore.Options{})
	if err := pair(s, benchKeys.Add(1), []byte("x")); err != nil {
		b.Fatal(err)
	}
	// As a completed record looks after its replay, a thousand times over.
	pgtest.Exec(b, url, "UPDATE counterfoil_records SET state = 5, token = NULL, response_on = NULL")
	var swept, alone, beside, size []float64
	for b.Loop() {
		for range 3 {
			pgtest.Exec(b, url, fmt.Sprintf(`INSERT INTO counterfoil_records (rev, operation, created_at, claimed_at, lease_until, first_dispatch, last_dispatch, quiet_at, settled_at, replay_until, horizon, state, holds, id, principal, body)
				SELECT r.rev, r.operation, r.created_at, r.claimed_at, r.lease_until, r.first_dispatch, r.last_dispatch, r.quiet_at, r.settled_at, r.replay_until,
					now() - interval '1 hour' + g * interval '1 millisecond', 5, 0, substr(sha256(convert_to(g::text || clock_timestamp(), 'UTF8')), 1, 20), r.principal, r.body
				FROM (SELECT * FROM counterfoil_records WHERE state = 5 LIMIT 1) r, generate_series(1, %d) g`, n))
			pgtest.Exec(b, url, "VACUUM ANALYZE counterfoil_records")
			size = append(size, float64(pgtest.Value[int64](b, url, "SELECT pg_total_relation_size('counterfoil_records') / (SELECT count(*) FROM counterfoil_records)")))
			alone = append(alone, paced(b, s, 3*time.Second, nil))
			start := time.Now()
			took := time.Duration(0)
			beside = append(beside, paced(b, s, 0, func() {
				o := counterfoil.SweepOrder{}
				for {
					rep, err := s.Sweep(context.Background(), o)
					if err != nil {
						b.Error(err)
						return
					}
					if o.Cursor = rep.Next; o.Cursor == nil {
						break
					}
				}
				took = time.Since(start)
			}))
			swept = append(swept, n/took.Seconds())
		}
	}
	pgtest.Exec(b, url, fmt.Sprintf(`CREATE TABLE counterfoil_responses_20200101 PARTITION OF counterfoil_responses FOR VALUES FROM ('2020-01-01') TO ('2020-01-02');
		INSERT INTO counterfoil_responses SELECT '2020-01-01', substr(sha256(convert_to(g::text, 'UTF8')), 1, 20), decode(repeat(md5(g::text), 32), 'hex') || decode(repeat(md5((-g)::text), 32), 'hex') FROM generate_series(1, %d) g`, n))
	start := time.Now()
	pgtest.Exec(b, url, "SELECT counterfoil_days(0, true)")
	b.ReportMetric(time.Since(start).Seconds(), "s/day-dropped")
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(swept), "rows/s")
	b.ReportMetric(median(size), "B/tombstone")
	b.ReportMetric(median(alone), "p50-claim-ms")
	b.ReportMetric(median(beside), "p50-claim-beside-ms")
}

// paced makes 1,000 claims a second for d, or while do runs, and returns the
// median time of one in milliseconds.
func paced(b *testing.B, s counterfoil.Store, d time.Duration, do func()) float64 {
	stop := make(chan struct{})
	if do == nil {
		time.AfterFunc(d, func() { close(stop) })
	} else {
		go func() { do(); close(stop) }()
	}
	var mu sync.Mutex
	var took []float64
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			wg.Wait()
			return median(took)
		case <-tick.C:
			wg.Go(func() {
				d := tombstone(counterfoil.ID{}, time.Hour)
				binary.BigEndian.PutUint64(d.Record.ID[:], benchKeys.Add(1)*0x9e3779b97f4a7c15)
				start := time.Now()
				if _, err := s.Create(context.Background(), d); err != nil {
					b.Error(err)
				}
				mu.Lock()
				took = append(took, float64(time.Since(start).Microseconds())/1000)
				mu.Unlock()
			})
		}
	}
}
