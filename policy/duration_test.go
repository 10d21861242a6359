package policy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/policy"
)

// C26 and P02: what has no unit, no sense or no room is refused in words that
// say what to write.
func TestC26DurationsRefused(t *testing.T) {
	for text, word := range map[string]string{
		"":                       "empty",
		"90":                     "90s, 90m",
		"24":                     "no unit",
		"86400":                  "no unit",
		"1.5":                    "no unit",
		"0":                      "no unit",
		"-5m":                    "negative",
		"-PT5M":                  "negative",
		"+5m":                    "write a number with a unit",
		"1y2":                    "write a number with a unit",
		"1y":                     "months or years",
		"6 months":               "months or years",
		"P1Y":                    "months or years",
		"P1M":                    "months or years",
		"P1YT4H":                 "months or years",
		"P2W":                    "write a number with a unit",
		"P":                      "not understood",
		"PT":                     "not understood",
		"P1DT":                   "not understood",
		"PT1D":                   "not understood",
		"30m1h":                  "not understood",
		"1h1h":                   "not understood",
		"1 h":                    "not understood",
		"1H":                     "not understood",
		"5us":                    "not understood",
		".5h":                    "not understood",
		"1.h":                    "not understood",
		"0.0001ms":               "millisecond",
		"forever":                "no end",
		"∞":                      "no end",
		"99999999999d":           "too long",
		"106752d":                "too long",
		"9223372036854775808ms":  "too long",
		"P99999999999999999999D": "too long",
		"9223372036s9999999ms":   "too long",
	} {
		d, err := policy.ParseDuration(text)
		if !errors.Is(err, policy.ErrDuration) {
			t.Errorf("ParseDuration(%q) = %v, %v, want ErrDuration", text, d, err)
			continue
		}
		if !strings.Contains(err.Error(), word) {
			t.Errorf("ParseDuration(%q): %v; want it to say %q", text, err, word)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"90s", "1h30m", "P1DT2H", "1.5h", "106751d", "P1Y", "∞", "1.999999999999s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := policy.ParseDuration(s)
		if err != nil {
			if !errors.Is(err, policy.ErrDuration) {
				t.Fatalf("ParseDuration(%q): %v is no ErrDuration", s, err)
			}
			return
		}
		if d < 0 {
			t.Fatalf("ParseDuration(%q) = %v, below zero", s, d)
		}
		form := policy.FormatDuration(d)
		if again, err := policy.ParseDuration(form); err != nil || again != d {
			t.Fatalf("ParseDuration(%q) = %v, spelled %q, which reads as %v, %v", s, d, form, again, err)
		}
	})
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"512B": 512, "64KiB": 64 << 10, "1MiB": 1 << 20, "1MB": 1e6, "1GiB": 1 << 30} {
		if got, err := policy.ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %v, %v, want %v", text, got, err, want)
		}
		if again, err := policy.ParseSize(policy.FormatSize(want)); err != nil || again != want {
			t.Errorf("%d is spelled %q, which reads as %d, %v", want, policy.FormatSize(want), again, err)
		}
	}
	for text, word := range map[string]string{
		"1048576": "1048576B", "": "512B", "-1MiB": "not understood", "1.5MiB": "whole number",
		"1 MiB": "not understood", "1mib": "not understood", "9223372036854775808B": "too large", "9999999999GiB": "64MiB",
	} {
		if got, err := policy.ParseSize(text); !errors.Is(err, policy.ErrSize) || !strings.Contains(err.Error(), word) {
			t.Errorf("ParseSize(%q) = %d, %v; want ErrSize that says %q", text, got, err, word)
		}
	}
}
