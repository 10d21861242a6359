//go:build !unix

package pebblestore

import "os"

func inode(os.FileInfo) uint64 { return 0 }
