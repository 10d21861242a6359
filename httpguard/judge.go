package httpguard

import (
	"net/http"
	"slices"

	"github.com/counterfoil/counterfoil"
)

// finding is what an attempt came to, as its handler tells by what it said or
// by the status it gave.
type finding struct {
	state    counterfoil.State // Completed, Failed or Unknown
	kind     ResultKind
	outcome  counterfoil.Outcome
	evidence counterfoil.EvidenceKind
	reason   string
	// proves: it stands even when the handler's time was up. A status that is
	// given because of that proves nothing.
	proves bool
}

// judge reads what the handler said, then what it answered. It is asked with
// the lock held.
func (x *exchange) judge() finding {
	status := x.rec.status
	switch {
	case x.rec.phase == hijacked && !x.rec.wrote:
		status = http.StatusSwitchingProtocols
	case !x.rec.wrote:
		status = http.StatusOK
	}
	none := finding{state: counterfoil.Failed, kind: ResultNoEffect, proves: true}
	unknown := finding{
		state: counterfoil.Unknown, kind: ResultUnknown, evidence: counterfoil.EvidenceAmbiguous,
		outcome: counterfoil.Outcome{Status: status},
	}
	switch x.said.kind {
	case saidBroken:
		unknown.evidence, unknown.reason, unknown.outcome.Status = counterfoil.EvidenceBroken, x.said.reason, 0
		return unknown
	case saidUnknown:
		unknown.reason = x.said.reason
		return unknown
	case saidNoEffect, saidUnreachable:
		none.reason = x.said.reason
		return none
	}
	final := finding{state: counterfoil.Completed, kind: ResultCreated, outcome: counterfoil.Outcome{
		Class: counterfoil.Declined, Status: status,
	}}
	if status < 400 {
		final.outcome.Class = counterfoil.Succeeded
		final.proves = x.rec.wrote || x.rec.phase == hijacked
	}
	op := x.claim.Operation()
	switch said := x.rec.header.Get(HeaderOutcome); {
	case said == "final":
		final.proves = true
	case said == "none":
		none.reason = "the upstream said that there was no effect"
		return none
	case said == "unknown":
		unknown.reason = "the upstream said that it does not know"
		return unknown
	case slices.Contains(op.Ambiguous, status):
		unknown.reason = "the status does not prove what happened"
		return unknown
	case slices.Contains(op.NoEffect, status):
		none.proves = false
		none.reason = "the status is given before acting"
		return none
	}
	final.outcome.Resource = x.resource(status)
	if t := x.told; t.Resource != "" && t.Class == final.outcome.Class && (t.Status == 0 || t.Status == status) {
		final.outcome.Resource = t.Resource // the record has it so
	}
	return final
}

// resource is where the caller may look the result up: what the upstream says,
// what the policy says, or Location; always a path of this origin.
func (x *exchange) resource(status int) string {
	base := x.r.URL.EscapedPath()
	if said := x.rec.header.Get(HeaderResource); said != "" {
		if p := localResource(said, x.r.Host, base); p != "" {
			return p
		}
	}
	if status >= 400 {
		return ""
	}
	if template := x.op.Resource; template != "" {
		if !templated(template) {
			return template
		}
		if p := expand(template, x.t.values(x.r).PathValue); p != "" {
			return p
		}
	}
	return localResource(x.rec.header.Get("Location"), x.r.Host, base)
}
