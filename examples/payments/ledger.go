package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// entry is one effect: money that moved. An entry is never changed or removed.
type entry struct {
	Effect   string    `json:"effect"` // charge or capture
	Payment  string    `json:"payment"`
	Account  string    `json:"account"`
	Amount   int64     `json:"amount,omitempty"` // in the currency's smallest unit
	Currency string    `json:"currency,omitempty"`
	Note     string    `json:"reference,omitempty"`
	Identity string    `json:"identity,omitempty"` // of the guard's record; finds the effect again
	At       time.Time `json:"at"`
}

// ledger is a file of entries, one JSON object a line. It is safe for
// concurrent use. It deduplicates nothing: what is posted twice is charged
// twice, which is what the guard in front is for.
type ledger struct {
	mu      sync.Mutex // guards file and entries
	file    *os.File
	entries []entry
}

// openLedger reads the ledger, and cuts off a last line that a crash left half
// written: it was never acknowledged.
func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l := &ledger{file: f}
	whole, err := l.read(bufio.NewReader(f))
	if err == nil {
		err = f.Truncate(whole)
	}
	if err == nil {
		_, err = f.Seek(whole, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("ledger %s: %w", path, err)
	}
	return l, nil
}

// read loads every whole line and returns how many bytes they take.
func (l *ledger) read(r *bufio.Reader) (whole int64, err error) {
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return 0, err
		}
		var e entry
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return 0, fmt.Errorf("line %d: %w", len(l.entries)+1, err)
		}
		l.entries = append(l.entries, e)
		whole += int64(len(line))
	}
}

// post makes the effect: the line is on disk before post returns.
func (l *ledger) post(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		return err
	}
	l.entries = append(l.entries, e)
	return nil
}

// find returns the entries that match, oldest first.
func (l *ledger) find(match func(entry) bool) []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := []entry{}
	for _, e := range l.entries {
		if match(e) {
			found = append(found, e)
		}
	}
	return found
}

func (l *ledger) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
