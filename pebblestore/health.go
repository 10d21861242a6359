package pebblestore

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
)

// health is whether the store can be relied upon.
type health struct {
	// poisoned is set for good when what is on disk is in doubt.
	poisoned atomic.Pointer[error]
	once     sync.Once
	// corrupt counts what failed its checksum on disk.
	corrupt atomic.Int64

	mu     sync.Mutex  // guards errors
	errors []time.Time // of Pebble's background work, the latest last
}

// More errors of Pebble's background work than this within this time mean that
// it goes round in circles on a full or broken disk (reliability.md F6).
const (
	backgroundErrors = 20
	backgroundWindow = 10 * time.Second
)

// broken is why no call may succeed any longer; nil while all is well.
func (s *Store) broken() error {
	if p := s.health.poisoned.Load(); p != nil {
		return *p
	}
	return nil
}

// poison makes every call fail, first, and then calls Options.Fatal, which
// normally ends the process. Nothing is retried (dangers.md E03).
func (s *Store) poison(cause error) {
	err := fmt.Errorf("%w: the disk failed and what it holds is in doubt; restart on a disk that works: %w",
		counterfoil.ErrUnavailable, cause)
	s.health.poisoned.CompareAndSwap(nil, &err)
	s.health.once.Do(func() {
		s.log.out.Error("the store is broken", "error", cause)
		s.o.Fatal(cause)
	})
}

// backgroundError counts an error of Pebble's background work.
func (s *Store) backgroundError(err error) {
	h := &s.health
	h.mu.Lock()
	h.errors = append(h.errors, time.Now())
	if n := len(h.errors); n > 4*backgroundErrors {
		h.errors = append(h.errors[:0], h.errors[n-2*backgroundErrors:]...)
	}
	h.mu.Unlock()
	s.log.warn("background error", err)
}

// unhealthy is why no claim may be made at the moment.
func (s *Store) unhealthy() error {
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, t := range h.errors {
		if time.Since(t) < backgroundWindow {
			n++
		}
	}
	if n > backgroundErrors {
		return fmt.Errorf("%w: %d background errors in %s; look at the disk's health and free space",
			counterfoil.ErrUnavailable, n, backgroundWindow)
	}
	if len(h.errors) > 0 && n == 0 {
		h.errors = h.errors[:0]
	}
	return nil
}

// refuses is why a write is not taken; claims, which begin something new, are
// refused earlier than others.
func (s *Store) refuses(claim bool) error {
	if err := s.space.refuses(claim); err != nil || !claim {
		return err
	}
	if p := s.space.sick.Load(); p != nil {
		return *p
	}
	return nil
}

// logger passes messages on at a bounded rate: a full disk makes Pebble write a
// thousand a second (reliability.md F6). It is Pebble's logger as well.
type logger struct {
	out *slog.Logger
	// fatal is called by Pebble when it cannot go on. It must not return.
	fatal func(error)

	mu      sync.Mutex // guards what follows
	second  int64
	count   int
	skipped int
}

// logRate is how many messages pass in one second.
const logRate = 5

func (l *logger) allow() (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now().Unix(); now != l.second {
		l.second, l.count = now, 0
	}
	if l.count++; l.count > logRate {
		l.skipped++
		return 0, false
	}
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}

func (l *logger) warn(msg string, err error) {
	if skipped, ok := l.allow(); ok {
		l.out.Warn(msg, "error", err, "skipped", skipped)
	}
}

// Infof implements pebble.Logger; Pebble's chatter is of no use to operators.
func (l *logger) Infof(string, ...any) {}

// Errorf implements pebble.Logger.
func (l *logger) Errorf(format string, args ...any) {
	if skipped, ok := l.allow(); ok {
		l.out.Error("pebble", "error", fmt.Sprintf(format, args...), "skipped", skipped)
	}
}

// Fatalf implements pebble.Logger. It does not return: Pebble goes on as if
// nothing had happened if it does.
func (l *logger) Fatalf(format string, args ...any) {
	l.fatal(errors.New("pebble: " + fmt.Sprintf(format, args...)))
	runtime.Goexit()
}
