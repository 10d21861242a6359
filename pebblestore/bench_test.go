package pebblestore_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/pebblestore"
	"golang.org/x/sys/unix"
)

// The benchmarks are performance.md's F-E1 to F-E8. Each takes seconds as it
// stands; COUNTERFOIL_BENCH_SCALE multiplies durations and sizes (45 makes F-E1
// the official three minutes), and COUNTERFOIL_BENCH_DIR names the disk.

const (
	benchCallers  = 256
	responseBytes = 1024
)

func scale() float64 {
	if v, err := strconv.ParseFloat(os.Getenv("COUNTERFOIL_BENCH_SCALE"), 64); err == nil {
		return v
	}
	return 1
}

func benchDir(b *testing.B) string {
	if d := os.Getenv("COUNTERFOIL_BENCH_DIR"); d != "" {
		dir, err := os.MkdirTemp(d, "bench")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
	return b.TempDir()
}

// usage is what the process has used so far.
type usage struct {
	cpu     time.Duration
	written int64
}

func used() (u usage) {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	u.cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	io, _ := os.ReadFile("/proc/self/io")
	for line := range strings.Lines(string(io)) {
		if v, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			u.written, _ = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return u
}

// result is one round of a candidate.
type result struct {
	rate       float64 // per second
	cpu, bytes float64 // per unit
}

// run calls do from many callers for a time, and measures.
func run(callers int, d time.Duration, do func(caller int, n uint64) error) (result, error) {
	var total atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	start, before := time.Now(), used()
	for c := range callers {
		wg.Go(func() {
			n := uint64(0)
			for time.Since(start) < d && failed.Load() == nil {
				if err := do(c, n); err != nil {
					failed.Store(&err)
				}
				n++
			}
			total.Add(int64(n))
		})
	}
	wg.Wait()
	took, after := time.Since(start), used()
	if err := failed.Load(); err != nil {
		return result{}, *err
	}
	n := float64(total.Load())
	return result{n / took.Seconds(), float64(after.cpu-before.cpu) / n / 1e3, float64(after.written-before.written) / n}, nil
}

// benchID spreads IDs as digests do.
func benchID(series uint64, caller int, n uint64) (id counterfoil.ID) {
	rng := rand.New(rand.NewPCG(series<<32|uint64(caller), n))
	binary.BigEndian.PutUint64(id[0:], rng.Uint64())
	binary.BigEndian.PutUint64(id[8:], rng.Uint64())
	binary.BigEndian.PutUint32(id[16:], rng.Uint32())
	return id
}

// benchDraft has one of 256 principals. Nothing in it repeats a part of the key,
// which would compress better than digests do.
func benchDraft(id counterfoil.ID) *counterfoil.Draft {
	principal, sum := sha256.Sum256(id[19:]), sha256.Sum256(id[:])
	return &counterfoil.Draft{
		Record: counterfoil.Record{
			ID: id, Principal: counterfoil.PrincipalDigest(principal[:6]), Operation: 3, State: counterfoil.InProgress, Attempt: 1, Policy: 2,
			Token: counterfoil.Token(sum[16:]), Fingerprint: counterfoil.Fingerprint{Version: 1, Sum: [16]byte(sum[:])}, Dispatched: true,
		},
		Stamps: counterfoil.Stamps{
			CreatedAt: counterfoil.In(0), ClaimedAt: counterfoil.In(0), LeaseUntil: counterfoil.In(30 * time.Second),
			FirstDispatch: counterfoil.In(0), LastDispatch: counterfoil.In(0), QuietAt: counterfoil.In(90 * time.Second),
		},
	}
}

func completion(r counterfoil.Record, body []byte) *counterfoil.Write {
	w := &counterfoil.Write{Record: r, IfRev: r.Rev, IfToken: r.Token, Response: body, Stamps: counterfoil.Stamps{
		SettledAt: counterfoil.In(0), ReplayUntil: counterfoil.In(24 * time.Hour), Horizon: counterfoil.In(45 * 24 * time.Hour),
	}}
	w.Record.State, w.Record.Outcome = counterfoil.Completed, counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201}
	return w
}

// pairs is F-E1's unit: a claim of a new key and its completion.
func pairs(s counterfoil.Store, series uint64) func(int, uint64) error {
	ctx := context.Background()
	body := make([]byte, responseBytes)
	rand.NewChaCha8([32]byte{1}).Read(body)
	return func(c int, n uint64) error {
		st, err := s.Create(ctx, benchDraft(benchID(series, c, n)))
		if err != nil {
			return err
		}
		if !st.Created {
			return fmt.Errorf("not created")
		}
		_, err = s.Update(ctx, completion(st.Record, body))
		return err
	}
}

// plainPebble is F-E1's baseline: two synced Sets of the same bytes.
func plainPebble(b *testing.B, dir string) (func(int, uint64) error, func()) {
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}})
	if err != nil {
		b.Fatal(err)
	}
	var r [responseBytes]byte
	rand.NewChaCha8([32]byte{1}).Read(r[:])
	return func(c int, n uint64) error {
		d := benchDraft(benchID(7, c, n))
		now := time.Now()
		d.Stamps.Apply(&d.Record, now)
		if err := db.Set(d.Record.ID[:], counterfoil.AppendRecord(nil, &d.Record), pebble.Sync); err != nil {
			return err
		}
		w := completion(d.Record, nil)
		w.Stamps.Apply(&w.Record, now)
		return db.Set(d.Record.ID[:], append(counterfoil.AppendRecord(nil, &w.Record), r[:]...), pebble.Sync)
	}, func() { db.Close() }
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// appendLog is F-E2's baseline: an append-only log with group commit, a map in
// memory, a preallocated and once-written file, one fdatasync per batch.
type appendLog struct {
	file *os.File
	size int64
	mu   sync.Mutex
	buf  []byte
	wait []chan struct{}
	wake chan struct{}
	done chan struct{}
	held map[counterfoil.ID]struct{}
}

func openAppendLog(b *testing.B, dir string) *appendLog {
	f, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		b.Fatal(err)
	}
	const size = 256 << 20
	zero := make([]byte, 4<<20)
	for at := int64(0); at < size; at += int64(len(zero)) {
		f.WriteAt(zero, at)
	}
	f.Sync()
	l := &appendLog{file: f, wake: make(chan struct{}, 1), done: make(chan struct{}), held: map[counterfoil.ID]struct{}{}}
	go func() {
		defer close(l.done)
		for range l.wake {
			l.mu.Lock()
			buf, wait := l.buf, l.wait
			l.buf, l.wait = nil, nil
			l.mu.Unlock()
			if len(buf) == 0 {
				continue
			}
			if l.size+int64(len(buf)) > size {
				l.size = 0
			}
			f.WriteAt(buf, l.size)
			l.size += int64(len(buf))
			unix.Fdatasync(int(f.Fd()))
			for _, c := range wait {
				c <- struct{}{}
			}
		}
	}()
	return l
}

func (l *appendLog) close() {
	close(l.wake)
	<-l.done
	l.file.Close()
}

func (l *appendLog) append(id *counterfoil.ID, rec, body []byte, c chan struct{}) {
	l.mu.Lock()
	l.held[*id] = struct{}{}
	l.buf = append(append(append(l.buf, id[:]...), rec...), body...)
	l.wait = append(l.wait, c)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	<-c
}

func (l *appendLog) pairs() func(int, uint64) error {
	body := make([]byte, responseBytes)
	rand.NewChaCha8([32]byte{1}).Read(body)
	waits := make([]chan struct{}, benchCallers)
	for i := range waits {
		waits[i] = make(chan struct{}, 1)
	}
	return func(c int, n uint64) error {
		d := benchDraft(benchID(9, c, n))
		now := time.Now()
		d.Stamps.Apply(&d.Record, now)
		l.append(&d.Record.ID, counterfoil.AppendRecord(nil, &d.Record), nil, waits[c])
		w := completion(d.Record, nil)
		w.Stamps.Apply(&w.Record, now)
		l.append(&d.Record.ID, counterfoil.AppendRecord(nil, &w.Record), body, waits[c])
		return nil
	}
}

func median(rs []result, of func(result) float64) float64 {
	vs := make([]float64, len(rs))
	for i, r := range rs {
		vs[i] = of(r)
	}
	for i := range vs {
		for j := i; j > 0 && vs[j] < vs[j-1]; j-- {
			vs[j], vs[j-1] = vs[j-1], vs[j]
		}
	}
	return vs[len(vs)/2]
}

func rateOf(r result) float64 { return r.rate }

// BenchmarkPairs is F-E1, F-E2, F-E3 and F-E8: pairs a second at 256 callers,
// against both baselines, the candidates alternating in one run.
func BenchmarkPairs(b *testing.B) {
	s, err := pebblestore.Open(benchDir(b), pebblestore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	plain, closePlain := plainPebble(b, benchDir(b))
	defer closePlain()
	l := openAppendLog(b, benchDir(b))
	defer l.close()
	candidates := []func(int, uint64) error{pairs(s, 1), plain, l.pairs()}
	rounds := make([][]result, len(candidates))
	each := time.Duration(scale() * float64(4*time.Second) / 3)
	for b.Loop() {
		for round := range 3 {
			for i, do := range candidates {
				shifted := func(c int, n uint64) error { return do(c, n|uint64(len(rounds[i])+1)<<40) }
				r, err := run(benchCallers, each, shifted)
				if err != nil {
					b.Fatal(err)
				}
				rounds[i] = append(rounds[i], r)
				_ = round
			}
		}
	}
	rate := median(rounds[0], rateOf)
	b.ReportMetric(rate, "pairs/s")
	b.ReportMetric(median(rounds[1], rateOf), "pebble/s")
	b.ReportMetric(median(rounds[2], rateOf), "log/s")
	b.ReportMetric(rate/median(rounds[1], rateOf), "F-E1-ratio")
	b.ReportMetric(rate/median(rounds[2], rateOf), "F-E2-ratio")
	b.ReportMetric(median(rounds[0], func(r result) float64 { return r.cpu }), "F-E3-µs/pair")
	b.ReportMetric(median(rounds[1], func(r result) float64 { return r.cpu }), "pebble-µs/pair")
	b.ReportMetric(median(rounds[0], func(r result) float64 { return r.bytes }), "F-E8-B/pair")
	b.ReportMetric(0, "ns/op")
}

// fill puts n tombstones into a store, quickly, and settles it. due of them
// have their horizon before now.
func fill(b *testing.B, dir string, n int, due float64, o pebblestore.Options) *pebblestore.Store {
	s, err := pebblestore.Open(dir, o)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	if err := pebblestore.Fill(s, n, func(i int) counterfoil.Record {
		d := benchDraft(benchID(5, 0, uint64(i)))
		r := d.Record
		at := time.Now().Add(-time.Duration(rng.Int64N(int64(44 * 24 * time.Hour))))
		if rng.Float64() < due {
			at = at.AddDate(0, 0, -46)
		}
		d.Stamps.Apply(&r, at)
		w := completion(r, nil)
		w.Stamps.Apply(&w.Record, at.Add(time.Duration(20+rng.IntN(2000))*time.Millisecond))
		w.Record.State, w.Record.Token, w.Record.Rev = counterfoil.Tombstone, counterfoil.Token{}, 3
		return w.Record
	}); err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkTombstoneBytes is F-E4.
func BenchmarkTombstoneBytes(b *testing.B) {
	n := int(scale() * 400_000)
	for b.Loop() {
		s := fill(b, benchDir(b), n, 0, pebblestore.Options{})
		b.ReportMetric(float64(pebblestore.DiskBytes(s))/float64(n), "F-E4-B/tombstone")
		s.Close()
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLookup is F-E5: batched lookups of keys that are not there.
func BenchmarkLookup(b *testing.B) {
	n := int(scale() * 400_000)
	s := fill(b, benchDir(b), n, 0, pebblestore.Options{})
	defer s.Close()
	var took, plain time.Duration
	looked := 0
	for b.Loop() {
		ids := make([]counterfoil.ID, 256)
		for i := range ids {
			ids[i] = benchID(77, looked, uint64(i))
		}
		t, p := pebblestore.Lookup(s, ids)
		took, plain, looked = took+t, plain+p, looked+len(ids)
	}
	b.ReportMetric(float64(took.Nanoseconds())/float64(looked)/1e3, "F-E5-µs/lookup")
	b.ReportMetric(float64(plain.Nanoseconds())/float64(looked)/1e3, "plain-get-µs")
	b.ReportMetric(float64(n), "records")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPairsWhenFull is F-E6: pairs with many tombstones loaded, against
// few, in one run.
func BenchmarkPairsWhenFull(b *testing.B) {
	n := int(scale() * 400_000)
	few, many := fill(b, benchDir(b), n/20, 0, pebblestore.Options{}), fill(b, benchDir(b), n, 0, pebblestore.Options{})
	defer few.Close()
	defer many.Close()
	var rounds [2][]result
	for b.Loop() {
		for range 3 {
			for i, s := range []*pebblestore.Store{few, many} {
				r, err := run(benchCallers, time.Duration(scale()*float64(time.Second)), pairs(s, uint64(100+len(rounds[i]))))
				if err != nil {
					b.Fatal(err)
				}
				rounds[i] = append(rounds[i], r)
			}
		}
	}
	b.ReportMetric(median(rounds[0], rateOf), "few/s")
	b.ReportMetric(median(rounds[1], rateOf), "many/s")
	b.ReportMetric(median(rounds[1], rateOf)/median(rounds[0], rateOf), "F-E6-ratio")
	b.ReportMetric(float64(n), "records")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkExpiry is F-E7: a tenth of the rows are due while claims are paced.
func BenchmarkExpiry(b *testing.B) {
	n := int(scale() * 2_000_000)
	for b.Loop() {
		s := fill(b, benchDir(b), n, 0.1, pebblestore.Options{})
		ctx := context.Background()
		stop := make(chan struct{})
		var claims atomic.Int64
		var wg sync.WaitGroup
		const callers, pace = 64, 20_000
		for c := range callers {
			wg.Go(func() {
				tick := time.NewTicker(time.Second * callers / pace)
				defer tick.Stop()
				for i := uint64(0); ; i++ {
					select {
					case <-stop:
						return
					case <-tick.C:
						if _, err := s.Create(ctx, benchDraft(benchID(88, c, i))); err != nil {
							b.Error(err)
							return
						}
						claims.Add(1)
					}
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		before := claims.Load()
		time.Sleep(500 * time.Millisecond)
		alone := float64(claims.Load()-before) / 0.5
		start, before := time.Now(), claims.Load()
		var sum counterfoil.SweepReport
		o := counterfoil.SweepOrder{Limit: 200_000}
		for {
			r, err := s.Sweep(ctx, o)
			if err != nil {
				b.Fatal(err)
			}
			sum.Add(r)
			if o.Cursor = r.Next; o.Cursor == nil {
				break
			}
		}
		took := time.Since(start)
		during := float64(claims.Load()-before) / took.Seconds()
		close(stop)
		wg.Wait()
		b.ReportMetric(float64(sum.TombstonesDeleted)/took.Seconds(), "F-E7-deletes/s")
		b.ReportMetric(float64(sum.Examined)/took.Seconds(), "rows/s")
		b.ReportMetric(during/alone, "claims-ratio")
		b.ReportMetric(alone, "claims/s")
		s.Close()
	}
	b.ReportMetric(0, "ns/op")
}
