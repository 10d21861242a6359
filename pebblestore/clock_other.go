//go:build !linux

package pebblestore

import "time"

// sinceNow counts from now on the monotonic clock.
func sinceNow() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
