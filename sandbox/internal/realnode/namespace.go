//go:build linux

package realnode

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// kubeletDir is the one place where a kubelet has its device plugins, whatever its flags say.
const kubeletDir = "/var/lib/kubelet"

// inside says that this process has the mounts of a node.
const inside = "ELASTIC_NODE_MOUNTS"

// enter starts this program again with mounts of its own, in which the kubelet's folder is ours. They go
// with the last process that has them; the machine sees none of them, and a kubelet of its own is not
// disturbed. It returns if that has happened already, or fails.
func enter(dir string) error {
	if os.Getenv(inside) == dir {
		return nil
	}
	for _, d := range []string{dir, kubeletDir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // what follows is this thread's alone until it becomes the process
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	// The machine's mounts come in and ours do not go out; among ourselves they are shared, as pods want.
	for _, how := range []uintptr{unix.MS_SLAVE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", how|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mounts of its own: %w", err)
		}
	}
	if _, err := hierarchies(); err != nil { // a machine without systemd may have none mounted
		if err := unix.Mount("elastic", unified, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mounting cgroups: %w", err)
		}
	}
	if err := unix.Mount(dir, kubeletDir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", kubeletDir, err)
	}
	return unix.Exec(self, os.Args, append(os.Environ(), inside+"="+dir))
}
