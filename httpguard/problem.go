package httpguard

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// ProblemBase begins every problem type.
const ProblemBase = "https://counterfoil.dev/problems/"

// ProblemCode is the last part of a problem type. It never changes.
type ProblemCode string

// The problem types of contract.md §4.
const (
	ProblemAlreadyProcessed    ProblemCode = "already-processed"
	ProblemInProgress          ProblemCode = "in-progress"
	ProblemOutcomeUnknown      ProblemCode = "outcome-unknown"
	ProblemUpstreamUnreachable ProblemCode = "upstream-unreachable"
	ProblemKeyReused           ProblemCode = "key-reused"
	ProblemKeyExpired          ProblemCode = "key-expired"
	ProblemKeyMissing          ProblemCode = "key-missing"
	ProblemKeyInvalid          ProblemCode = "key-invalid"
	ProblemScopeMissing        ProblemCode = "scope-missing"
	ProblemRequestAmbiguous    ProblemCode = "request-ambiguous"
	ProblemRequestInvalid      ProblemCode = "request-invalid"
	ProblemBodyTooLarge        ProblemCode = "body-too-large"
	ProblemStoreUnavailable    ProblemCode = "store-unavailable"
	ProblemTooManyUnresolved   ProblemCode = "too-many-unresolved"
	ProblemNotSeen             ProblemCode = "not-seen"
)

// kinds says of each problem its title, its usual status, the value of
// Idempotency-Status (empty: none) and how it is counted.
var kinds = map[ProblemCode]struct {
	title  string
	status int
	mark   ResultKind
	result ResultKind
}{
	ProblemAlreadyProcessed:    {"The request was processed before; its response is no longer kept", 0, ResultAlreadyProcessed, ResultAlreadyProcessed},
	ProblemInProgress:          {"The first request is still running", http.StatusConflict, ResultInProgress, ResultInProgress},
	ProblemOutcomeUnknown:      {"The outcome of the request is not known", http.StatusServiceUnavailable, ResultUnknown, ResultUnknown},
	ProblemUpstreamUnreachable: {"The upstream could not be reached", http.StatusBadGateway, ResultNoEffect, ResultNoEffect},
	ProblemKeyReused:           {"The key was used for another request", http.StatusUnprocessableEntity, ResultMismatch, ResultMismatch},
	ProblemKeyExpired:          {"The key came after its record's time", http.StatusGone, ResultExpired, ResultExpired},
	ProblemKeyMissing:          {"The idempotency key is missing", http.StatusBadRequest, "", ResultInvalid},
	ProblemKeyInvalid:          {"The idempotency key is malformed", http.StatusBadRequest, "", ResultInvalid},
	ProblemScopeMissing:        {"The account of the request is not known", http.StatusUnauthorized, "", ResultInvalid},
	ProblemRequestAmbiguous:    {"The request can be read in more than one way", http.StatusBadRequest, "", ResultInvalid},
	ProblemRequestInvalid:      {"The request is malformed", http.StatusBadRequest, "", ResultInvalid},
	ProblemBodyTooLarge:        {"The body is too large", http.StatusRequestEntityTooLarge, "", ResultTooLarge},
	ProblemStoreUnavailable:    {"The record store cannot be relied on now", http.StatusServiceUnavailable, "", ResultStoreError},
	ProblemTooManyUnresolved:   {"Too many requests without an outcome", http.StatusTooManyRequests, "", ResultOverQuota},
	ProblemNotSeen:             {"No request with this key has been seen", http.StatusNotFound, "", ResultInvalid},
}

// Problem is an RFC 9457 answer. It never carries a key, a principal or a body.
type Problem struct {
	Code ProblemCode
	// Status is the HTTP status; zero stands for the usual one of the code.
	Status int
	Detail string
	// Operation and Record are empty where they are not known.
	Operation, Record string
	// SafeNewKey: it is proved that nothing happened under this key.
	SafeNewKey bool
	// LastStatus is the last status seen of an unknown outcome.
	LastStatus int
	// Outcome, Resource and CompletedAt describe a settled outcome.
	Outcome, Resource string
	CompletedAt       time.Time
	// RetryAfter is when it makes sense to ask again; zero says nothing.
	RetryAfter time.Duration
}

// Error is the code with its detail, so that a check can return a Problem.
func (p *Problem) Error() string { return string(p.Code) + ": " + p.Detail }

// StatusCode is the status that Write sends.
func (p *Problem) StatusCode() int {
	if p.Status != 0 {
		return p.Status
	}
	return kinds[p.Code].status
}

// problemBody is the JSON form.
type problemBody struct {
	Type        string `json:"type"`
	Title       string `json:"title"`
	Status      int    `json:"status"`
	Detail      string `json:"detail,omitempty"`
	Record      string `json:"record,omitempty"`
	Operation   string `json:"operation,omitempty"`
	SafeNewKey  bool   `json:"safe_new_key"`
	LastStatus  int    `json:"last_status,omitempty"`
	Outcome     string `json:"outcome,omitempty"`
	CompletedAt string `json:"completed_at,omitempty"`
	Resource    string `json:"resource,omitempty"`
}

// Write sends the problem. Fields that are in w's header already stay.
func (p *Problem) Write(w http.ResponseWriter) {
	b := problemBody{
		Type: ProblemBase + string(p.Code), Title: kinds[p.Code].title, Status: p.StatusCode(), Detail: p.Detail,
		Record: p.Record, Operation: p.Operation, SafeNewKey: p.SafeNewKey, LastStatus: p.LastStatus,
		Outcome: p.Outcome, Resource: p.Resource, CompletedAt: instant(p.CompletedAt),
	}
	h := w.Header()
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((p.RetryAfter+time.Second-1)/time.Second), 10))
	}
	writeJSON(w, p.StatusCode(), "application/problem+json", b)
}

// writeJSON sends v, which must be a struct of plain members.
func writeJSON(w http.ResponseWriter, status int, mediaType string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("httpguard: " + err.Error()) // only a bug in this package
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that went away asks again
}

// instant is t as RFC 3339 in whole seconds, rounded down; empty when not set.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// instantText remembers the text of the last instant it was asked for: records
// of one operation that are made in one second have the same lifetimes.
type instantText struct {
	last atomic.Pointer[struct {
		second int64
		text   string
	}]
}

func (i *instantText) text(t time.Time) string {
	second := t.Unix()
	if l := i.last.Load(); l != nil && l.second == second {
		return l.text
	}
	text := instant(t)
	i.last.Store(&struct {
		second int64
		text   string
	}{second, text})
	return text
}
