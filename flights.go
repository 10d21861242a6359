package counterfoil

import "sync"

// flights are the claims held in this process, so that duplicates which wait
// here wake the moment one ends. They are split by ID to keep callers apart.
type flights struct {
	shards [64]struct {
		mu     sync.Mutex // guards claims, and the done of each flight in it
		claims map[ID]*flight
	}
}

// flight is one claim under way. done is made when somebody waits for it.
type flight struct{ done chan struct{} }

// start makes f the flight of id.
func (fs *flights) start(id ID, f *flight) {
	s := &fs.shards[id[0]%64]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims == nil {
		s.claims = make(map[ID]*flight)
	}
	s.claims[id] = f
}

// end wakes whoever waits for f, and forgets it unless another has taken its
// place.
func (fs *flights) end(id ID, f *flight) {
	s := &fs.shards[id[0]%64]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[id] == f {
		delete(s.claims, id)
	}
	if f.done != nil {
		close(f.done)
	}
}

// watch returns a channel that is closed when the flight of id ends; false when
// this process has none.
func (fs *flights) watch(id ID) (<-chan struct{}, bool) {
	s := &fs.shards[id[0]%64]
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.claims[id]
	if f == nil {
		return nil, false
	}
	if f.done == nil {
		f.done = make(chan struct{})
	}
	return f.done, true
}
