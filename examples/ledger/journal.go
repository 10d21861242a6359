package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/jackc/pgx/v5"
)

// journal is the handler of POST /journal: the same order as POST /transfers,
// with the claim, the money, the outcome and the answer in one transaction.
//
// Killed at any moment, either all of it is there or nothing is. No claim is
// left behind that would have to lapse, no outcome can become unknown, and a
// retry always gets the first answer, byte for byte.
//
// Take this way where the effect is nothing but writes to this database, and
// short: one commit in place of three, and nothing to wait for after a crash.
// Price: the handler reads the key and answers the verdicts itself, as below,
// and the whole of it holds one transaction open. Never take it for an effect
// that calls somebody else: that cannot be rolled back.
func (s *service) journal(w http.ResponseWriter, r *http.Request) {
	operation := s.engine.Policy().Operation("journal")
	key, problem := readKey(r)
	if problem != nil {
		problem.Write(w)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		(&httpguard.Problem{Code: httpguard.ProblemBodyTooLarge, Detail: "the body is too large, or was cut short"}).Write(w)
		return
	}
	// Before the claim: what is no order spends no key.
	o, err := parseOrder(r.Header.Get(accountHeader), body)
	if err != nil {
		fault(http.StatusBadRequest, err.Error()).write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), operation.Deadline)
	defer cancel()

	d, err := s.store.Do(ctx, s.engine, s.db, pgx.TxOptions{}, &counterfoil.Request{
		Operation:   operation.Name,
		Principal:   counterfoil.Principal(r.Header.Get(accountHeader)),
		Key:         key,
		Fingerprint: fingerprintOf(r, body),
	}, func(ctx context.Context, tx pgx.Tx, _ *counterfoil.Claim) (counterfoil.Result, error) {
		step("claimed in the transaction")
		res, err := move(ctx, tx, o)
		if err != nil {
			return counterfoil.Result{}, err // rolled back, the claim with it
		}
		return counterfoil.Result{Outcome: res.outcome(), Response: res.body}, nil
	})
	if err != nil {
		s.refuse(w, err)
		return
	}
	s.tell(w, d)
}

// tell answers a decision. The record keeps the status and the resource, the
// response is the body.
func (s *service) tell(w http.ResponseWriter, d *counterfoil.Decision) {
	mark := func(kind httpguard.ResultKind) { w.Header().Set(httpguard.HeaderStatus, string(kind)) }
	problem := func(p httpguard.Problem) {
		p.Operation, p.Record = d.Operation.Name, d.ID.String()
		p.Write(w)
	}
	w.Header().Set(httpguard.HeaderRecord, d.ID.String())
	out := d.Record.Outcome
	switch d.Verdict {
	case counterfoil.VerdictProceed: // it was done, and is committed
		mark(httpguard.ResultCreated)
		(&result{out.Status, out.Resource, d.Response}).write(w)

	case counterfoil.VerdictReplay:
		mark(httpguard.ResultReplayed)
		(&result{out.Status, out.Resource, d.Response}).write(w)

	case counterfoil.VerdictAlreadyProcessed: // its replay time is over
		mark(httpguard.ResultAlreadyProcessed)
		answer(out.Status, out.Resource, map[string]string{"outcome": out.Class.String(), "resource": out.Resource}).write(w)

	case counterfoil.VerdictInProgress: // another transaction holds the key, and has not ended
		mark(httpguard.ResultInProgress)
		problem(httpguard.Problem{
			Code: httpguard.ProblemInProgress, RetryAfter: max(d.RetryAfter, time.Second),
			Detail: "ask again with the same key",
		})

	case counterfoil.VerdictMismatch:
		mark(httpguard.ResultMismatch)
		problem(httpguard.Problem{
			Code:   httpguard.ProblemKeyReused,
			Detail: "a retry must send what was sent first; only a new intent takes a new key",
		})

	case counterfoil.VerdictExpired:
		mark(httpguard.ResultExpired)
		problem(httpguard.Problem{
			Code: httpguard.ProblemKeyExpired, Outcome: out.Class.String(), Resource: out.Resource,
			Detail: "the key is older than what is remembered of it, so that it may have run before. It is not run again",
		})

	case counterfoil.VerdictKeyInvalid:
		problem(httpguard.Problem{Code: httpguard.ProblemKeyInvalid, Detail: "it was made in the future; check the clock"})

	case counterfoil.VerdictUnknown:
		// Not from this route: a claim that nobody else ever saw open cannot
		// lapse. A person may have put it on the record.
		mark(httpguard.ResultUnknown)
		problem(httpguard.Problem{Code: httpguard.ProblemOutcomeUnknown, Detail: "look the transfer up, or ask the operator"})

	default: // VerdictUnavailable, and what a newer engine may answer
		problem(httpguard.Problem{Code: httpguard.ProblemStoreUnavailable, RetryAfter: 2 * time.Second, Detail: "nothing was attempted. Ask again with the same key"})
	}
}

// refuse answers an error of Do: nothing happened, but for ErrUnconfirmed.
func (s *service) refuse(w http.ResponseWriter, err error) {
	p := httpguard.Problem{
		Code: httpguard.ProblemStoreUnavailable, RetryAfter: time.Second,
		Detail: "nothing was moved. Ask again with the same key",
	}
	switch {
	case errors.Is(err, counterfoil.ErrUnconfirmed):
		// The commit was sent and not answered. The next request reads what came of it.
		p.Code, p.Detail = httpguard.ProblemOutcomeUnknown, "the commit was not answered. Ask again with the same key"
		w.Header().Set(httpguard.HeaderStatus, string(httpguard.ResultUnknown))
		s.log.Error("a commit was not answered", "error", err)
	case errors.Is(err, counterfoil.ErrScopeMissing):
		p = httpguard.Problem{Code: httpguard.ProblemScopeMissing, Detail: "say who you are"}
	case errors.Is(err, counterfoil.ErrKeyInvalid):
		p = invalidKey(err)
	case errors.Is(err, counterfoil.ErrOverQuota):
		p.Code, p.Detail = httpguard.ProblemTooManyUnresolved, "too many transfers of this account are under way"
	default:
		s.log.Error("a transfer was not made", "error", err)
	}
	p.Write(w)
}

// readKey reads the field Idempotency-Key.
func readKey(r *http.Request) (counterfoil.Key, *httpguard.Problem) {
	lines := r.Header.Values("Idempotency-Key")
	if len(lines) == 0 {
		return "", &httpguard.Problem{Code: httpguard.ProblemKeyMissing, Detail: "this operation needs the field Idempotency-Key", SafeNewKey: true}
	}
	key, err := httpguard.ParseKey(lines[0])
	if len(lines) > 1 {
		err = fmt.Errorf("%w: it comes in %d lines; send one", counterfoil.ErrKeyInvalid, len(lines))
	}
	if err != nil {
		p := invalidKey(err)
		return "", &p
	}
	return key, nil
}

func invalidKey(err error) httpguard.Problem {
	return httpguard.Problem{Code: httpguard.ProblemKeyInvalid, Detail: err.Error(), SafeNewKey: true}
}

// fingerprintOf binds the key to what was sent. A standing record is compared
// under the rules and the version that made it.
func fingerprintOf(r *http.Request, body []byte) counterfoil.FingerprintFunc {
	sent := fingerprint.Request{Method: r.Method, Path: r.URL.EscapedPath(), RawQuery: r.URL.RawQuery, Header: r.Header, Body: body}
	return func(op *policy.Operation, version uint8) (counterfoil.Fingerprint, error) {
		if version == 0 {
			version = fingerprint.Current
		}
		rule, err := fingerprint.Compile(op.Fingerprint, fingerprint.Options{})
		if err != nil {
			return counterfoil.Fingerprint{}, err
		}
		return rule.Sum(version, &sent)
	}
}
