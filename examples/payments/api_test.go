package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func testAPI(t *testing.T) (a *api, url, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "ledger.jsonl")
	l, err := openLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.close() })
	a = newAPI(l, 0)
	srv := httptest.NewServer(a.handler())
	t.Cleanup(srv.Close)
	return a, srv.URL, path
}

func call(t *testing.T, method, url, body string, header ...string) (*http.Response, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s %s: %s: %v", method, url, b, err)
	}
	return resp, out
}

const body = `{"amount":1999,"currency":"EUR","reference":"order-7"}`

func TestPaymentIsMadeShownAndCaptured(t *testing.T) {
	_, url, _ := testAPI(t)
	resp, made := call(t, "POST", url+"/v1/payments", body, "X-Account-Id", "acct_1", "Counterfoil-Identity", "id1")
	if resp.StatusCode != 201 || made["status"] != "charged" || resp.Header.Get("Location") != resp.Header.Get("Counterfoil-Resource") {
		t.Fatalf("create: %d %v %v", resp.StatusCode, made, resp.Header)
	}
	path := url + resp.Header.Get("Location")
	if resp, _ := call(t, "GET", path, "", "X-Account-Id", "acct_2"); resp.StatusCode != 404 {
		t.Errorf("another account sees the payment: %d", resp.StatusCode)
	}
	if resp, got := call(t, "POST", path+"/capture", "", "X-Account-Id", "acct_1"); resp.StatusCode != 200 || got["status"] != "captured" {
		t.Errorf("capture: %d %v", resp.StatusCode, got)
	}
	if resp, _ := call(t, "POST", path+"/capture", "", "X-Account-Id", "acct_1"); resp.StatusCode != 409 {
		t.Errorf("second capture: %d", resp.StatusCode)
	}
	if _, got := call(t, "GET", path, "", "X-Account-Id", "acct_1"); got["status"] != "captured" {
		t.Errorf("show: %v", got)
	}
	if _, got := call(t, "GET", url+"/ledger?identity=id1", ""); got["charges"] != 1.0 {
		t.Errorf("ledger by identity: %v", got)
	}
	if resp, _ := call(t, "POST", url+"/v1/payments", `{"amount":0}`, "X-Account-Id", "acct_1"); resp.StatusCode != 400 {
		t.Errorf("order without amount: %d", resp.StatusCode)
	}
}

func TestLedgerSurvivesACrashAfterTheEffect(t *testing.T) {
	a, url, path := testAPI(t)
	crashed := false
	a.crash = func() { crashed = true }
	call(t, "POST", url+"/v1/payments", body, "X-Account-Id", "acct_1", crashHeader, "1")
	if !crashed {
		t.Fatal("it did not crash")
	}
	// The crash may also have cut a later line short.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"effect":"char`); err != nil {
		t.Fatal(err)
	}
	f.Close()

	for range 2 {
		l, err := openLedger(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(l.find(func(entry) bool { return true })); n != 1 {
			t.Fatalf("%d entries after the crash, want 1", n)
		}
		l.close()
	}
}
