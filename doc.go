// Package counterfoil keeps durable idempotency records whose lifetime follows
// the risk of repeating an effect.
//
// A counterfoil is the stub that stays in the book when the ticket is torn
// off: small, dated, and proof of what was issued. This package keeps the stub
// of every request that had an effect, for as long as repeating the effect
// would do harm.
//
//	           claim                      complete
//	absent ───────────▶ in_progress ──────────────────▶ completed ──replay over──▶ tombstone ──▶ announced ──▶ deleted
//	             ▲       │        │                          ▲                    (past its time)
//	same request │       │ fail   │ lapse, panic,            │ owner's late completion,
//	             │       ▼        ▼ ambiguous answer         │ a person's word: applied
//	             └───── failed ◀─ unknown ───────────────────┘
//	              proof of absence
//
// The promises: at most one execution is authorised per scope, key and
// attempt; the claim is durable before the effect begins; no answer leaves
// before the record it comes from is durable; a lapsed claim becomes unknown,
// never a silent second run; a key that outlived its record is refused, not
// run, wherever anything witnesses its age.
//
// [Open] an [Engine] over a [Store] with a policy, then either [Engine.Begin]
// and act on the verdict, or let [Engine.Do] and [Once] do it. The decision
// table is one pure function, [Decide]. HTTP services use package httpguard,
// which does all of this as plain middleware.
//
// This package and the rooms inside its module import the standard library
// only. Start reading at record.go (the nouns), verdict.go (the decisions) and
// engine.go (the way of a request).
package counterfoil
