package tenantfolder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// beneath: what is opened is in the tenant's folder, and not by way of a link.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV

// Folder is one that is open, whatever its name has become.
type Folder struct{ dir *os.File }

// Open a folder, and of that the folders in folders that are named.
func Open(path string, within ...string) (*Folder, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	for _, name := range within {
		if err != nil {
			break
		}
		root := fd
		path = filepath.Join(path, name)
		fd, err = unix.Openat2(root, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath})
		_ = unix.Close(root)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &Folder{os.NewFile(uintptr(fd), path)}, nil
}

func (f *Folder) Close() { _ = f.dir.Close() }

// Names of what is in it, so many at most: the rest of a folder that is full is not read.
func (f *Folder) Names(most int) ([]string, error) {
	if _, err := f.dir.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	names, err := f.dir.Readdirnames(most)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return names, nil
}

// Dial a socket of it.
func (f *Folder) Dial(ctx context.Context, name string) (*net.UnixConn, error) {
	fd, err := unix.Openat2(int(f.dir.Fd()), name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var status unix.Stat_t
	if err := unix.Fstat(fd, &status); err != nil {
		return nil, err
	}
	if status.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, ErrNoSocket
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, err
	}
	return connection.(*net.UnixConn), nil
}

// RemoveSocket that has been there for so long.
func (f *Folder) RemoveSocket(name string, age time.Duration) {
	var status unix.Stat_t
	if unix.Fstatat(int(f.dir.Fd()), name, &status, unix.AT_SYMLINK_NOFOLLOW) != nil || status.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return
	}
	if time.Since(time.Unix(status.Mtim.Unix())) > age {
		_ = unix.Unlinkat(int(f.dir.Fd()), name, 0)
	}
}
