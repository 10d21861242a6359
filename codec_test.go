package counterfoil_test

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	cf "github.com/counterfoil/counterfoil"
)

var rewriteGolden = flag.Bool("golden", false, "write testdata/record.golden anew")

// tombstoneLike is the record that F-E4 counts: one that a claim, a dispatch
// and a completion made, after its replay window.
func tombstoneLike() cf.Record {
	at := time.UnixMilli(1_790_000_000_123).UTC()
	return cf.Record{
		ID: cf.ID{1, 2, 3}, Principal: cf.PrincipalDigest{9, 8, 7, 6, 5, 4}, Operation: 3, State: cf.Tombstone,
		Attempt: 1, Rev: 4, Fingerprint: cf.Fingerprint{Version: 1, Sum: [16]byte{0xaa, 0xbb}}, Policy: 2, Dispatched: true,
		CreatedAt: at, ClaimedAt: at, LeaseUntil: at.Add(30 * time.Second), QuietAt: at.Add(90 * time.Second),
		FirstDispatch: at.Add(3 * time.Millisecond), LastDispatch: at.Add(3 * time.Millisecond),
		SettledAt: at.Add(211 * time.Millisecond), ReplayUntil: at.Add(24*time.Hour + 211*time.Millisecond),
		Horizon: at.Add(45*24*time.Hour + 211*time.Millisecond), Outcome: cf.Outcome{Class: cf.Succeeded, Status: 201},
	}
}

// fullRecord has every field set.
func fullRecord() cf.Record {
	r := tombstoneLike()
	r.State, r.HasResponse, r.Observed, r.Erased = cf.Completed, true, true, true
	r.Token, r.Reference, r.Proof = cf.Token{1, 2, 3}, "cf-4711-é", cf.ProofEarly
	r.Attempt, r.Rev, r.Policy, r.Operation = math.MaxUint32, math.MaxUint64, math.MaxUint32, math.MaxUint32
	r.Outcome.Resource = "/v1/payments/pay_0123456789"
	r.AnnouncedAt = r.Horizon.Add(time.Hour)
	r.Gates = []cf.Gate{{Name: "provider_reference", Until: r.CreatedAt.AddDate(0, 1, 0)}, {Name: "settlement"}}
	r.Holds = []cf.Hold{{At: r.SettledAt, Actor: "ops@example", Reason: "case 12"}, {}}
	r.Evidence = []cf.Evidence{
		{Kind: cf.EvidenceLapsed, At: r.LeaseUntil, Count: 3, Attempt: 1},
		{
			Kind: cf.EvidenceContradicted, At: r.SettledAt, Count: 1, Attempt: 2,
			Outcome: cf.Outcome{Class: cf.Declined, Status: -1, Resource: "/x"}, Actor: "a", Reason: "b",
		},
	}
	return r
}

func TestRecordCodecRoundTrip(t *testing.T) {
	for _, r := range []cf.Record{{State: cf.InProgress}, tombstoneLike(), fullRecord()} {
		checkRoundTrip(t, &r)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		r := randomRecord(rng)
		checkRoundTrip(t, &r)
	}
}

// dueReader goes from record to record, as a sweep's does.
var dueReader cf.DueReader

func checkRoundTrip(t *testing.T, r *cf.Record) {
	t.Helper()
	b := cf.AppendRecord([]byte("before"), r)
	if string(b[:6]) != "before" {
		t.Fatal("AppendRecord touched what stood before")
	}
	got, err := cf.DecodeRecord(r.ID, b[6:])
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	if !reflect.DeepEqual(&got, r) {
		t.Fatalf("got  %+v\nwant %+v", got, *r)
	}
	want := r.Horizon
	if r.State == cf.Completed {
		want = r.ReplayUntil
	}
	switch due, ok := dueReader.Due(b[6:]); {
	case r.State == cf.InProgress || r.State != cf.Completed && want.IsZero():
		if ok {
			t.Fatalf("%+v: due at %d, want never", r, due)
		}
	case !ok || !want.IsZero() && due != want.UnixMilli() || want.IsZero() && due != math.MinInt64:
		t.Fatalf("%+v: due at %d, want %v", r, due, want)
	}
	plain := r.State == cf.Tombstone && len(r.Gates)+len(r.Holds) == 0 && r.AnnouncedAt.IsZero() && !r.CreatedAt.IsZero() && !r.Horizon.IsZero()
	op, created, spent := dueReader.Spent(r.ID, b[6:])
	if spent != plain || spent && (op != r.Operation || !created.Equal(r.CreatedAt)) {
		t.Fatalf("%+v: spent %v, operation %d created at %v", r, spent, op, created)
	}
	// A row in another's place is unreadable.
	other := r.ID
	other[19] ^= 1
	if _, err := cf.DecodeRecord(other, b[6:]); !errors.Is(err, cf.ErrUnreadable) {
		t.Fatalf("bytes of %s read as %s: %v", r.ID, other, err)
	}
	if _, _, spent := dueReader.Spent(other, b[6:]); spent {
		t.Fatalf("bytes of %s are spent at %s", r.ID, other)
	}
}

func randomRecord(rng *rand.Rand) cf.Record {
	maybe := func() bool { return rng.IntN(2) == 0 }
	base := time.UnixMilli(1_600_000_000_000 + rng.Int64N(1e12))
	instant := func() time.Time {
		switch rng.IntN(8) {
		case 0, 1:
			return time.Time{}
		case 2:
			return time.UnixMilli(rng.Int64() - math.MaxInt64/2).UTC()
		}
		return base.Add(time.Duration(rng.Int64N(int64(100*24*time.Hour)) / (1 << rng.IntN(40)))).Truncate(time.Millisecond).UTC()
	}
	text := func() string {
		if maybe() {
			return ""
		}
		return strings.Repeat("é", rng.IntN(40)) + fmt.Sprint(rng.Uint64())
	}
	outcome := func() cf.Outcome {
		return cf.Outcome{Class: cf.OutcomeClass(rng.IntN(3)), Status: rng.IntN(700) - 50, Resource: text()}
	}
	r := cf.Record{
		State: cf.State(1 + rng.IntN(6)), Operation: cf.OperationNumber(rng.Uint32() >> rng.IntN(32)),
		Attempt: rng.Uint32() >> rng.IntN(32), Rev: rng.Uint64() >> rng.IntN(64), Reference: text(), Policy: rng.Uint32() >> rng.IntN(32),
		Fingerprint: cf.Fingerprint{Version: uint8(rng.Uint32())}, Dispatched: maybe(), Observed: maybe(), Erased: maybe(),
		Proof: cf.Proof(rng.IntN(7)), Outcome: outcome(), HasResponse: maybe(),
		CreatedAt: instant(), ClaimedAt: instant(), LeaseUntil: instant(), FirstDispatch: instant(), LastDispatch: instant(),
		QuietAt: instant(), SettledAt: instant(), ReplayUntil: instant(), Horizon: instant(), AnnouncedAt: instant(),
	}
	for i := range r.ID {
		r.ID[i] = byte(rng.Uint32())
	}
	for i := range r.Fingerprint.Sum {
		r.Fingerprint.Sum[i] = byte(rng.Uint32())
	}
	if maybe() {
		r.Token[rng.IntN(16)] = 1
	}
	for range rng.IntN(4) * rng.IntN(2) {
		r.Gates = append(r.Gates, cf.Gate{Name: text(), Until: instant()})
		r.Holds = append(r.Holds, cf.Hold{At: instant(), Actor: text(), Reason: text()})
		r.Evidence = append(r.Evidence, cf.Evidence{
			Kind: cf.EvidenceKind(1 + rng.IntN(11)), At: instant(), Count: rng.Uint32(), Attempt: rng.Uint32(),
			Outcome: outcome(), Actor: text(), Reason: text(),
		})
	}
	return r
}

// TestRecordCodecGolden keeps version 1 readable for ever.
func TestRecordCodecGolden(t *testing.T) {
	name := filepath.Join("testdata", "record.golden")
	records := []cf.Record{{State: cf.InProgress}, tombstoneLike(), fullRecord()}
	if *rewriteGolden {
		var out strings.Builder
		for i := range records {
			fmt.Fprintf(&out, "%x\n", cf.AppendRecord(nil, &records[i]))
		}
		if err := os.WriteFile(name, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Fields(string(golden)) {
		b, err := hex.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		got, err := cf.DecodeRecord(records[i].ID, b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, records[i]) {
			t.Errorf("line %d: got %+v, want %+v", i+1, got, records[i])
		}
		if now := fmt.Sprintf("%x", cf.AppendRecord(nil, &records[i])); now != line {
			t.Errorf("line %d: written as %s, was %s; a new layout needs a new version", i+1, now, line)
		}
	}
}

// TestRecordCodecSize is the part of F-E4 that the codec decides.
func TestRecordCodecSize(t *testing.T) {
	r := tombstoneLike()
	if n := len(cf.AppendRecord(nil, &r)); n > 64 {
		t.Errorf("a tombstone takes %d bytes before compression; at most 64", n)
	}
}

// TestRecordCodecRefusesDamage: E05, every single flipped bit and every cut is
// noticed.
func TestRecordCodecRefusesDamage(t *testing.T) {
	r := fullRecord()
	good := cf.AppendRecord(nil, &r)
	for i := range len(good) {
		if _, err := cf.DecodeRecord(r.ID, good[:i]); !errors.Is(err, cf.ErrUnreadable) {
			t.Fatalf("cut at %d: %v", i, err)
		}
		for bit := range 8 {
			b := append([]byte(nil), good...)
			b[i] ^= 1 << bit
			if _, err := cf.DecodeRecord(r.ID, b); !errors.Is(err, cf.ErrUnreadable) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
		}
	}
	r = tombstoneLike()
	good = cf.AppendRecord(nil, &r)
	if _, _, spent := dueReader.Spent(r.ID, good); !spent {
		t.Fatal("a tombstone is not spent")
	}
	for i := range len(good) {
		if _, _, spent := dueReader.Spent(r.ID, good[:i]); spent {
			t.Fatalf("cut at %d and spent", i)
		}
		for bit := range 8 {
			b := append([]byte(nil), good...)
			b[i] ^= 1 << bit
			if _, _, spent := dueReader.Spent(r.ID, b); spent {
				t.Fatalf("bit %d of byte %d flipped and spent", bit, i)
			}
		}
	}
}

func FuzzRecordCodec(f *testing.F) {
	for _, r := range []cf.Record{{State: cf.InProgress}, tombstoneLike(), fullRecord()} {
		b := cf.AppendRecord(nil, &r)
		f.Add(b[:len(b)-2])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		// The check is made good, or the fuzzer would never get past it.
		id := cf.ID{1, 2, 3}
		whole := cf.AppendCheck(body, id)
		r, err := cf.DecodeRecord(id, whole)
		var p cf.DueReader
		p.Due(whole)
		due, ok := p.Due(whole)
		if err != nil {
			if !errors.Is(err, cf.ErrUnreadable) {
				t.Fatalf("%v does not wrap ErrUnreadable", err)
			}
			return
		}
		if want := r.Horizon; r.State != cf.Completed && ok != (r.State != cf.InProgress && !want.IsZero()) || ok && r.State != cf.Completed && due != want.UnixMilli() {
			t.Fatalf("due at %d, %v; want %v", due, ok, want)
		}
		again, err := cf.DecodeRecord(id, cf.AppendRecord(nil, &r))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%v\nfirst %+v\nthen  %+v", err, r, again)
		}
	})
}

func BenchmarkAppendRecord(b *testing.B) {
	r := tombstoneLike()
	buf := cf.AppendRecord(nil, &r)
	b.ReportAllocs()
	for b.Loop() {
		buf = cf.AppendRecord(buf[:0], &r)
	}
}

func BenchmarkDueReader(b *testing.B) {
	r := tombstoneLike()
	buf := cf.AppendRecord(nil, &r)
	var p cf.DueReader
	for b.Loop() {
		if _, ok := p.Due(buf); !ok {
			b.Fatal("never due")
		}
	}
}

func BenchmarkDecodeRecord(b *testing.B) {
	r := tombstoneLike()
	buf := cf.AppendRecord(nil, &r)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cf.DecodeRecord(r.ID, buf); err != nil {
			b.Fatal(err)
		}
	}
}
