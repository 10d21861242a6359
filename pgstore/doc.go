// Package pgstore keeps records in PostgreSQL 15 or newer, for any number of
// nodes, beside the data that the effects themselves change.
//
// # How a step is done
//
// Create, Update, Get and Response of all callers of a node queue up and are
// done together, in one call of the function counterfoil_apply, one round trip
// and one commit (queue.go, worker.go). A caller that finds no queue has a
// batch of its own. The function never waits for a lock: whoever inserts an ID
// holds its advisory lock until the transaction ends, rows are locked with SKIP
// LOCKED, and what another transaction holds is [counterfoil.ErrBusy] after a
// few milliseconds. So one held key stalls nobody else.
//
// All instants are the server's, read after every lock was taken. Reads are
// fenced: where synchronous standbys are configured, an answer leaves only after
// a commit that they have confirmed (design.md §5).
//
// # What is where
//
// The tables are made by package pgstore/migrate. Records are one row each;
// whole responses are in a table with one partition a day, by the day on which
// they expire, which is dropped when it is over. Expiry is found by an index on
// due_at.
//
// # Connections
//
// The store has a pool of its own and keeps no state in a session: no prepared
// statements, no session settings, no session locks. PgBouncer in transaction
// mode is fine. It never cancels a statement, since cancelling a commit that
// waits for a standby would publish it unconfirmed (dangers.md G02); a dead
// connection is ended by the kernel (TCP_USER_TIMEOUT).
//
// # In the caller's transaction
//
// [Store.Do] runs an effect in the same transaction as claim and completion.
// [Store.InTx] and [Store.InSQLTx] are the steps of it, for transactions that
// the caller makes.
package pgstore
