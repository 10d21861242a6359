package httpguard_test

import (
	"bytes"
	"testing"

	"github.com/counterfoil/counterfoil/httpguard"
)

// golden is a stored response of format 1: it must be readable for ever.
var golden = []byte("\x01\xc9\x01\x02\x04Etag\x01\x04\"v1\"\x04Link\x02\x01a\x01b\x01\x01\x05X-Sum\x01\x019\x02{}")

func TestStoredResponseFormat(t *testing.T) {
	s, err := httpguard.DecodeResponse(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b := s.Encode(); !bytes.Equal(b, golden) {
		t.Errorf("written as %q, want %q", b, golden)
	}
	for i := range golden {
		if _, err := httpguard.DecodeResponse(golden[:i]); err == nil {
			t.Errorf("cut at %d: accepted", i)
		}
	}
	for name, b := range map[string][]byte{
		"newer":            append([]byte{2}, golden[1:]...),
		"bytes at the end": append(bytes.Clone(golden), 0),
		"padded number":    append([]byte{1, 0xc9, 0x81, 0x00}, golden[3:]...),
		"huge count":       {1, 0xc9, 1, 0xff, 0xff, 0xff, 0xff, 0x0f},
	} {
		if _, err := httpguard.DecodeResponse(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzStoredResponse(f *testing.F) {
	f.Add(golden)
	f.Add([]byte{1, 0xc8, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := httpguard.DecodeResponse(b)
		if err != nil {
			return
		}
		if again := s.Encode(); !bytes.Equal(again, b) {
			t.Fatalf("%q is written as %q", b, again)
		}
	})
}
