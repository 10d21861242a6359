//go:build !faultpoints

package main

// step marks the places between two statements, where a test ends the process.
func step() {}
