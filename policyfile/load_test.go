package policyfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/policyfile"
)

const minimal = `version: 1
operations:
  pay:
    scope: {principal: header:X-Account-Id}
    ttl: {safety_margin: 24h}
`

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
}

// refusal is the one finding of an Error.
func refusal(t *testing.T, err error) policyfile.Finding {
	t.Helper()
	var e *policyfile.Error
	if !errors.As(err, &e) || len(e.Findings) != 1 {
		t.Fatalf("got %v, want an Error with one finding", err)
	}
	return e.Findings[0]
}

func TestLoadContract(t *testing.T) {
	p, err := policyfile.Load(filepath.Join("testdata", "good", "contract.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o := p.Operation("payment_capture")
	if p.Version != 7 || o == nil {
		t.Fatalf("got %+v", p)
	}
	// 4 h + 1 h + 20 h; contract.md says 24 h of these figures.
	if got, want := o.TTL(), 25*time.Hour; got != want {
		t.Errorf("TTL = %v, want %v", got, want)
	}
	if got, want := o.Retention(), 90*policy.Day; got != want {
		t.Errorf("Retention = %v, want %v", got, want)
	}
	if got, want := o.Replay(), 24*time.Hour; got != want {
		t.Errorf("Replay = %v, want %v", got, want)
	}
	if got, want := o.ExpectedRows(), 4.5e6; got != want {
		t.Errorf("ExpectedRows = %v, want %v", got, want)
	}
	if o.Family() != "payments" || o.Scope.Principal.String() != "header:X-Account-Id" {
		t.Errorf("scope %+v", o.Scope)
	}

	// All that the example writes beside the formula is the default.
	want := policy.NewOperation("payment_capture")
	want.Match, want.Scope, want.Fingerprint, want.Inputs = o.Match, o.Scope, o.Fingerprint, o.Inputs
	want.Protect, want.ReplayFor, want.Volume, want.Resource, want.Gates = o.Protect, o.ReplayFor, o.Volume, o.Resource, o.Gates
	got := policy.Policy{Version: 7, Operations: []policy.Operation{*o}}
	if d := policy.Compare(&got, &policy.Policy{Version: 7, Operations: []policy.Operation{want}}); len(d) != 0 {
		t.Errorf("not the documented defaults: %v", d)
	}
}

func TestLoadEveryInput(t *testing.T) {
	p, err := policyfile.Load(filepath.Join("testdata", "good", "inputs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o := p.Operation("nested")
	if got, want := o.Inputs.ClientRetryBudget.Total(), 24*time.Hour; got != want {
		t.Errorf("client_retry_budget = %v, want %v", got, want)
	}
	if got, want := o.TTL(), 24*time.Hour+90*time.Minute+26*time.Hour; got != want {
		t.Errorf("TTL = %v, want %v", got, want)
	}
	if o.Inputs.BrokerRedeliveryWindow.Source != "the queue's settings" || o.Inputs.ClientRetryBudget.Retriers[0].Inside != "job" {
		t.Errorf("inputs %+v", o.Inputs)
	}
	if o.ReplayFor == nil || o.Replay() != 0 || o.Settle != 0 || o.Wait != 500*time.Millisecond {
		t.Errorf("zeros that were written became defaults: %+v", o)
	}
}

func TestLoadEveryRule(t *testing.T) {
	p, err := policyfile.Load(filepath.Join("testdata", "good", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got := p.Operation("b.redispatch")
	want := policy.NewOperation("b.redispatch")
	want.RenamedFrom = "old"
	want.Match = []string{"DELETE api.example/v1/orders/{order}", "PATCH /v1/orders/{order}", "PUT /v1/orders/{order}"}
	want.Scope = policy.Scope{Principal: policy.Principal{Kind: policy.PrincipalAnonymous}, Family: "orders"}
	want.Key = policy.Key{Header: "Idempotency-Key", Required: false, Format: policy.KeyULID}
	want.Fingerprint = policy.Fingerprint{
		Fields: []string{"$.amount", "$.lines[*].sku"},
		Defaults: []policy.Default{
			{Path: "$.a", Value: "null"},
			{Path: "$.b", Value: `[1,2.50,{"c":"d"}]`},
			{Path: "$.e", Value: "-0"},
			{Path: "$.f", Value: "10000000000000000000001"},
		},
	}
	want.Inputs.SafetyMargin.Value = 90 * time.Second
	want.Protect = 30 * policy.Day
	want.Lease = 500 * time.Millisecond
	want.Ambiguous, want.NoEffect = []int{}, []int{429}
	want.OnUnknown = policy.OnUnknown{Rule: policy.UnknownRedispatch, Within: 23 * time.Hour}
	want.UnknownStatus = 409
	want.LateAnswer, want.Dispatch, want.Late = policy.LateAnswerSeeOther, policy.DispatchExplicit, policy.LateCount
	want.MaxRequest, want.MaxResponse, want.MaxUnresolved = 64<<20, 512, 1
	want.Volume = policy.Volume{Records: 0.5, Per: time.Second}
	want.Resource = "/v1/orders/{order}"
	want.Durability = policy.DurabilityA
	want.Accept = []string{policy.AcceptMayLoseClaims}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", *got, want)
	}
}

// P06: a file too large, and one that an anchor bomb would unfold.
func TestP06Bounds(t *testing.T) {
	_, err := policyfile.Parse("p", []byte(minimal+"# "+strings.Repeat("x", policyfile.MaxSize)))
	if f := refusal(t, err); f.Code != policyfile.CodeTooLarge {
		t.Errorf("got %v, want %s", f, policyfile.CodeTooLarge)
	}
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, strings.Repeat("# a line of text\n", 50<<20/17), 0o600)
	_, err = policyfile.Load(path)
	if f := refusal(t, err); f.Code != policyfile.CodeTooLarge {
		t.Errorf("50 MiB: got %v, want %s", f, policyfile.CodeTooLarge)
	}
	bomb := "a: &a [x, x]\n"
	for c := 'b'; c <= 'z'; c++ {
		bomb += string(c) + ": &" + string(c) + " [*" + string(c-1) + ", *" + string(c-1) + "]\n"
	}
	if p, findings := policyfile.Check("p", []byte(bomb)); p != nil || len(findings) == 0 {
		t.Error("an anchor bomb is accepted")
	}
	if p, _ := policyfile.Check("p", []byte(strings.Repeat("[", 20000))); p != nil {
		t.Error("20000 brackets are accepted")
	}
	if p, _ := policyfile.Check("p", []byte(minimal+"\xff")); p != nil {
		t.Error("what is not UTF-8 is accepted")
	}
}

// P09: files that others can change, and links that lead elsewhere.
func TestP09UnsafeFiles(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	link := func(target, name string) {
		if err := os.Symlink(target, in(name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(outside, "policy.yaml"), minimal, 0o600)
	write(t, in("private.yaml"), minimal, 0o600)
	write(t, in("group.yaml"), minimal, 0o664)
	write(t, in("world.yaml"), minimal, 0o666)
	// As Kubernetes mounts a ConfigMap: two relative links within.
	if err := os.Mkdir(in("..2026"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, in("..2026/policy.yaml"), minimal, 0o644)
	link("..2026", "..data")
	link("..data/policy.yaml", "mounted.yaml")
	link("private.yaml", "inside.yaml")
	link("world.yaml", "to_world.yaml")
	link(filepath.Join(outside, "policy.yaml"), "absolute.yaml")
	link("../"+filepath.Base(outside)+"/policy.yaml", "relative.yaml")
	if err := syscall.Mkfifo(in("pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"private.yaml", "group.yaml", "mounted.yaml", "inside.yaml"} {
		if _, err := policyfile.Load(in(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"world.yaml", "to_world.yaml", "absolute.yaml", "relative.yaml", "pipe.yaml", "."} {
		_, err := policyfile.Load(in(name))
		if err == nil {
			t.Errorf("%s is accepted", name)
			continue
		}
		if f := refusal(t, err); f.Code != policyfile.CodeFileUnsafe || f.Remedy == "" || f.File != in(name) {
			t.Errorf("%s: got %+v, want %s", name, f, policyfile.CodeFileUnsafe)
		}
	}
	if _, err := policyfile.Load(in("absent.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v, want it to be fs.ErrNotExist", err)
	}
	if _, err := policyfile.Load(in("absent/policy.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent directory: %v, want it to be fs.ErrNotExist", err)
	}
}

func TestErrorListsEverything(t *testing.T) {
	text := corpus(t, "bad")["everything_at_once.yaml"]
	_, err := policyfile.Parse("policy.yaml", text)
	lines := strings.Split(err.Error(), "\n")
	if want := len(comments(text, "want")); len(lines) != want {
		t.Errorf("%d lines, want %d:\n%v", len(lines), want, err)
	}
	if want := `policy.yaml:7:5: operations.pay.lease: "30" has no unit; write 30s, 30m, 30h or 30d`; lines[1] != want {
		t.Errorf("got  %s\nwant %s", lines[1], want)
	}
}

func TestWarningsRefuseNothing(t *testing.T) {
	p, findings := policyfile.Check("p", []byte(minimal))
	if p == nil || len(findings) != 1 || findings[0].Severity != policy.SeverityWarning || findings[0].Code != policy.CodeKeysSpent {
		t.Errorf("got %v, %v", p, findings)
	}
	if want := "p:3:3: warning: operations.pay.on_unknown: "; !strings.HasPrefix(findings[0].String(), want) {
		t.Errorf("got %q, want it to begin with %q", findings[0], want)
	}
}

// P05: both lines are named.
func TestP05NamesBothLines(t *testing.T) {
	_, findings := policyfile.Check("p", corpus(t, "bad")["P05_overlap.yaml"])
	for _, f := range findings {
		if f.Code == policy.CodeMatchConflict && f.Line == 12 && strings.Contains(f.Message, "(line 8)") {
			return
		}
	}
	t.Errorf("no conflict of lines 12 and 8 in %v", findings)
}

func TestSuggestions(t *testing.T) {
	known := []string{"deadline", "lease", "late", "late_answer", "match", "protect", "replay", "wait"}
	for name, want := range map[string]string{
		"leese": "lease", "protct": "protect", "late-answer": "late_answer", "retenton": "protect", "retention": "protect",
		"timeout": "deadline", "routes": "match", "x": "", "completely_different": "", strings.Repeat("a", 100): "",
	} {
		if got := policyfile.Suggest(name, known); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", name, got, want)
		}
	}
}
