package local

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// startInMounts starts a command with the mounts of a process, or ours where that is 0.
func startInMounts(cmd *exec.Cmd, mountsOf int) error {
	if mountsOf == 0 {
		return cmd.Start()
	}
	mounts, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", mountsOf))
	if err != nil {
		return err
	}
	defer func() { _ = mounts.Close() }()
	if cmd.Dir, err = os.Getwd(); err != nil {
		return err
	}
	failed := make(chan error)
	go func() {
		// The thread has other mounts from here on. It is not unlocked, so that it ends with this goroutine.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Setns(int(mounts.Fd()), unix.CLONE_NEWNS)
		}
		if err == nil {
			err = cmd.Start()
		}
		failed <- err
	}()
	return <-failed
}
