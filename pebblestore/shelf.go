package pebblestore

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/counterfoil/counterfoil"
)

// preallocation is the step in which a segment's space is reserved, so that a
// quiet store does not take whole segments.
const preallocation = 4 << 20

// responseCategory labels writes of responses in Pebble's disk statistics.
const responseCategory vfs.DiskWriteCategory = "counterfoil-responses"

// shelf is the segments in the directory responses/. Only the writer changes
// it; readers look segments up under mu.
type shelf struct {
	fs    vfs.FS
	dir   string
	root  vfs.File // dir, for syncing
	limit int64    // size of a segment
	keep  int      // spare files kept for reuse

	mu       sync.RWMutex // guards segments, and spares
	segments map[uint64]*segment
	spares   []string // names of files that hold nothing wanted

	// active has the segment that is filled, by width.
	active [len(widths)]*segment
	// dirty are the segments with responses of the batch under way, and those
	// whose value is to be written with it.
	dirty   []*segment
	changed []*segment
	// dirSync is set when the directory has a new name in it.
	dirSync bool
}

// load takes in the segments that the rows name and makes spares of the files
// that no row names: what a crash left of a segment never acknowledged. It
// returns the segments that have no file: their responses are lost, and their
// rows say "already processed".
func (h *shelf) load(known []*segment, l *ledger) (missing []*segment, err error) {
	names, err := h.fs.List(h.dir)
	if err != nil {
		return nil, err
	}
	present := make(map[string]bool, len(names))
	for _, n := range names {
		if number, ok := segmentNumber(n); ok {
			present[n] = true
			l.nextSegment = max(l.nextSegment, number+1)
		}
	}
	for _, g := range known {
		l.nextSegment = max(l.nextSegment, g.number+1)
		if !present[g.name()] {
			missing = append(missing, g)
			continue
		}
		delete(present, g.name())
		file, err := h.fs.OpenReadWrite(path.Join(h.dir, g.name()), responseCategory)
		if err != nil {
			return nil, err
		}
		g.file, g.prepared = file, g.size
		g.users.Store(1)
		h.segments[g.number] = g
		if a := h.active[g.width]; g.size < h.limit && (a == nil || a.number < g.number) {
			h.active[g.width] = g
		}
	}
	for n := range present {
		h.spares = append(h.spares, n)
	}
	slices.Sort(h.spares)
	return missing, h.trim()
}

// reserve finds the place of a response that is wanted until then, and takes a
// copy of it to be written by flush.
func (h *shelf) reserve(l *ledger, id *counterfoil.ID, response []byte, now, until time.Time) (ref, error) {
	if len(response) > math.MaxUint32/2 {
		return ref{}, fmt.Errorf("a response of %d bytes is too large to keep", len(response))
	}
	if until.Before(now) {
		until = now
	}
	g, err := h.place(l, int64(len(response)), now, until)
	if err != nil {
		return ref{}, err
	}
	if len(g.buf) == 0 {
		g.bufAt = g.size
		h.dirty = append(h.dirty, g)
	}
	at := ref{
		segment: g.number,
		offset:  uint32(g.size),
		length:  uint32(len(response)),
		crc:     checksum(g.number, id, response),
	}
	g.buf = append(g.buf, response...)
	g.size += int64(len(response))
	if until.After(g.until) {
		g.until = until
	}
	h.change(g)
	return at, nil
}

// place is the segment for n more bytes.
func (h *shelf) place(l *ledger, n int64, now, until time.Time) (*segment, error) {
	width := widthOf(until.Sub(now))
	bucket := until.UnixNano() / int64(widths[width])
	g := h.active[width]
	if g != nil && g.broken == nil && g.bucket >= bucket && (g.size == 0 || g.size+n <= h.limit) {
		return g, nil
	}
	number := l.nextSegment
	file, prepared, err := h.create(number)
	if err != nil {
		return nil, err
	}
	l.nextSegment++
	g = &segment{number: number, width: width, bucket: bucket, until: until, file: file, prepared: prepared}
	g.users.Store(1)
	h.mu.Lock()
	h.segments[number] = g
	h.mu.Unlock()
	h.active[width] = g
	return g, nil
}

// create makes the file of a segment, from a spare if there is one.
func (h *shelf) create(number uint64) (file vfs.File, prepared int64, err error) {
	name := path.Join(h.dir, segmentName(number))
	h.mu.Lock()
	spare := ""
	if n := len(h.spares); n > 0 {
		spare, h.spares = h.spares[n-1], h.spares[:n-1]
	}
	h.mu.Unlock()
	if spare != "" {
		if err := h.fs.Rename(path.Join(h.dir, spare), name); err != nil {
			return nil, 0, err
		}
	}
	h.dirSync = true
	if file, err = h.fs.OpenReadWrite(name, responseCategory); err != nil {
		return nil, 0, err
	}
	if info, err := file.Stat(); err == nil {
		prepared = info.Size()
	}
	return file, prepared, nil
}

// change notes that the value of g has to be written.
func (h *shelf) change(g *segment) {
	if !slices.Contains(h.changed, g) {
		h.changed = append(h.changed, g)
	}
}

// flush writes what was reserved, one write per segment, and returns the
// segments that have to be synced. The responses of a segment that cannot be
// written are lost: broken says why, and the segment takes no more.
func (h *shelf) flush() []*segment {
	dirty := h.dirty
	h.dirty = nil
	for _, g := range dirty {
		end := g.bufAt + int64(len(g.buf))
		if end > g.prepared {
			step := (end-g.prepared+preallocation-1)/preallocation*preallocation + g.prepared
			if step > h.limit {
				step = max(h.limit, end)
			}
			// Only a hint: without it the file grows as it is written.
			if g.file.Preallocate(g.prepared, step-g.prepared) == nil {
				g.prepared = step
			}
		}
		if len(g.buf) > 0 {
			_, g.broken = g.file.WriteAt(g.buf, g.bufAt)
		}
		g.buf = g.buf[:0]
		if h.active[g.width] != g {
			g.buf = nil // it is full, or its time is over
		}
	}
	return dirty
}

// raise keeps a response that is already there until then.
func (h *shelf) raise(at ref, until time.Time) {
	if g := h.segments[at.segment]; g != nil && until.After(g.until) {
		g.until = until
		h.change(g)
	}
}

// read returns the response at a place, or ErrNotFound when it is not there any
// longer, or not whole.
func (h *shelf) read(id *counterfoil.ID, at ref) ([]byte, error) {
	h.mu.RLock()
	g := h.segments[at.segment]
	ok := g != nil && g.acquire()
	h.mu.RUnlock()
	if !ok {
		return nil, counterfoil.ErrNotFound
	}
	defer g.release()
	b := make([]byte, at.length)
	if n, err := g.file.ReadAt(b, int64(at.offset)); n < len(b) {
		return nil, fmt.Errorf("%w: segment %d: %w", counterfoil.ErrNotFound, at.segment, err)
	}
	if checksum(at.segment, id, b) != at.crc {
		return nil, fmt.Errorf("%w: segment %d fails its checksum", counterfoil.ErrNotFound, at.segment)
	}
	return b, nil
}

// overdue lists the segments that nobody wants since before then, but for those
// that are being filled in this very batch. The writer alone may ask.
func (h *shelf) overdue(then time.Time) (out []*segment) {
	for _, g := range h.segments {
		if g.until.Before(then) && len(g.buf) == 0 {
			out = append(out, g)
		}
	}
	return out
}

// forget takes segments off the shelf: their rows are about to go.
func (h *shelf) forget(gs []*segment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range gs {
		delete(h.segments, g.number)
		if h.active[g.width] == g {
			h.active[g.width] = nil
		}
		h.changed = slices.DeleteFunc(h.changed, func(c *segment) bool { return c == g })
	}
}

// discard recycles the files of segments whose rows are durably gone.
func (h *shelf) discard(gs []*segment) error {
	var errs []error
	for _, g := range gs {
		name := path.Join(h.dir, g.name())
		g.release()
		if g.linked {
			errs = append(errs, h.fs.Remove(name))
			continue
		}
		h.mu.Lock()
		h.spares = append(h.spares, g.name())
		h.mu.Unlock()
	}
	return errors.Join(append(errs, h.trim())...)
}

// trim deletes the spare files that are too many.
func (h *shelf) trim() error {
	var errs []error
	for {
		h.mu.Lock()
		n := len(h.spares)
		if n <= h.keep {
			h.mu.Unlock()
			return errors.Join(errs...)
		}
		name := h.spares[n-1]
		h.spares = h.spares[:n-1]
		h.mu.Unlock()
		errs = append(errs, h.fs.Remove(path.Join(h.dir, name)))
	}
}

// bytes is what the segments take, and what of it is spare.
func (h *shelf) bytes() (used, spare int64) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, g := range h.segments {
		if info, err := g.file.Stat(); err == nil {
			used += info.Size()
		}
	}
	for _, n := range h.spares {
		if info, err := h.fs.Stat(path.Join(h.dir, n)); err == nil {
			spare += info.Size()
		}
	}
	return used, spare
}

// close closes every file. Nobody uses the shelf any longer.
func (h *shelf) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.segments {
		g.release()
	}
	clear(h.segments)
	if h.root != nil {
		h.root.Close()
	}
}

// segmentNumber reads what segmentName wrote.
func segmentNumber(name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(name, ".seg"), 10, 64)
	return n, err == nil && strings.HasSuffix(name, ".seg")
}
