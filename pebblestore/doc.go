// Package pebblestore keeps records on the local disk of one process: the
// default of Counterfoil, for a laptop and for one node.
//
// One goroutine, the writer, decides every write. It takes what the callers
// have queued, works each one out against the current state, and hands the
// batch to the committer, which syncs it and only then answers; the next batch
// gathers meanwhile. What a batch shows before it is durable is marked, and
// readers wait for the mark (reliability.md F1).
//
// A store is one directory:
//
//	FORMAT      what the rest is, and the id of the store
//	OWNER       who has it open: process, host, since when
//	LOCK        held while it is open
//	rows/       Pebble: one small row per record, open claims apart from others
//	responses/  segments: the responses, in files that are recycled whole
//	ballast     space given back when the disk runs full (dangers.md E04)
//
// Responses are kept out of Pebble because compaction would rewrite them, and
// no index of expiry is kept because a sweep reads millions of rows a second
// (performance.md).
package pebblestore
