package httpguard

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// PrincipalFunc names the account that owes or is owed, from an identity that
// was verified before the guard: never from a field that any caller can set.
// An empty principal is answered 401 scope-missing, unless the operation is
// anonymous. An error that is an [*Answer] is sent as it is; any other error
// is answered 503, and nothing is attempted.
type PrincipalFunc func(r *http.Request, op *policy.Operation) (counterfoil.Principal, error)

// Unmatched says what becomes of requests that no operation matches.
type Unmatched uint8

// The values of Unmatched. GET, HEAD, OPTIONS and TRACE always pass.
const (
	Pass Unmatched = iota
	Reject
)

// Answer is an HTTP answer to send in place of another. It is an error so that
// a [PrincipalFunc] can return it.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Error names the status only.
func (a *Answer) Error() string { return fmt.Sprintf("answered with status %d", a.Status) }

// Options of [New]. The zero value works.
type Options struct {
	// Secret keys the fingerprints: the index key's own, from
	// counterfoil.IndexKey.Secret. Nil hashes without a key.
	Secret []byte
	// Principal replaces the rule of the policy, which takes the principal from
	// the named header. The header must then come from a trusted peer only.
	// It is required where a policy says auth_request.
	Principal PrincipalFunc
	Unmatched Unmatched
	// Observe lets every request through unaltered, decides and counts. The
	// engine must be opened with Observe too.
	Observe bool
	// Authorize is asked before an answer leaves that reveals a standing
	// outcome (replayed, already processed, expired with outcome, lookup): nil
	// and nil lets it out, an Answer is sent instead, an error is answered 503.
	// Nil asks nobody: then whoever authorises must run before the guard, on
	// every request.
	Authorize func(r *http.Request) (*Answer, error)
	// Done is called once for every request to a guarded operation, and for
	// keyed requests that no operation matches, after its answer was decided.
	// It may be called from several goroutines at once and must be quick.
	Done func(Result)
	// Logger gets record ids, never keys, principals or bodies. Nil logs
	// nothing.
	Logger *slog.Logger
}

// ResultKind is the result label of idempotency_requests_total.
type ResultKind string

// The results: the values of Idempotency-Status, and what has none.
const (
	ResultCreated          ResultKind = "created"
	ResultNoEffect         ResultKind = "no-effect"
	ResultUnknown          ResultKind = "unknown"
	ResultReplayed         ResultKind = "replayed"
	ResultAlreadyProcessed ResultKind = "already-processed"
	ResultInProgress       ResultKind = "in-progress"
	ResultMismatch         ResultKind = "mismatch"
	ResultExpired          ResultKind = "expired"
	ResultUnguarded        ResultKind = "unguarded"

	ResultRedirected ResultKind = "redirected"
	ResultInvalid    ResultKind = "invalid"
	ResultTooLarge   ResultKind = "too_large"
	ResultOverQuota  ResultKind = "over_quota"
	ResultStoreError ResultKind = "store_error"
)

// ResultKinds lists every result, for metrics that start at zero.
func ResultKinds() []ResultKind {
	return []ResultKind{
		ResultCreated, ResultNoEffect, ResultUnknown, ResultReplayed, ResultAlreadyProcessed,
		ResultInProgress, ResultMismatch, ResultExpired, ResultUnguarded, ResultRedirected,
		ResultInvalid, ResultTooLarge, ResultOverQuota, ResultStoreError,
	}
}

// Result is what became of one request.
type Result struct {
	// Operation is empty for a keyed request that no operation matches.
	Operation string
	Kind      ResultKind
	// Status is the HTTP status of the answer; zero where the handler answered
	// an unguarded request itself, or no answer was given.
	Status int
	// Record is the record's id; zero where the request never got as far.
	Record counterfoil.ID
	// Late is set when the key came after its record's time, whether it was
	// refused or let through.
	Late counterfoil.Witness
	// Age is how long after the record's creation a repeat came; zero for a
	// first request. Horizon is the operation's retention, to set it against.
	Age, Horizon time.Duration
	// Observed: the request was let through whatever Kind says.
	Observed bool
}
