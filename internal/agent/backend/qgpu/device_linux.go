package qgpu

import (
	"cmp"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/specs-go"
)

// deviceAt a path, which must be a device and not a link to one.
func deviceAt(root, path string) (*specs.DeviceNode, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, filepath.Join(cmp.Or(root, "/"), path), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var status unix.Stat_t
	if err := unix.Fstat(fd, &status); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	kind, is := map[uint32]string{unix.S_IFCHR: "c", unix.S_IFBLK: "b"}[status.Mode&unix.S_IFMT]
	if !is {
		return nil, fmt.Errorf("%s is not a device", path)
	}
	return &specs.DeviceNode{
		Path: path, Type: kind, Major: int64(unix.Major(status.Rdev)), Minor: int64(unix.Minor(status.Rdev)),
	}, nil
}
