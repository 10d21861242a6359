package admin_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/admin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTokens(t *testing.T) {
	a, b := admin.NewToken(), admin.NewToken()
	if a == b || len(a) < 43 {
		t.Fatalf("tokens %q and %q", a, b)
	}
	path := filepath.Join(t.TempDir(), "deeper", "tokens")
	made, fresh, err := admin.OpenTokens(path)
	if err != nil || !fresh {
		t.Fatalf("%v, %v", fresh, err)
	}
	name, token := made.First()
	again, fresh, err := admin.OpenTokens(path)
	if err != nil || fresh {
		t.Errorf("the second time: %v, %v", fresh, err)
	}
	if got, ok := again.Actor(token); !ok || got != name {
		t.Errorf("actor %q, %v", got, ok)
	}
	for _, wrong := range []string{"", "x", token + "x", token[1:]} {
		if got, ok := again.Actor(wrong); ok {
			t.Errorf("%q is %q", wrong, got)
		}
	}
	if _, ok := (admin.Tokens{}).Actor(""); ok {
		t.Error("no tokens know somebody")
	}

	for text, want := range map[string]string{
		"":                                   "names nobody",
		"# me " + a:                          "names nobody",
		"me":                                 ":1: 1 words",
		"me " + a + " x":                     ":1: 3 words",
		"\nme " + a[:42]:                     ":2: the token of me is 42 characters long",
		strings.Repeat("n", 65) + " " + a:    ":1: the name is longer",
		"me " + a + "\n\n# x\n you  " + b:    "",
		"me " + a + "\r\nyou " + b + "\r\n":  "",
		"me " + strings.Repeat("x", 100_000): "too long",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := admin.ReadTokens(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), a[:42]) {
			t.Error("the token is in the message")
		}
	}
}

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// TestWhy: each record says in words why it is still here and when it may go.
func TestWhy(t *testing.T) {
	in := func(d time.Duration) time.Time { return now.Add(d) }
	done := counterfoil.Outcome{Class: counterfoil.Succeeded, Status: 201}
	for name, tc := range map[string]struct {
		r     counterfoil.Record
		words []string
		mayGo time.Time
	}{
		"held claim": {
			counterfoil.Record{State: counterfoil.InProgress, Attempt: 2, LeaseUntil: in(time.Minute)},
			[]string{"Attempt 2 holds the claim until 2026-05-01T12:01:00Z"},
			time.Time{},
		},
		"equal is alive": {counterfoil.Record{State: counterfoil.InProgress, Dispatched: true, LeaseUntil: now}, []string{"holds the claim"}, time.Time{}},
		"lapsed": {
			counterfoil.Record{State: counterfoil.InProgress, Dispatched: true, LeaseUntil: in(-1)},
			[]string{"abandoned", "never runs again"},
			time.Time{},
		},
		"lapsed before dispatch": {counterfoil.Record{State: counterfoil.InProgress, LeaseUntil: in(-1)}, []string{"may run again"}, time.Time{}},
		"unknown, held": {
			counterfoil.Record{State: counterfoil.Unknown, QuietAt: in(time.Minute), Evidence: []counterfoil.Evidence{{Kind: counterfoil.EvidenceBroken}}},
			[]string{"(broken)", "may still take effect until 2026-05-01T12:01:00Z", "until somebody resolves it"},
			time.Time{},
		},
		"unknown, closing": {
			counterfoil.Record{State: counterfoil.Unknown, Horizon: in(time.Hour)},
			[]string{"closes as unknown on 2026-05-01T13:00:00Z"},
			in(time.Hour),
		},
		"failed": {
			counterfoil.Record{State: counterfoil.Failed, Proof: counterfoil.ProofQuiet, Horizon: in(time.Hour)},
			[]string{"proved (quiet)", "may run again", "may go on 2026-05-01T13:00:00Z"},
			in(time.Hour),
		},
		"completed": {
			counterfoil.Record{State: counterfoil.Completed, Outcome: done, HasResponse: true, ReplayUntil: in(time.Minute), Horizon: in(time.Hour)},
			[]string{"succeeded with status 201", "replayed until 2026-05-01T12:01:00Z", "may go on 2026-05-01T13:00:00Z"},
			in(time.Hour),
		},
		"declined": {
			counterfoil.Record{State: counterfoil.Tombstone, Outcome: counterfoil.Outcome{Class: counterfoil.Declined, Status: 402}, Horizon: in(time.Hour)},
			[]string{"declined with status 402"},
			in(time.Hour),
		},
		"gate": {
			counterfoil.Record{State: counterfoil.Tombstone, Outcome: done, Horizon: in(-time.Hour), Gates: []counterfoil.Gate{{Name: "provider_reference", Until: in(time.Hour)}}},
			[]string{"The gate provider_reference keeps it until 2026-05-01T13:00:00Z"},
			in(time.Hour),
		},
		"gate beyond the horizon": {
			counterfoil.Record{State: counterfoil.Tombstone, Outcome: done, Horizon: in(time.Hour), Gates: []counterfoil.Gate{{Name: "g", Until: in(2 * time.Hour)}}},
			[]string{"The gate g keeps it until 2026-05-01T14:00:00Z"},
			in(2 * time.Hour),
		},
		"hold": {
			counterfoil.Record{State: counterfoil.Tombstone, Outcome: done, Horizon: in(-time.Hour), Holds: []counterfoil.Hold{{Actor: "eve", Reason: "audit"}}},
			[]string{"A hold keeps it", "eve: audit"},
			time.Time{},
		},
		"past its time": {
			counterfoil.Record{State: counterfoil.Tombstone, Outcome: done, Horizon: in(-time.Hour)},
			[]string{"time is past", "next sweep may delete it"},
			in(-time.Hour),
		},
		"announced": {
			counterfoil.Record{State: counterfoil.Announced, Outcome: done, Horizon: in(-time.Hour)},
			[]string{"deletion announced"},
			in(-time.Hour),
		},
		"closed": {
			counterfoil.Record{State: counterfoil.Tombstone, Horizon: in(time.Hour)},
			[]string{"Nobody learnt", "never runs again"},
			in(time.Hour),
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := admin.View(counterfoil.Snapshot{Record: tc.r, AsOf: now}, "pay")
			for _, word := range tc.words {
				if !strings.Contains(v.Why, word) {
					t.Errorf("%q is not in: %s", word, v.Why)
				}
			}
			if tc.mayGo.IsZero() != (v.MayGoAt == nil) || v.MayGoAt != nil && !v.MayGoAt.Equal(tc.mayGo) {
				t.Errorf("may go at %v, want %v", v.MayGoAt, tc.mayGo)
			}
			if strings.Contains(v.Why, "0001-01-01") {
				t.Errorf("a time that is not set: %s", v.Why)
			}
		})
	}
}

func TestBaseURL(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:8421": "http://127.0.0.1:8421", ":8421": "http://127.0.0.1:8421", "0.0.0.0:1": "http://127.0.0.1:1",
		"[::]:1": "http://[::1]:1", "[::1]:1": "http://[::1]:1", "admin.internal:1": "http://admin.internal:1",
	} {
		if got := admin.BaseURL(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestWordIsChecked before it reaches an engine, for those who open the store
// themselves.
func TestWordIsChecked(t *testing.T) {
	l := admin.NewLocal(admin.Local{})
	for i, w := range []admin.Word{
		{},
		{Outcome: "absent"},
		{Outcome: "absent", Reason: "r"},
		{Outcome: "lost", Reason: "r", Actor: "a"},
		{Outcome: "absent", Reason: "r", Actor: "a", Status: 200},
		{Outcome: "succeeded", Reason: "r", Actor: "a", Early: true},
		{Outcome: "succeeded", Reason: "r", Actor: "a", Status: 99},
		{Outcome: "absent", Reason: "r", Actor: "a", Proof: "stated"},
		{Outcome: "succeeded", Reason: strings.Repeat("r", 513), Actor: "a"},
		{Outcome: "succeeded", Reason: "r", Actor: "a", Resource: strings.Repeat("r", 1025)},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if _, err := l.Resolve(t.Context(), counterfoil.ID{}, w); !errors.Is(err, admin.ErrInvalid) {
				t.Errorf("%+v: %v", w, err)
			}
		})
	}
	if err := l.Trust(t.Context(), admin.TrustWord{Reason: "r"}); !errors.Is(err, admin.ErrInvalid) {
		t.Errorf("trust without actor: %v", err)
	}
}
