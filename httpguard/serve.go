package httpguard

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

// Hints of Retry-After.
const (
	retryStore = 2 * time.Second // the store's own timeout
	retryQuota = 5 * time.Second
)

// serve guards one request to an operation.
func (g *Guard) serve(t *table, next http.Handler, w http.ResponseWriter, r *http.Request, rt *route) {
	x := newExchange(g, t, rt, w, r)
	if answer, p := x.admit(); answer != nil {
		answer.write(w)
		x.done(ResultInvalid, answer.Status)
	} else if p != nil {
		x.refuse(p)
	} else if x.req.Key == "" {
		w.Header().Set(HeaderStatus, string(ResultUnguarded))
		x.done(ResultUnguarded, 0)
		through(next, w, r)
	} else if d, err := g.engine.Begin(r.Context(), &x.req); err != nil {
		x.refuse(x.refusal(err))
	} else {
		x.d = d
		x.name(d.ID)
		if d.Claim != nil {
			x.claim = d.Claim
			x.run(next)
			return // not released: the handler has seen it
		}
		x.verdict(d)
	}
	x.release()
}

// refuse answers a request that was not decided on.
func (x *exchange) refuse(p *Problem) {
	x.identify()
	x.mark("", nil)
	x.problem(p, kinds[p.Code].result)
}

// admit does all that comes before the store is asked, in the same order for
// every request, and fills in x.req. A request without a key that needs none
// comes back with an empty key. Where it refuses it says how.
func (x *exchange) admit() (*Answer, *Problem) {
	r := x.r
	if p := x.checkDisguise(r); p != nil {
		return nil, p
	}
	key, p := x.route.key(r)
	switch {
	case p != nil:
		return nil, p
	case key == "" && !x.op.Key.Required:
		return nil, nil
	case key == "":
		return nil, &Problem{Code: ProblemKeyMissing, Detail: "this operation needs the field " + x.keyHeader, SafeNewKey: true}
	}
	if p := checkShape(r); p != nil {
		return nil, p
	}
	if x.req.FirstSent, p = firstSent(r); p != nil {
		return nil, p
	}
	principal, answer, p := x.g.principal(r, x.op)
	if answer != nil || p != nil {
		return answer, p
	}
	x.req.Key, x.req.Principal = key, principal
	b, p := readBody(r, x.op.MaxRequest, x.room[:])
	if p == nil {
		p = x.checkTrailer(r)
	}
	if p != nil {
		return nil, p
	}
	x.request = fingerprint.Request{Method: r.Method, Path: r.URL.EscapedPath(), RawQuery: r.URL.RawQuery, Header: r.Header, Body: b}
	return nil, nil
}

// identify works out the record's id where Begin did not get to it.
func (x *exchange) identify() {
	if x.req.Key == "" {
		return
	}
	if id, err := x.g.engine.RecordID(x.op.Name, x.req.Principal, x.req.Key); err == nil {
		x.name(id)
	}
}

func (x *exchange) name(id counterfoil.ID) {
	var text [2 * len(id)]byte
	hex.Encode(text[:], id[:])
	x.id, x.record = id, string(text[:])
}

// refusal turns an error of Begin into its answer. This is the one place where
// errors become statuses.
func (x *exchange) refusal(err error) *Problem {
	switch {
	case errors.Is(err, counterfoil.ErrKeyInvalid):
		return invalidKey(reason(err))
	case errors.Is(err, counterfoil.ErrScopeMissing):
		return &Problem{Code: ProblemScopeMissing, Detail: "whose request this is must be known before its key counts"}
	case errors.Is(err, counterfoil.ErrOverQuota):
		return &Problem{
			Code: ProblemTooManyUnresolved, RetryAfter: retryQuota,
			Detail: fmt.Sprintf("this account has %d requests without an outcome; nothing was attempted", x.op.MaxUnresolved),
		}
	case errors.Is(err, fingerprint.ErrTooLarge):
		return tooLarge()
	}
	x.g.warn(x.r.Context(), "a request was refused because the store could not be relied on", "record", x.record, "error", err)
	return storeUnavailable()
}

func storeUnavailable() *Problem {
	return &Problem{
		Code: ProblemStoreUnavailable, RetryAfter: retryStore,
		Detail: "nothing was attempted. Ask again with the same key",
	}
}

// verdict answers a request that may not proceed.
func (x *exchange) verdict(d *counterfoil.Decision) {
	rec := &d.Record
	switch d.Verdict {
	case counterfoil.VerdictReplay, counterfoil.VerdictAlreadyProcessed:
		if !x.authorized() {
			return
		}
		if d.Verdict == counterfoil.VerdictAlreadyProcessed || !x.replay(rec, d.Response) {
			x.processed(rec)
		}
	case counterfoil.VerdictInProgress:
		x.mark(ResultInProgress, rec)
		x.problem(&Problem{
			Code: ProblemInProgress, RetryAfter: max(d.RetryAfter, time.Second),
			Detail: "ask again with the same key",
		}, ResultInProgress)
	case counterfoil.VerdictUnknown:
		x.unknown(rec, d.RetryAfter)
	case counterfoil.VerdictMismatch:
		x.mark(ResultMismatch, nil)
		x.problem(&Problem{
			Code:   ProblemKeyReused,
			Detail: "a retry must send what was sent first; only a new intent takes a new key",
		}, ResultMismatch)
	case counterfoil.VerdictExpired:
		x.expiredKey(rec)
	case counterfoil.VerdictKeyInvalid:
		x.mark("", nil)
		p := invalidKey("it was made in the future, by its own time or by " + HeaderFirstSent + "; check the clock")
		// A wrong Idempotency-First-Sent says nothing of what ran under the key.
		_, p.SafeNewKey = keyTime(x.req.Key, x.op.Key.Format)
		x.problem(p, ResultInvalid)
	default: // VerdictUnavailable, and what a newer engine may answer
		x.mark("", nil)
		x.problem(storeUnavailable(), ResultStoreError)
	}
}

// keyTime reports whether the key carries a time of its own.
func keyTime(k counterfoil.Key, f policy.KeyFormat) (time.Time, bool) {
	t, w := k.Birth(f, time.Time{})
	return t, w == counterfoil.WitnessKeyTime
}

// expiredKey answers 410, with the outcome while a record stands.
func (x *exchange) expiredKey(rec *counterfoil.Record) {
	p := &Problem{
		Code:   ProblemKeyExpired,
		Detail: "the key is older than what is remembered of it, so that it may have run before. It is not run again",
	}
	if rec.State != counterfoil.Absent {
		if !x.authorized() {
			return
		}
		p.Outcome = rec.Outcome.Class.String()
		if !rec.Erased {
			p.Resource, p.CompletedAt = rec.Outcome.Resource, rec.SettledAt
		}
		x.mark(ResultExpired, rec)
	} else {
		x.mark(ResultExpired, nil)
	}
	x.problem(p, ResultExpired)
}

// authorized asks whether the standing outcome may be shown, and answers where
// it may not.
func (x *exchange) authorized() bool {
	answer, p := x.g.authorize(x.r)
	switch {
	case answer != nil:
		x.mark("", nil)
		answer.write(x.w)
		x.done(ResultInvalid, answer.Status)
	case p != nil:
		x.mark("", nil)
		x.problem(p, ResultStoreError)
	default:
		return true
	}
	return false
}

// ruleKey is the content of a fingerprint rule.
func ruleKey(op *policy.Operation, maxBody int64) string {
	b, err := json.Marshal(op.Fingerprint)
	if err != nil {
		panic("httpguard: " + err.Error()) // strings only
	}
	return strconv.FormatInt(maxBody, 10) + string(b)
}

func templated(s string) bool { return strings.Contains(s, "{") }
