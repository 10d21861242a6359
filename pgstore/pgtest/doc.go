// Package pgtest starts PostgreSQL and PgBouncer for tests, and breaks them:
// kill -9, freezing, failover to a synchronous standby, connections that are
// cut, go silent, or lose the answer to a commit.
//
//	func TestStore(t *testing.T) {
//		url := pgtest.Shared(t).Database(t) // for itself, and empty
//		...
//	}
//
// The servers are the installed binaries, not containers: a standby that is
// stopped with SIGSTOP and a postmaster that dies are the faults that the store
// has to survive, and both need the processes themselves. They listen on a free
// port of 127.0.0.1, live in a temporary directory, run as the user postgres
// where the test is root (PostgreSQL refuses root), and trust everybody who
// connects. What is not installed fails the test; nothing is skipped.
//
// # Nothing outlives the test process
//
// A test that is killed, or that times out, runs no cleanup. Two things replace
// it. Linux sends SIGQUIT to every server when the test process dies, at which
// a server stops at once and gives its shared memory back. And one shell for
// each test process waits for that same moment at the end of a pipe; it wakes
// what is frozen, kills what is left after some seconds, and removes all
// directories. That is also how the server of [Shared] ends, so that no package
// needs a TestMain for it.
//
// The package works on Linux, where the processes of a server are found under
// /proc.
package pgtest
