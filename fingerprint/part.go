package fingerprint

import (
	"bytes"
	"encoding/binary"
	"hash"
)

// Tag says what a part of the canonical form is. The numbers are hashed, so
// under one version a number never changes its meaning and is never reused.
type Tag uint8

// The tags of version 1. A tag whose name ends in Raw holds bytes as sent,
// because the form without them would lose a difference.
const (
	TagRules  Tag = 1 // the name of the rules; always first
	TagMethod Tag = 2

	TagPath    Tag = 3
	TagPathRaw Tag = 4

	TagQueryName  Tag = 5
	TagQueryValue Tag = 6 // follows its name; missing for a name without "="
	TagQueryRaw   Tag = 7

	TagHeaderName  Tag = 8
	TagHeaderValue Tag = 9 // follows its name, one for each field line

	TagMediaType  Tag = 10
	TagParamName  Tag = 11
	TagParamValue Tag = 12
	TagMediaRaw   Tag = 13

	TagEncoding    Tag = 14 // a content coding that is left undecoded
	TagEncodingRaw Tag = 15 // the body as encoded

	TagEmpty Tag = 16 // there is no body, or it has no bytes
	TagRaw   Tag = 17 // a body of a type without a form of its own

	TagJSON       Tag = 18
	TagJSONRaw    Tag = 19
	TagFieldPath  Tag = 20 // the normalized path (RFC 9535 §2.7) of a chosen member
	TagFieldValue Tag = 21

	TagForm      Tag = 22
	TagFormName  Tag = 23
	TagFormValue Tag = 24
	TagFormRaw   Tag = 25

	TagPart              Tag = 26 // the beginning of a part of a multipart body
	TagPartHeaderName    Tag = 27
	TagPartHeaderValue   Tag = 28
	TagPartDisposition   Tag = 29 // parameters follow
	TagPartBody          Tag = 30
	TagMultipartEnd      Tag = 31
	TagMultipartBoundary Tag = 32 // counts only where the body could not be parsed
	TagMultipartRaw      Tag = 33
)

var tagNames = [...]string{
	TagRules: "rules", TagMethod: "method",
	TagPath: "path", TagPathRaw: "path-raw",
	TagQueryName: "query-name", TagQueryValue: "query-value", TagQueryRaw: "query-raw",
	TagHeaderName: "header-name", TagHeaderValue: "header-value",
	TagMediaType: "media-type", TagParamName: "param-name", TagParamValue: "param-value", TagMediaRaw: "media-raw",
	TagEncoding: "encoding", TagEncodingRaw: "encoding-raw",
	TagEmpty: "empty", TagRaw: "raw",
	TagJSON: "json", TagJSONRaw: "json-raw", TagFieldPath: "field-path", TagFieldValue: "field-value",
	TagForm: "form", TagFormName: "form-name", TagFormValue: "form-value", TagFormRaw: "form-raw",
	TagPart: "part", TagPartHeaderName: "part-header-name", TagPartHeaderValue: "part-header-value",
	TagPartDisposition: "part-disposition", TagPartBody: "part-body", TagMultipartEnd: "multipart-end",
	TagMultipartBoundary: "multipart-boundary", TagMultipartRaw: "multipart-raw",
}

// String is the tag's name as the package documentation spells it.
func (t Tag) String() string {
	if int(t) < len(tagNames) && tagNames[t] != "" {
		return tagNames[t]
	}
	return "unknown"
}

// Part is one tagged, length-prefixed piece of a canonical form.
type Part struct {
	Tag  Tag
	Text []byte
}

// form is the workspace of one sum. It is used by one goroutine at a time and
// goes back to its rule's pool afterwards.
type form struct {
	hash  hash.Hash
	sum   [32]byte
	head  []byte  // written parts that are not hashed yet
	parts *[]Part // where Explain collects; nil for Sum

	text    []byte // decoded pairs, or a path
	pairs   []pair
	canon   []byte // JSON after the canonicaliser
	numbers []byte // canon with its numbers in exact form
	plain   bytes.Buffer
}

// keep is the largest scratch buffer, in bytes, that returns to the pool. One
// large request must not pin its size for ever.
const keep = 256 << 10

func (f *form) reset() {
	f.hash.Reset()
	f.parts = nil
	for _, b := range []*[]byte{&f.head, &f.text, &f.canon, &f.numbers} {
		if cap(*b) > keep {
			*b = nil
		}
		*b = (*b)[:0]
	}
	if cap(f.pairs) > keep/32 {
		f.pairs = nil
	}
	f.pairs = f.pairs[:0]
	if f.plain.Cap() > keep {
		f.plain = bytes.Buffer{}
	}
	f.plain.Reset()
}

// part writes tag, length and text. Every part says its own length, so no two
// sequences of parts give the same bytes (dangers.md row B09).
func (f *form) part(t Tag, text []byte) {
	f.prefix(t, len(text))
	if len(text) < 512 {
		f.head = append(f.head, text...)
	} else {
		f.flush()
		f.hash.Write(text)
	}
	if f.parts != nil {
		*f.parts = append(*f.parts, Part{Tag: t, Text: bytes.Clone(text)})
	}
}

func (f *form) partString(t Tag, text string) {
	f.prefix(t, len(text))
	f.head = append(f.head, text...)
	if f.parts != nil {
		*f.parts = append(*f.parts, Part{Tag: t, Text: []byte(text)})
	}
}

func (f *form) prefix(t Tag, length int) {
	if len(f.head) > 4096 {
		f.flush()
	}
	f.head = append(f.head, byte(t))
	f.head = binary.AppendUvarint(f.head, uint64(length))
}

func (f *form) flush() {
	f.hash.Write(f.head)
	f.head = f.head[:0]
}

// finish returns the digest of all parts, cut to 16 bytes.
func (f *form) finish() [16]byte {
	f.flush()
	f.hash.Sum(f.sum[:0])
	return [16]byte(f.sum[:16])
}
