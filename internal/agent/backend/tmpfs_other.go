//go:build !linux

package backend

import "os"

// Tmpfs is a plain folder where there are no containers.
type Tmpfs struct {
	MB     int64
	Inodes int
	Mode   uint32
}

// Mount makes the folder.
func (Tmpfs) Mount(dir string) error { return os.MkdirAll(dir, 0o750) }

// Unmount does nothing.
func Unmount(string) error { return nil }
