package pebblestore

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// pebbleFormat is the format of Pebble's files. It is pinned: raising it cannot
// be undone, so it is done by command, after a backup (dangers.md E10).
const pebbleFormat = pebble.FormatValueSeparation

// pebbleOptions are the settings that performance.md found best for small rows,
// few of them in memory, on two cores.
func pebbleOptions(fs vfs.FS, log *logger, cache *pebble.Cache, events *pebble.EventListener, memTable uint64) *pebble.Options {
	// Most of what a large memtable costs is cache misses.
	setDefault(&memTable, 16<<20)
	o := &pebble.Options{
		FS:                          fs,
		Cache:                       cache,
		FormatMajorVersion:          pebbleFormat,
		Logger:                      log,
		EventListener:               events,
		MemTableSize:                memTable,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		LBaseMaxBytes:               64 << 20,
		// One compaction at a time leaves the other core to the callers.
		CompactionConcurrencyRange: func() (int, int) { return 1, 1 },
		MaxOpenFiles:               1000,
		BytesPerSync:               1 << 20,
	}
	// A sweep reads everything once, which says nothing about where lookups go.
	o.Experimental.ReadSamplingMultiplier = -1
	for i := range o.Levels {
		l := &o.Levels[i]
		l.FilterPolicy = bloom.FilterPolicy(10)
		l.BlockSize = 16 << 10
		l.IndexBlockSize = 32 << 10
		l.Compression = func() *sstable.CompressionProfile { return block.SnappyCompression }
		if i == len(o.Levels)-1 {
			// Most rows spend most of their life here, and a sweep reads them all. A
			// tombstone takes 61 bytes; zstd would take 58, snappy 66 (F-E4). A sweep
			// is 1.3x as fast as with zstd, and 1.2x as with blocks of half the size
			// (F-E7).
			l.BlockSize = 32 << 10
			l.Compression = func() *sstable.CompressionProfile { return block.MinLZCompression }
		}
		o.TargetFileSizes[i] = 8 << 20
	}
	return o
}
