package counterfoil

import "errors"

// Sentinel errors. Compare with errors.Is; each has a code that never changes
// ([Code]).
var (
	// ErrKeyInvalid is returned when a key breaks a rule of contract.md §4.
	ErrKeyInvalid = errors.New("key invalid")
	// ErrScopeMissing is returned by Begin when a request has no principal.
	ErrScopeMissing = errors.New("no principal")
	// ErrOperationUnknown is returned by Begin for an operation that the policy
	// does not have.
	ErrOperationUnknown = errors.New("operation not in the policy")
	// ErrUnavailable is returned when the store could not be asked or was not
	// sure: the effect must not be attempted.
	ErrUnavailable = errors.New("store unavailable")
	// ErrUntrusted is returned when the store lost writes and nobody has
	// trusted it again: what it does not hold proves nothing.
	ErrUntrusted = errors.New("store not trusted")
	// ErrOverQuota is returned when a principal has too many open records.
	ErrOverQuota = errors.New("too many unresolved records")
	// ErrUnconfirmed is returned by a Claim when the effect ran and the
	// store did not confirm the outcome: the answer must be withheld.
	ErrUnconfirmed = errors.New("outcome not confirmed by the store")
	// ErrFenced is returned when another attempt has opened: the caller no
	// longer owns the record and nothing was changed.
	ErrFenced = errors.New("claim lost to a later attempt")
	// ErrConflict is returned when a record or value changed since it was read.
	ErrConflict = errors.New("changed meanwhile")
	// ErrBusy is returned by a store when a transaction that has not ended holds
	// the ID: nothing is known of the record yet, and nothing was written.
	ErrBusy = errors.New("held by an open transaction")
	// ErrNotFound is returned when there is no such record, response or value.
	ErrNotFound = errors.New("not found")
	// ErrUnreadable is returned for a record, policy version or value that this
	// version cannot read. It never means absent.
	ErrUnreadable = errors.New("cannot be read by this version")
	// ErrSettled is returned by a Claim that has already ended, and when an
	// operator tries to settle a record whose outcome is known.
	ErrSettled = errors.New("already settled")
	// ErrTooEarly is returned when absence is claimed before t_quiet.
	ErrTooEarly = errors.New("too early to prove that nothing happened")
	// ErrEvidenceFull is returned when a record can hold no more evidence.
	ErrEvidenceFull = errors.New("evidence is full")
	// ErrClockSkew is returned by Sweep when two clocks differ too much for
	// anything to be deleted.
	ErrClockSkew = errors.New("clocks differ too much")
	// ErrCharter is returned when configuration and store disagree in a way
	// that would silently forget keys.
	ErrCharter = errors.New("configuration does not agree with the store's charter")
	// ErrNoEffect is returned by an effect (wrapped or not) to state that nothing
	// happened: the same request may run again. Any other error leaves the
	// outcome unknown, since an error does not mean that nothing happened
	// (cases.md C34).
	ErrNoEffect = errors.New("no effect")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("closed")
)

var codes = []struct {
	err  error
	code string
}{
	{ErrKeyInvalid, "key-invalid"},
	{ErrScopeMissing, "scope-missing"},
	{ErrOperationUnknown, "operation-unknown"},
	{ErrUntrusted, "store-untrusted"},
	{ErrOverQuota, "too-many-unresolved"},
	{ErrUnconfirmed, "outcome-unconfirmed"},
	{ErrFenced, "fenced"},
	{ErrConflict, "conflict"},
	{ErrBusy, "record-busy"},
	{ErrNotFound, "not-found"},
	{ErrUnreadable, "unreadable"},
	{ErrSettled, "already-settled"},
	{ErrTooEarly, "too-early"},
	{ErrEvidenceFull, "evidence-full"},
	{ErrClockSkew, "clock-skew"},
	{ErrCharter, "charter"},
	{ErrNoEffect, "no-effect"},
	{ErrClosed, "closed"},
	{ErrUnavailable, "store-unavailable"},
}

// Code is the unchanging name of the sentinel that err wraps, or "internal".
func Code(err error) string {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return "internal"
}
