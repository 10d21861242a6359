package pebblestore

import (
	"errors"
	"fmt"
	"os"
	"path"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/counterfoil/counterfoil"
)

const ballastFile = "ballast"

// space keeps the disk from running full, from which Pebble does not come back
// by itself (reliability.md F6).
type space struct {
	fs     vfs.FS
	dir    string
	limits Space
	log    *logger

	free    atomic.Int64
	low     atomic.Pointer[error] // why claims are refused
	full    atomic.Pointer[error] // why every write is
	sick    atomic.Pointer[error] // why claims are refused for the store's health
	ballast bool                  // the file is there; check alone looks
}

// refuses is why a write is not taken for want of space.
func (p *space) refuses(claim bool) error {
	if err := p.full.Load(); err != nil {
		return *err
	}
	if err := p.low.Load(); claim && err != nil {
		return *err
	}
	return nil
}

// check measures the disk and sets what is refused.
func (p *space) check() {
	if p.limits.Off {
		return
	}
	usage, err := p.fs.GetDiskUsage(p.dir)
	if err != nil {
		if !errors.Is(err, vfs.ErrUnsupported) {
			p.log.warn("free space cannot be measured", err)
		}
		return
	}
	free := int64(usage.AvailBytes)
	floor := max(p.limits.Floor, int64(float64(usage.TotalBytes)*p.limits.FloorPercent/100))
	switch {
	case p.ballast && free < p.limits.Reserve:
		// Give up the ballast, so that open claims can still be completed.
		if err := p.fs.Remove(path.Join(p.dir, ballastFile)); err != nil {
			p.log.warn("the ballast file cannot be removed", err)
		}
		p.ballast = false
		if usage, err = p.fs.GetDiskUsage(p.dir); err == nil {
			free = int64(usage.AvailBytes)
		}
	case !p.ballast && free > floor+p.limits.Reserve:
		p.ballast = p.lay()
	}
	p.free.Store(free)
	p.set(&p.low, free < floor, "claims are refused while less than %d MiB are free in %s (%d MiB are); free some space or move the store to a larger disk",
		floor>>20, p.dir, free>>20)
	p.set(&p.full, free < p.limits.Reserve, "writes are refused while less than %d MiB are free in %s (%d MiB are); free some space",
		p.limits.Reserve>>20, p.dir, free>>20)
}

func (p *space) set(to *atomic.Pointer[error], on bool, format string, args ...any) {
	if !on {
		to.Store(nil)
		return
	}
	err := fmt.Errorf("%w: "+format, append([]any{counterfoil.ErrUnavailable}, args...)...)
	to.Store(&err)
	p.log.warn("disk space is short", err)
}

// lay makes the ballast file; nothing is written to it.
func (p *space) lay() bool {
	f, err := p.fs.Create(path.Join(p.dir, ballastFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return false
	}
	err = errors.Join(f.Preallocate(0, p.limits.Reserve), f.Close())
	return err == nil
}

// found looks whether an earlier process left the ballast file.
func (p *space) found() {
	_, err := p.fs.Stat(path.Join(p.dir, ballastFile))
	p.ballast = !errors.Is(err, os.ErrNotExist) && err == nil
}

// mind is the goroutine that looks after the store every second: space, health,
// commits that hang, and the clock's persistence.
func (s *Store) mind() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.look()
		}
	}
}

// look is one round of mind.
func (s *Store) look() {
	s.space.check()
	if err := s.unhealthy(); err != nil {
		s.space.sick.Store(&err)
	} else {
		s.space.sick.Store(nil)
	}
	if s.oldest.check() {
		s.log.warn("a commit hangs", s.errStuck())
		return
	}
	// Time that somebody was told must not come again after a restart.
	s.mu.RLock()
	stale := s.clock.given().Sub(s.ledger.seen) >= time.Second
	s.mu.RUnlock()
	if stale && s.broken() == nil {
		o := ops.Get().(*op)
		o.kind, o.task = opTask, (*writer).touchClock
		s.queue.put(o) // nobody waits for it
	}
}

// touchClock writes the ledger, and with it the time.
func (w *writer) touchClock() error {
	return w.rows.Set([]byte{kindLedger}, nil, nil) // apply puts in the value
}
