// Package httpguard is the front door of an HTTP service: plain net/http
// middleware that lets a request with an idempotency key have its effect at
// most once, and answers its repeats from the record.
//
//	guard, err := httpguard.New(engine, httpguard.Options{Secret: indexKey.Secret()})
//	…
//	http.ListenAndServe(addr, authenticate(guard.Wrap(mux)))
//
// A request that an operation of the policy matches is claimed before the
// handler sees it, and its answer is held until the record is durable. A repeat
// is answered from the record: the same status, fields and body while the
// response is kept, then the outcome alone. Every refusal is an RFC 9457
// [Problem]. contract.md §4 has the whole table.
//
// # Where it stands
//
// A replay is an answer like any other and must be authorised on the day it is
// given. Under middleware that means: what authenticates and authorises callers
// runs before the guard, on every request. Where only the handler can tell,
// set [Options.Authorize]. What parses bodies or answers errors runs beneath
// the guard, so that it sees the body and they reach the record.
//
// # What the handler sees
//
// The whole body, read; a context that ends at the operation's deadline and not
// when the caller goes away; Counterfoil-Identity in the request. It runs in
// the server's goroutine. Its answer is buffered up to max_response; larger
// ones, and those it flushes or hijacks, pass as they come and are recorded
// without a body. If an outcome cannot be recorded, the answer is withheld, or
// the connection is cut where it has begun.
//
// # What the handler can say
//
// A status says little about what happened. 2xx and 3xx count as succeeded,
// the policy's ambiguous statuses as unknown, its no_effect statuses as nothing
// done, and all others as declined. A handler that knows better says so: through
// [FromContext] ([Attempt.NoEffect], [Attempt.Unknown], and for proxies
// [Attempt.Unreachable] and [Attempt.Broken]), or by the fields
// Counterfoil-Outcome (none, final, unknown) and Counterfoil-Resource, which the
// caller never sees.
//
// A handler that passes its deadline is answered for with 504 and its record is
// unknown. If it returns later, what it said by itself, or a status below 400
// that it wrote, still settles the record.
package httpguard
