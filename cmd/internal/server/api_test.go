package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/admin"
)

// unknown makes a record whose outcome nobody can tell, and returns its id.
func (w *world) unknown(key string) counterfoil.ID {
	w.t.Helper()
	w.up.does(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(500) })
	a := w.pay(key, "x")
	w.up.does(nil)
	id, err := counterfoil.ParseID(a.Header.Get("Idempotency-Record"))
	if err != nil || a.Header.Get("Idempotency-Status") != "unknown" {
		w.t.Fatalf("%v: %d %v", err, a.StatusCode, a.Header)
	}
	return id
}

const holding = "    on_unknown: hold\n    accept: [unresolved-needs-operator]\n    settle: 0s\n"

// TestA01Tokens: reading from this machine needs no token; anything else does,
// and no answer says why it was not the right one.
func TestA01Tokens(t *testing.T) {
	w := start(t, payPolicy, "")
	info, err := os.Stat(w.conf.AdminTokensFile)
	if err != nil || info.Mode().Perm() != 0o600 || filepath.Dir(w.conf.AdminTokensFile) != w.dir {
		t.Fatalf("the token file: %v, %v", info, err)
	}
	tokens, err := admin.ReadTokens(w.conf.AdminTokensFile)
	if err != nil {
		t.Fatal(err)
	}
	_, good := tokens.First()
	if len(good) < 43 {
		t.Errorf("a token of %d characters has less than 256 bits", len(good))
	}
	base := "http://" + w.AdminAddr()
	var bodies []string
	for _, tc := range []struct {
		method, path, auth string
		status             int
		more               []string
	}{
		{"GET", "/v1/records", "", 200, nil},
		{"GET", "/v1/records", "Bearer " + good, 200, nil},
		{"GET", "/v1/records", "Bearer " + good + "x", 401, nil},
		{"GET", "/v1/records", "Bearer ", 401, nil},
		{"GET", "/v1/records", "Basic " + good, 401, nil},
		{"GET", "/v1/records", "", 401, []string{"X-Forwarded-For", "192.0.2.1"}},
		{"GET", "/v1/records", "", 401, []string{"Host", "evil.example"}},
		{"POST", "/v1/sweep", "", 401, nil},
		{"POST", "/v1/sweep", "bearer " + good, 200, nil},
		{"POST", "/v1/sweep", "Bearer nonsense", 401, nil},
		{"POST", "/v1/reconcile", "Bearer " + good, 200, nil},
		{"POST", "/v1/sweep", "Bearer " + good, 403, []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}},
		{"POST", "/v1/store/trust", "", 401, nil},
		{"GET", "/v1/openapi.yaml", "", 200, nil},
		{"GET", "/metrics", "", 200, nil},
	} {
		fields := tc.more
		if tc.auth != "" {
			fields = append(fields, "Authorization", tc.auth)
		}
		a := send(t, tc.method, base+tc.path, "", fields...)
		if a.StatusCode != tc.status {
			t.Errorf("%s %s with %q %v: %d, want %d: %s", tc.method, tc.path, tc.auth, tc.more, a.StatusCode, tc.status, a.body)
		}
		if a.StatusCode == 401 {
			bodies = append(bodies, a.body)
			if a.Header.Get("WWW-Authenticate") != "Bearer" || a.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("401 with %v", a.Header)
			}
		}
	}
	for _, b := range bodies {
		if b != bodies[0] {
			t.Errorf("two refusals differ: %s and %s", b, bodies[0])
		}
	}
}

// TestAPIMalformed has the rows A02 to A16 that are about what is sent.
func TestAPIMalformed(t *testing.T) {
	w := start(t, payPolicy+holding, "")
	id := w.unknown("k-1")
	w.pay("k-2", "x")
	_, token := func() (string, string) { ts, _ := admin.ReadTokens(w.conf.AdminTokensFile); return ts.First() }()
	page, err := w.client().Records(t.Context(), admin.Filter{Limit: 1})
	if err != nil || page.NextCursor == "" {
		t.Fatalf("%+v, %v", page, err)
	}
	forged := "A" + page.NextCursor[1:]
	if page.NextCursor[0] == 'A' {
		forged = "B" + page.NextCursor[1:]
	}
	resolve := "/v1/records/" + id.String() + "/resolve"
	for _, tc := range []struct {
		row, method, path, body string
		status                  int
	}{
		{"A02 token in query", "GET", "/v1/records?token=" + token, "", 400},
		{"A02 access_token in query", "GET", "/v1/operations?access_token=" + token, "", 400},
		{"A03 stale rev", "POST", resolve, `{"outcome":"succeeded","reason":"r","rev":1}`, 409},
		{"A04 no reason", "POST", resolve, `{"outcome":"absent"}`, 400},
		{"A04 empty reason", "POST", resolve, `{"outcome":"absent","reason":""}`, 400},
		{"no outcome", "POST", resolve, `{"reason":"r"}`, 400},
		{"other outcome", "POST", resolve, `{"outcome":"released","reason":"r"}`, 400},
		{"A08 forged cursor", "GET", "/v1/records?limit=1&cursor=" + forged, "", 400},
		{"A08 cursor of another question", "GET", "/v1/records?state=unknown&cursor=" + page.NextCursor, "", 400},
		{"A08 nonsense", "GET", "/v1/records?cursor=%21", "", 400},
		{"A09 huge limit", "GET", "/v1/records?limit=1000000000", "", 200},
		{"A09 no limit at all", "GET", "/v1/records?limit=0", "", 400},
		{"A09 negative", "GET", "/v1/records?limit=-1", "", 400},
		{"A16 doubled member", "POST", resolve, `{"outcome":"absent","reason":"r","reason":"s"}`, 400},
		{"A16 depth", "POST", resolve, strings.Repeat("[", 20000), 400},
		{"A16 unknown member", "POST", resolve, `{"outcome":"absent","reason":"r","force":true}`, 400},
		{"A16 other spelling", "POST", resolve, `{"outcome":"absent","Reason":"r"}`, 400},
		{"not JSON", "POST", resolve, `outcome=absent`, 400},
		{"no body", "POST", resolve, ``, 400},
		{"state", "GET", "/v1/records?state=lost", "", 400},
		{"operation", "GET", "/v1/records?operation=lost", "", 400},
		{"older_than without unit", "GET", "/v1/records?older_than=5", "", 400},
		{"id", "GET", "/v1/records/zz", "", 400},
		{"absent id", "GET", "/v1/records/" + strings.Repeat("0", 40), "", 404},
		{"relative backup", "POST", "/v1/store/backup", `{"directory":"x"}`, 400},
		{"unknown path", "GET", "/v1/claims", "", 404},
	} {
		t.Run(tc.row, func(t *testing.T) {
			a := send(t, tc.method, "http://"+w.AdminAddr()+tc.path, tc.body, "Authorization", "Bearer "+token, "Content-Type", "application/json")
			if a.StatusCode != tc.status {
				t.Errorf("%d, want %d: %s", a.StatusCode, tc.status, a.body)
			}
			if strings.Contains(a.body, token) {
				t.Error("the token is in the answer")
			}
			if a.StatusCode/100 == 4 && tc.path != "/v1/claims" {
				var p admin.Problem
				if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Status != tc.status || p.Detail == "" || !strings.HasPrefix(p.Type, "https://counterfoil.dev/problems/") {
					t.Errorf("no problem: %s", a.body)
				}
			}
		})
	}
	if rec, err := w.client().Record(t.Context(), id); err != nil || rec.State != "unknown" {
		t.Errorf("after all that: %+v, %v", rec, err)
	}
}

func TestRecordsThroughTheClient(t *testing.T) {
	w := start(t, payPolicy+holding, "")
	var ids []counterfoil.ID
	for i := range 5 {
		a := w.pay(fmt.Sprintf("k-%d", i), "x")
		id, _ := counterfoil.ParseID(a.Header.Get("Idempotency-Record"))
		ids = append(ids, id)
	}
	id := w.unknown("k-unknown")
	c, ctx := w.client(), t.Context()
	if err := c.Ping(ctx); err != nil {
		t.Error(err)
	}

	seen := map[counterfoil.ID]bool{}
	for f := (admin.Filter{Limit: 2}); ; {
		page, err := c.Records(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		if page.Version != 1 || len(page.Items) > 2 {
			t.Errorf("page %+v", page)
		}
		for _, r := range page.Items {
			seen[r.ID] = true
		}
		if f.Cursor = page.NextCursor; f.Cursor == "" {
			break
		}
	}
	if len(seen) != 6 || !seen[ids[0]] || !seen[id] {
		t.Errorf("paged through %d records, want 6", len(seen))
	}
	for what, f := range map[string]admin.Filter{
		"unknown": {State: counterfoil.Unknown}, "old": {OlderThan: time.Hour, Operation: "pay"},
	} {
		page, err := c.Records(ctx, f)
		if want := map[string]int{"unknown": 1, "old": 0}[what]; err != nil || len(page.Items) != want {
			t.Errorf("%s: %d records, %v; want %d", what, len(page.Items), err, want)
		}
	}

	rec, err := c.Record(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if rec.State != "unknown" || rec.Operation != "pay" || rec.MayGoAt != nil || rec.Outcome == nil || rec.Outcome.Status != 500 ||
		!strings.Contains(rec.Why, "until somebody resolves it") || len(rec.Evidence) == 0 {
		t.Errorf("unknown: %+v", rec)
	}
	done, err := c.Record(ctx, ids[0])
	if err != nil || !strings.Contains(done.Why, "It may go on ") || done.MayGoAt == nil || !done.HasResponse {
		t.Errorf("completed: %+v, %v", done, err)
	}

	if _, err := c.Resolve(ctx, id, admin.Word{Outcome: admin.OutcomeSucceeded, Reason: "r", Rev: rec.Rev + 1}); !errors.Is(err, counterfoil.ErrConflict) {
		t.Errorf("A03: %v", err)
	}
	got, err := c.Resolve(ctx, id, admin.Word{Outcome: admin.OutcomeSucceeded, Status: 201, Resource: "/pay/7", Reason: "found in the ledger", Rev: rec.Rev})
	if err != nil || got.State != "completed" && got.State != "tombstone" {
		t.Fatalf("resolve: %+v, %v", got, err)
	}
	last := got.Evidence[len(got.Evidence)-1]
	if last.Actor != "operator" || last.Reason != "found in the ledger" || last.Kind != "resolved" {
		t.Errorf("evidence %+v", last)
	}
	if a := w.pay("k-unknown", "x"); a.StatusCode != 201 || a.Header.Get("Idempotency-Status") != "already-processed" {
		t.Errorf("after resolving: %d %v", a.StatusCode, a.Header)
	}
	if _, err := c.Resolve(ctx, id, admin.Word{Outcome: admin.OutcomeAbsent, Reason: "r"}); !errors.Is(err, counterfoil.ErrSettled) {
		t.Errorf("resolve twice: %v", err)
	}

	ops, err := c.Operations(ctx)
	if err != nil || len(ops.Items) != 1 || ops.Items[0].Records["completed"] != 6 || ops.Items[0].TTLSeconds != 86400 {
		t.Errorf("operations: %+v, %v", ops, err)
	}
	if res, err := c.Sweep(ctx); err != nil || !res.Complete {
		t.Errorf("sweep: %+v, %v", res, err)
	}
	if res, err := c.Reconcile(ctx); err != nil || res.Errors != 0 {
		t.Errorf("reconcile: %+v, %v", res, err)
	}
	found, err := c.Doctor(ctx)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, f := range found.Items {
		codes[f.Code] = true
		if f.Message == "" || f.Remedy == "" || f.Severity == "" {
			t.Errorf("finding %+v", f)
		}
	}
	// C80, and the class of a memory store.
	if !codes["single-process"] || !codes["may-lose-acknowledged-claims"] || codes["sweep-never"] {
		t.Errorf("findings %v", codes)
	}
}

// TestC82SweepThatNeverRan is seen in metrics and by doctor, not in readiness.
func TestC82SweepThatNeverRan(t *testing.T) {
	w := start(t, payPolicy, "")
	found, err := w.client().Doctor(t.Context())
	if err != nil || !strings.Contains(fmt.Sprint(found.Items), "sweep-never") {
		t.Errorf("doctor: %+v, %v", found, err)
	}
	if m := w.ask("/metrics").body; !strings.Contains(m, "idempotency_sweep_last_run_timestamp_seconds 0") {
		t.Error("the metric does not say never")
	}
	if a := w.ask("/readyz"); a.StatusCode != 200 {
		t.Errorf("readyz: %d", a.StatusCode)
	}
}

func TestClientWithoutServer(t *testing.T) {
	w := start(t, payPolicy, "")
	addr, guarded := w.AdminAddr(), w.Addr()
	if err := admin.NewClient(guarded, "").Ping(t.Context()); err == nil || errors.Is(err, admin.ErrNobody) {
		t.Errorf("another service answers: %v", err)
	}
	if _, err := admin.NewClient(addr, "").Sweep(t.Context()); !errors.Is(err, admin.ErrUnauthorized) {
		t.Errorf("no token: %v", err)
	}
	w.stop()
	if err := admin.NewClient(addr, "").Ping(t.Context()); !errors.Is(err, admin.ErrNobody) {
		t.Errorf("nobody there: %v", err)
	}
}

func TestBackupThroughTheAPI(t *testing.T) {
	w := start(t, payPolicy, "store: pebble:./data\n")
	w.pay("k-1", "x")
	dir := filepath.Join(t.TempDir(), "copy")
	if err := w.client().Backup(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	m := start(t, payPolicy, "")
	if err := m.client().Backup(t.Context(), dir+"2"); !errors.Is(err, admin.ErrInvalid) {
		t.Errorf("memory: %v", err)
	}
}

func TestOpenAPI(t *testing.T) {
	w := start(t, payPolicy, "")
	yaml := w.ask("/v1/openapi.yaml").body
	for _, part := range []string{"openapi: 3.1.0", "/v1/records/{id}/resolve", "/v1/store/trust", "/v1/doctor", "additionalProperties: false"} {
		if !strings.Contains(yaml, part) {
			t.Errorf("no %s in the description", part)
		}
	}
	if strings.Contains(yaml, "$schema") || strings.Contains(w.ask("/v1/records").body, "$schema") {
		t.Error("a $schema member is announced or sent")
	}
	page := w.ask("/v1/docs").body
	if strings.Contains(page, "<script") || strings.Contains(page, "https://") || !strings.Contains(page, "/v1/records/{id}/resolve") {
		t.Errorf("docs page: %s", page)
	}
	for _, path := range []string{"/docs", "/schemas/Record", "/openapi.json"} {
		if a := w.ask(path); a.StatusCode != 404 {
			t.Errorf("%s: %d", path, a.StatusCode)
		}
	}
}
