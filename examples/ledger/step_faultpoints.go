//go:build faultpoints

package main

import (
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
)

var steps atomic.Int64

// step ends the process, as kill -9 does, at the step that LEDGER_DIE_AT numbers.
func step() {
	at, err := strconv.ParseInt(os.Getenv("LEDGER_DIE_AT"), 10, 64)
	if err == nil && steps.Add(1) == at {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
