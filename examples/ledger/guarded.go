package main

import (
	"encoding/json"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
)

// guarded runs under the middleware: key, scope, fingerprint, replays and all
// other answers are its business. The claim is durable before this runs; the
// completion commits with the money; the response is kept after the answer.
// Choose it for services that guard their routes anyway.
func (l *ledger) guarded(w http.ResponseWriter, r *http.Request) {
	var t transfer
	if err := json.NewDecoder(r.Body).Decode(&t); err != nil || t.Amount <= 0 {
		http.Error(w, "want from, to and a positive amount", http.StatusBadRequest)
		return
	}
	attempt, ok := httpguard.FromContext(r.Context())
	if !ok {
		http.Error(w, "this route is guarded", http.StatusInternalServerError)
		return
	}
	ctx := r.Context()
	err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		if err := move(ctx, tx, t); err != nil {
			return err
		}
		// Last before the commit: an error here, that the claim was lost for one,
		// must roll the money back.
		err := attempt.CompleteIn(ctx, l.store.InTx(tx), counterfoil.Outcome{Class: counterfoil.Succeeded, Status: http.StatusCreated})
		step()
		return err
	})
	step()
	if err != nil {
		// Perhaps it was committed; the guard looks before it lets this out.
		attempt.Unknown("the transaction ended with an error")
		http.Error(w, "the transfer did not go through", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(t)
	step()
}
