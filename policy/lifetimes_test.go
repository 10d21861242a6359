package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// C43: how long a response is kept and how long a key is remembered are two
// settings.
func TestC43ReplayAndRetentionAreTwo(t *testing.T) {
	o := capture()
	for _, tt := range []struct {
		name          string
		replay        *time.Duration
		protect       time.Duration
		wantReplay    time.Duration
		wantRetention time.Duration
	}{
		{"replay shorter", new(time.Second), 90 * day, time.Second, 90 * day},
		{"no response kept", new(time.Duration(0)), 90 * day, 0, 90 * day},
		{"replay left out is the ttl", nil, 90 * day, 24 * time.Hour, 90 * day},
		{"protect left out is the ttl", nil, 0, 24 * time.Hour, 24 * time.Hour},
		{"protect below the ttl", nil, time.Hour, 24 * time.Hour, 24 * time.Hour},
		{"replay never outlives the record", new(100 * day), 90 * day, 90 * day, 90 * day},
	} {
		o.ReplayFor, o.Protect = tt.replay, tt.protect
		if got := o.Replay(); got != tt.wantReplay {
			t.Errorf("%s: Replay = %v, want %v", tt.name, got, tt.wantReplay)
		}
		if got := o.Retention(); got != tt.wantRetention {
			t.Errorf("%s: Retention = %v, want %v", tt.name, got, tt.wantRetention)
		}
	}
}

// C86: an operation that takes longer than its retention is still remembered,
// since the time counts from completion.
func TestC86CountedFromCompletion(t *testing.T) {
	o := policy.NewOperation("slow")
	o.Inputs.SafetyMargin.Value = 3 * time.Second
	claimed := time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)
	completed := claimed.Add(5 * time.Second)
	horizon := o.Horizon(completed)
	if !horizon.After(claimed.Add(6 * time.Second)) {
		t.Errorf("horizon %v: the retry 6 s after the claim would find nothing", horizon)
	}
	if horizon.After(claimed.Add(9 * time.Second)) {
		t.Errorf("horizon %v: the retry 9 s after the claim would still be answered", horizon)
	}
}

func TestQuietAfterAndExpectedRows(t *testing.T) {
	o := capture()
	if got, want := o.QuietAfter(), 90*time.Second; got != want {
		t.Errorf("QuietAfter = %v, want %v", got, want)
	}
	if got, want := o.ExpectedRows(), 50000.0*90; got != want {
		t.Errorf("ExpectedRows = %v, want %v", got, want)
	}
	o.Volume = policy.Volume{}
	if got := o.ExpectedRows(); got != 0 {
		t.Errorf("ExpectedRows without volume = %v, want 0", got)
	}
}

func TestSetDefaults(t *testing.T) {
	got := policy.NewOperation("x")
	want := policy.Operation{
		Name:          "x",
		Key:           policy.Key{Header: "Idempotency-Key", Required: true, Format: "any"},
		Deadline:      time.Minute,
		Lease:         30 * time.Second,
		Wait:          2 * time.Second,
		Settle:        30 * time.Second,
		UnknownStatus: 503,
		MaxRequest:    1 << 20,
		MaxResponse:   1 << 20,
		MaxUnresolved: 1000,
	}
	if got.Key != want.Key || got.Deadline != want.Deadline || got.Lease != want.Lease || got.Wait != want.Wait || got.Settle != want.Settle {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.UnknownStatus != want.UnknownStatus || got.MaxRequest != want.MaxRequest || got.MaxResponse != want.MaxResponse || got.MaxUnresolved != want.MaxUnresolved {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.OnUnknown.Rule != "close" || got.LateAnswer != "status" || got.Dispatch != "implicit" || got.Late != "refuse" || got.Durability != "B" {
		t.Errorf("got %+v", got)
	}
	if !slices.Equal(got.Ambiguous, []int{500, 502, 503, 504}) || !slices.Equal(got.NoEffect, []int{401, 407, 408, 413, 414, 417, 421, 425, 429, 431}) {
		t.Errorf("statuses: ambiguous %v, no_effect %v", got.Ambiguous, got.NoEffect)
	}

	// What is said is kept; an empty list is something said.
	o := policy.Operation{Key: policy.Key{Header: "X-Key"}, Lease: time.Second, Ambiguous: []int{}}
	o.SetDefaults()
	if o.Key.Required || o.Key.Header != "X-Key" || o.Key.Format != policy.KeyAny || o.Lease != time.Second || len(o.Ambiguous) != 0 {
		t.Errorf("SetDefaults changed what was said: %+v", o)
	}
}

func TestDurationsReadBack(t *testing.T) {
	for _, tt := range []struct {
		text string
		want time.Duration
		form string // as FormatDuration writes it
		iso  string
	}{
		{"500ms", 500 * time.Millisecond, "500ms", "PT0.5S"},
		{"90s", 90 * time.Second, "1m30s", "PT1M30S"},
		{"15m", 15 * time.Minute, "15m", "PT15M"},
		{"4h", 4 * time.Hour, "4h", "PT4H"},
		{"30d", 30 * day, "30d", "P30D"},
		{"1h30m", 90 * time.Minute, "1h30m", "PT1H30M"},
		{"36h", 36 * time.Hour, "1d12h", "P1DT12H"},
		{"1.5h", 90 * time.Minute, "1h30m", "PT1H30M"},
		{"1500ms", 1500 * time.Millisecond, "1.5s", "PT1.5S"},
		{"0s", 0, "0s", "PT0S"},
		{"1d", day, "1d", "P1D"},
		{"P30D", 30 * day, "30d", "P30D"},
		{"PT4H", 4 * time.Hour, "4h", "PT4H"},
		{"P1DT2H", 26 * time.Hour, "1d2h", "P1DT2H"},
		{"PT0.25S", 250 * time.Millisecond, "250ms", "PT0.25S"},
		{"P1D", day, "1d", "P1D"},
	} {
		got, err := policy.ParseDuration(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
			continue
		}
		if form := policy.FormatDuration(got); form != tt.form {
			t.Errorf("FormatDuration(%v) = %q, want %q", got, form, tt.form)
		}
		if iso := policy.FormatISODuration(got); iso != tt.iso {
			t.Errorf("FormatISODuration(%v) = %q, want %q", got, iso, tt.iso)
		}
		for _, form := range []string{tt.form, tt.iso} {
			if again, err := policy.ParseDuration(form); err != nil || again != got {
				t.Errorf("ParseDuration(%q) = %v, %v, want %v", form, again, err, got)
			}
		}
	}
	if got := policy.FormatDuration(-90 * time.Second); got != "-1m30s" {
		t.Errorf("FormatDuration(-90s) = %q", got)
	}
}
