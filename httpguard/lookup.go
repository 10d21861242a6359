package httpguard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// wellKnown is the path of the published rules; lookups are one level below.
const wellKnown = "/.well-known/idempotency"

// lookup answers the two well-known addresses, and returns false for all else.
func (g *Guard) lookup(t *table, w http.ResponseWriter, r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, wellKnown)
	if !ok || rest != "" && (rest[0] != '/' || strings.Contains(rest[1:], "/")) {
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		invalidStatus(http.StatusMethodNotAllowed, "this address is read only").Write(w)
		return true
	}
	if rest == "" {
		writeJSON(w, http.StatusOK, "application/json", Publish(t.policy))
		return true
	}
	rt := t.routes[rest[1:]]
	if rt == nil {
		invalidStatus(http.StatusNotFound, "the policy has no such operation; "+wellKnown+" lists them").Write(w)
		return true
	}
	x := newExchange(g, t, rt, w, r)
	if answer, p := x.find(); answer != nil {
		answer.write(w)
	} else if p != nil {
		p.Operation, p.Record = rt.op.Name, x.record
		x.mark("", nil)
		p.Write(w)
	}
	x.release()
	return true
}

// lookupBody is what a lookup tells.
type lookupBody struct {
	Record         string `json:"record"`
	State          string `json:"state"`
	Outcome        string `json:"outcome,omitempty"`
	Status         int    `json:"status,omitempty"`
	Resource       string `json:"resource,omitempty"`
	ProtectedUntil string `json:"protected_until,omitempty"`
}

// find looks one key up for the caller that owns it. It changes nothing.
func (x *exchange) find() (*Answer, *Problem) {
	if p := x.checkDisguise(x.r); p != nil {
		return nil, p
	}
	key, p := x.route.key(x.r)
	if p == nil && key == "" {
		p = &Problem{Code: ProblemKeyMissing, Detail: "a lookup needs the field " + x.keyHeader}
	}
	if p != nil {
		p.SafeNewKey = false // nothing was asked of the store
		return nil, p
	}
	sent, p := firstSent(x.r)
	if p != nil {
		return nil, p
	}
	principal, answer, p := x.g.principal(x.r, x.op)
	if answer != nil || p != nil {
		return answer, p
	}
	x.req.Key, x.req.Principal = key, principal
	if x.identify(); x.record == "" {
		return nil, storeUnavailable()
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), standingTimeout)
	defer cancel()
	snap, err := x.g.engine.Store().Get(ctx, x.id)
	switch {
	case errors.Is(err, counterfoil.ErrNotFound):
		return nil, x.absent(ctx, sent)
	case errors.Is(err, counterfoil.ErrBusy):
		return nil, &Problem{Code: ProblemInProgress, RetryAfter: time.Second, Detail: "look again"}
	case err != nil:
		x.g.warn(ctx, "a lookup failed", "record", x.record, "error", err)
		return nil, storeUnavailable()
	}
	if answer, p := x.g.authorize(x.r); answer != nil || p != nil {
		return answer, p
	}
	x.mark("", nil)
	writeJSON(x.w, http.StatusOK, "application/json", describe(&snap, x.record))
	return nil, nil
}

func describe(snap *counterfoil.Snapshot, id string) lookupBody {
	rec := &snap.Record
	b := lookupBody{Record: id, State: rec.State.String(), ProtectedUntil: instant(rec.ProtectedUntil())}
	switch {
	case rec.State.Settled():
		b.Outcome, b.Status = rec.Outcome.Class.String(), rec.Outcome.Status
		if !rec.Erased {
			b.Resource = rec.Outcome.Resource
		}
	case rec.State == counterfoil.Unknown, rec.Lapsed(snap.AsOf) && rec.Dispatched:
		b.State, b.Outcome = counterfoil.Unknown.String(), counterfoil.OutcomeUnknown.String()
	case rec.State == counterfoil.Failed:
		b.Outcome = counterfoil.NoEffect.String()
	}
	return b
}

// absent tells what the absence of a record proves, by the same table that
// would let the key proceed.
func (x *exchange) absent(ctx context.Context, sent time.Time) *Problem {
	facts := counterfoil.Facts{Now: time.Now(), Trusted: x.g.engine.Trusted(), Late: policy.LateRefuse}
	facts.Born, facts.BornBy = x.req.Key.Birth(x.op.Key.Format, sent)
	m, err := x.g.engine.Store().Meta(ctx, counterfoil.MetaForgotten)
	if err == nil {
		var f counterfoil.Forgotten
		if f, err = counterfoil.DecodeForgotten(m.Value); err == nil {
			facts.Forgotten = f[x.g.engine.OperationNumber(x.op.Name)]
		}
	}
	if err != nil && !errors.Is(err, counterfoil.ErrNotFound) {
		x.g.warn(ctx, "a lookup failed", "record", x.record, "error", err)
		return storeUnavailable()
	}
	switch counterfoil.Decide(&facts).Verdict {
	case counterfoil.VerdictProceed:
		return &Problem{Code: ProblemNotSeen, Detail: "send the request with the same key"}
	case counterfoil.VerdictExpired:
		return &Problem{
			Code:   ProblemKeyExpired,
			Detail: "the key is older than what is remembered of it, so that it may have run before",
		}
	case counterfoil.VerdictKeyInvalid:
		return &Problem{Code: ProblemKeyInvalid, Detail: "the key was made in the future; check the clock"}
	}
	return storeUnavailable()
}
