package mps

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// runWithShm runs a command to which a folder is /dev/shm, and returns what it prints. To all others that stays as it is.
func runWithShm(cmd *exec.Cmd, shm string) ([]byte, error) {
	var out []byte
	failed := make(chan error)
	go func() {
		// The thread has mounts of its own from here on. It is not unlocked, so that it ends with this goroutine.
		runtime.LockOSThread()
		failed <- func() (err error) {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("mounts of its own: %w", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
				return fmt.Errorf("mounts of its own: %w", err)
			}
			if err := unix.Mount(shm, shmDir, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("mounting %s: %w", shmDir, err)
			}
			out, err = cmd.CombinedOutput()
			return err
		}()
	}()
	err := <-failed
	return out, err
}
