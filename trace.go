package counterfoil

import "time"

// Trace is a set of hooks that listeners (metrics, logs, tests) may set. Every
// hook may be nil; hooks are called synchronously and must be quick and safe
// for concurrent use. Build the value once; do not change it while in use.
type Trace struct {
	// Decided is called once for every Begin that reached a verdict.
	Decided func(Decided)
	// Refused is called for every Begin that ended in an error instead.
	Refused func(operation string, err error)
	// StoreCall is called after every store call on the path of a request.
	StoreCall func(StoreCall)
	// Ended is called when a claim ended and the store confirmed it; for a claim
	// in a caller's transaction, when the caller says that it committed.
	Ended func(Ended)
	// Unconfirmed is called when the effect ran and the store did not confirm
	// its outcome in time.
	Unconfirmed func(operation string, id ID, err error)
	// Contradicted is called when a second outcome was reported for a settled
	// record, or by an owner after a later attempt had opened: page someone.
	Contradicted func(operation string, id ID)
	// Reconciled is called for every record that a worker or a person moved on.
	Reconciled func(operation string, id ID, to State)
	// Swept is called after every batch of expiry, with the error that ended it.
	Swept func(SweepReport, error)
}

// Decided describes one verdict.
type Decided struct {
	Operation string
	ID        ID
	Ruling    Ruling
	// Observed: the verdict was not enforced (mode: observe).
	Observed bool
	// Age is how long after the record's creation this request came; zero for
	// a first request.
	Age time.Duration
	// Horizon is the operation's retention, to set Age against.
	Horizon time.Duration
}

// StoreCall describes one store call.
type StoreCall struct {
	// Call is "claim", "dispatch", "renew", "complete", "fail", "unknown",
	// "get" or "response".
	Call string
	Took time.Duration
	Err  error
}

// Ended describes the end of a claim.
type Ended struct {
	Operation string
	ID        ID
	State     State
	// Effect is the time between the claim and the report of its outcome.
	Effect time.Duration
}

func (t *Trace) decided(d Decided) {
	if t != nil && t.Decided != nil {
		t.Decided(d)
	}
}

func (t *Trace) refused(op string, err error) {
	if t != nil && t.Refused != nil {
		t.Refused(op, err)
	}
}

func (t *Trace) storeCall(call string, start time.Time, err error) {
	if t != nil && t.StoreCall != nil {
		t.StoreCall(StoreCall{call, time.Since(start), err})
	}
}

func (t *Trace) ended(e Ended) {
	if t != nil && t.Ended != nil {
		t.Ended(e)
	}
}

func (t *Trace) unconfirmed(op string, id ID, err error) {
	if t != nil && t.Unconfirmed != nil {
		t.Unconfirmed(op, id, err)
	}
}

func (t *Trace) contradicted(op string, id ID) {
	if t != nil && t.Contradicted != nil {
		t.Contradicted(op, id)
	}
}

func (t *Trace) reconciled(op string, id ID, to State) {
	if t != nil && t.Reconciled != nil {
		t.Reconciled(op, id, to)
	}
}

// SweptBatch calls Swept if it is set; the sweep worker reports through it.
func (t *Trace) SweptBatch(r SweepReport, err error) {
	if t != nil && t.Swept != nil {
		t.Swept(r, err)
	}
}
