package pebblestore

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fileSystem says what the directory lies on.
func fileSystem(dir string) (kindOfFS, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return kindOfFS{}, err
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC:
		return kindOfFS{name: "NFS", network: true}, nil
	case unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return kindOfFS{name: "SMB", network: true}, nil
	case unix.V9FS_MAGIC:
		return kindOfFS{name: "9p", network: true}, nil
	case unix.TMPFS_MAGIC:
		return kindOfFS{name: "tmpfs", volatile: true}, nil
	case unix.OVERLAYFS_SUPER_MAGIC:
		return kindOfFS{name: "overlay"}, nil
	case unix.EXT4_SUPER_MAGIC:
		return kindOfFS{name: "ext4"}, nil
	case unix.XFS_SUPER_MAGIC:
		return kindOfFS{name: "xfs"}, nil
	}
	return kindOfFS{name: fmt.Sprintf("file system 0x%x", uint32(st.Type))}, nil
}
