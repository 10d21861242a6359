// Package memstore keeps records in memory. It is the reference store: the
// contract of [counterfoil.Store] in its plainest form, the oracle of the model
// in package storetest, and the baseline of the benchmarks.
//
// Everything is lost when the process ends, so its durability class is C, and
// it protects one process only (cases.md C80). Use it in tests, in examples
// and on a laptop; never where money moves.
//
// Where the contract leaves a choice, this store takes it as follows:
//
//   - A draft that is both too old and over quota is answered Forgotten: to be
//     told "later" would be wrong.
//   - Response on another rev is ErrConflict before it is ErrNotFound.
//   - A record in progress without a lease is refused, whoever writes it
//     (cases.md C72).
//   - SetMeta of MetaForgotten keeps the later instant of each operation: F
//     only grows, whatever is written. A value that cannot be read is refused.
//   - A page or batch without a limit has 1,000 records, a sweep 10,000.
//   - A settled or failed record without a horizon never goes.
//   - A sweep takes one record as far as it may go: a completed record whose
//     replay and horizon both passed is announced in the same batch, and
//     deleted in it if Grace is 0. The grace runs by the store's clock alone.
//   - A hold keeps an unknown record from being closed, since closing drops the
//     reference that whoever holds it may need. It does not keep a response.
package memstore
