package pgtest_test

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/counterfoil/counterfoil/pgstore/pgtest"
)

// TestThreadEnds: Linux sends the signal of the parent's death when the thread
// ends that has forked. A server must not hang on the thread of whoever starts it.
func TestThreadEnds(t *testing.T) {
	t.Parallel()
	var s *pgtest.Server
	done := make(chan struct{})
	onThread(func() {
		defer close(done)
		s = pgtest.Start(t, pgtest.Options{})
	})
	<-done
	if s == nil {
		t.FailNow()
	}
	pid := s.Pid()
	pgtest.Exec(t, s.URL("postgres"), "SELECT pg_sleep(0.5)")
	if gone, err := pgtest.Gone(pid); err != nil || gone {
		t.Errorf("the server has ended with the thread of who started it (%v)", err)
	}
}

// onThread calls f on a thread that ends afterwards, as it does with a goroutine
// that does not unlock it. The first thread never ends, and is kept meanwhile.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() != syscall.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread()
		other := make(chan struct{})
		onThread(func() {
			defer close(other)
			f()
		})
		<-other
	}()
}
