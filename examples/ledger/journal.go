package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/policy"
)

// journal does without the middleware: claim, money, completion and response
// are one transaction, or nothing at all. Choose it where there is no HTTP, or
// where one commit must carry everything.
func (l *ledger) journal(w http.ResponseWriter, r *http.Request) {
	key, err := httpguard.ParseKey(r.Header.Get("Idempotency-Key"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	var t transfer
	if err := json.Unmarshal(body, &t); err != nil || t.Amount <= 0 {
		http.Error(w, "want from, to and a positive amount", http.StatusBadRequest)
		return
	}
	req := &counterfoil.Request{
		Operation: "journal", Principal: counterfoil.Principal(r.Header.Get("X-Account-Id")), Key: key,
		Fingerprint: func(*policy.Operation, uint8) (counterfoil.Fingerprint, error) {
			sum := sha256.Sum256(bytes.TrimSpace(body))
			return counterfoil.Fingerprint{Version: 1, Sum: [16]byte(sum[:16])}, nil
		},
	}
	d, err := l.store.Do(r.Context(), l.engine, l.pool, pgx.TxOptions{}, req, func(ctx context.Context, tx pgx.Tx, _ *counterfoil.Claim) (counterfoil.Result, error) {
		if err := move(ctx, tx, t); err != nil {
			return counterfoil.Result{}, err
		}
		answer, err := json.Marshal(t)
		step()
		return counterfoil.Result{Outcome: counterfoil.Outcome{Class: counterfoil.Succeeded, Status: http.StatusCreated}, Response: append(answer, '\n')}, err
	})
	step()
	if err != nil {
		http.Error(w, counterfoil.Code(err), http.StatusServiceUnavailable)
		return
	}
	status, text := http.StatusServiceUnavailable, d.Verdict.String()
	switch d.Verdict {
	case counterfoil.VerdictProceed, counterfoil.VerdictReplay:
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(d.Response)
		return
	case counterfoil.VerdictAlreadyProcessed:
		status = d.Record.Outcome.Status
	case counterfoil.VerdictInProgress:
		status = http.StatusConflict
	case counterfoil.VerdictMismatch:
		status = http.StatusUnprocessableEntity
	case counterfoil.VerdictExpired:
		status = http.StatusGone
	}
	http.Error(w, text, status)
}
