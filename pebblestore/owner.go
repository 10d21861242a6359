package pebblestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	ownerFile = "OWNER"
	lockFile  = "LOCK"
	// placeFile outlives the process, unlike OWNER.
	placeFile = "PLACE"
)

// ErrCopied is returned by Open for a directory that was copied from elsewhere:
// were both used, each would forget what the other learnt (dangers.md E07).
var ErrCopied = errors.New("the directory was copied from elsewhere")

// ErrInUse is returned by Open when another process has the directory open.
var ErrInUse = errors.New("the directory is in use")

// owner is who has the directory open.
type owner struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// whereabouts is where the directory was made, or last adopted. A copy has another
// inode, a copy to another machine another machine id as well.
type whereabouts struct {
	Machine string `json:"machine,omitempty"`
	Inode   uint64 `json:"inode,omitempty"`
}

// claim takes the directory for this process and returns what gives it up.
func claim(fsys vfs.FS, dir string) (io.Closer, error) {
	lock, err := fsys.Lock(path.Join(dir, lockFile))
	if err != nil {
		var o owner
		if readJSON(fsys, path.Join(dir, ownerFile), &o) == nil && o.PID != 0 {
			return nil, fmt.Errorf("%w: process %d on %s has %s open since %s; stop it, or use another directory",
				ErrInUse, o.PID, o.Host, dir, o.Since.Format(time.RFC3339))
		}
		return nil, fmt.Errorf("%w: %s: %w", ErrInUse, dir, err)
	}
	host, _ := os.Hostname() // for people only
	o := owner{PID: os.Getpid(), Host: host, Since: time.Now().UTC().Truncate(time.Second)}
	if err := writeJSON(fsys, dir, ownerFile, o); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// checkPlace compares where the directory is with where it was left. Adopting a
// copy is left to the caller: copied says that it has to be.
func checkPlace(fsys vfs.FS, dir string) (copied bool, err error) {
	was, here := whereabouts{}, locate(fsys, dir)
	err = readJSON(fsys, path.Join(dir, placeFile), &was)
	if errors.Is(err, fs.ErrNotExist) {
		return false, writeJSON(fsys, dir, placeFile, here)
	}
	if err != nil {
		return false, err
	}
	// What is not known, as the machine in many a container, is not compared.
	return was.Machine != "" && here.Machine != "" && was.Machine != here.Machine ||
		was.Inode != 0 && here.Inode != 0 && was.Inode != here.Inode, nil
}

// locate finds out where the directory is; nothing is known of one that is not
// on the real file system.
func locate(fsys vfs.FS, dir string) (w whereabouts) {
	if vfs.Root(fsys) != vfs.Default {
		return w
	}
	if b, err := os.ReadFile("/etc/machine-id"); err == nil {
		w.Machine = strings.TrimSpace(string(b))
	}
	if info, err := os.Stat(dir); err == nil {
		w.Inode = inode(info)
	}
	return w
}

// readJSON reads a small file.
func readJSON(fsys vfs.FS, name string, into any) error {
	b, err := readFile(fsys, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// writeJSON replaces a small file, so that a crash leaves the old or the new.
func writeJSON(fsys vfs.FS, dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(fsys, dir, name, append(b, '\n'))
}

func writeFile(fsys vfs.FS, dir, name string, b []byte) error {
	temp := path.Join(dir, name+".new")
	f, err := fsys.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(temp, path.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(fsys, dir)
}

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// exists reports whether there is a file.
func exists(fsys vfs.FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
