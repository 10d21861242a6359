package pebblestore

import (
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Modes that are enforced (dangers.md E14): fingerprints and responses are not
// for other users of the machine.
const (
	dirMode  = 0o700
	fileMode = 0o600
)

// private is the real file system with files that only their owner can read,
// whatever the umask.
type private struct{ vfs.FS }

func (p private) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.Create(name, category)
	return f, chmod(f, name, err)
}

func (p private) OpenReadWrite(name string, category vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := p.FS.OpenReadWrite(name, category, o...)
	return f, chmod(f, name, err)
}

func (p private) Lock(name string) (io.Closer, error) {
	l, err := p.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(name, fileMode); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (p private) MkdirAll(dir string, _ os.FileMode) error {
	return p.FS.MkdirAll(dir, dirMode)
}

func (p private) Unwrap() vfs.FS { return p.FS }

func chmod(f vfs.File, name string, err error) error {
	if err != nil {
		return err
	}
	if err := os.Chmod(name, fileMode); err != nil {
		f.Close()
		return err
	}
	return nil
}

// kindOfFS is what is known of the file system a directory lies on.
type kindOfFS struct {
	name string
	// network file systems have locks and syncs that cannot be relied upon;
	// volatile ones lose everything with the power.
	network, volatile bool
}
