package pebblestore

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceNow counts from now on the clock that nobody can set and that goes on
// while the machine sleeps: after a suspension the wall clock is right, and must
// not be taken for wrong.
func sinceNow() func() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		begin := time.Now()
		return func() time.Duration { return time.Since(begin) }
	}
	begin := ts.Nano()
	return func() time.Duration {
		var ts unix.Timespec
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it worked before, and has no way to fail
		return time.Duration(ts.Nano() - begin)
	}
}
