// Package arch keeps the house's rules as tests: which way the arrows between
// the rooms run (docs/architecture.md), and what is in no file of ours. It has
// no code. The tests parse the files themselves, since the test cache does not
// see what a child go command reads.
package arch
