package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Tmpfs is a folder that containers write to: in memory, which counts as that of who writes, and of a size, so that no
// container fills the node's disk.
type Tmpfs struct {
	MB     int64
	Inodes int
	Mode   uint32
}

// Mount the folder, unless it is. It stays when the agent ends.
func (t Tmpfs) Mount(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	mounted, err := isMounted(dir)
	if err != nil || mounted {
		return err
	}
	options := fmt.Sprintf("size=%dm,nr_inodes=%d,mode=%04o", t.MB, t.Inodes, t.Mode)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mounting a folder that a container writes to, at %s: %w: %s", dir, err, mountAdvice)
	}
	if seen, err := seenByTheNode(dir); err != nil || !seen {
		return errors.Join(err, fmt.Errorf("the node does not see what the agent mounts at %s: %s", dir, mountAdvice), Unmount(dir))
	}
	return nil
}

const mountAdvice = "the agent needs CAP_SYS_ADMIN, and its state folder mountPropagation Bidirectional, as in the chart"

// Unmount the folder, whatever is in it. Containers that have it keep it until they end. That it is not mounted, or not
// there, is no error.
func Unmount(dir string) error {
	for {
		mounted, err := isMounted(dir)
		if err != nil || !mounted {
			return err
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmounting %s: %w", dir, err)
		}
	}
}

// isMounted says whether something is mounted at a folder.
func isMounted(dir string) (bool, error) {
	var status unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, 0, &status)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && status.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		err = errors.New("the kernel is too old to say what is mounted (5.8)")
	}
	if err != nil {
		return false, fmt.Errorf("looking at %s: %w", dir, err)
	}
	return status.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// seenByTheNode says whether the container runtime sees what we have mounted: we are not in a container, or what we
// mount in it is shared with the node. Where the node's first process is not to be seen, it is taken for so.
func seenByTheNode(dir string) (bool, error) {
	ours, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return false, err
	}
	if nodes, err := os.Readlink("/proc/1/ns/mnt"); err != nil || nodes == ours {
		return true, nil
	}
	at, err := filepath.EvalSymlinks(dir) // as the kernel names it
	if err != nil {
		return false, err
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(data)) {
		// 36 35 98:0 /root /mount/point options shared:1 master:2 - type source
		fields := strings.Fields(line)
		if len(fields) > 6 && fields[4] == at {
			return strings.HasPrefix(fields[6], "shared:"), err
		}
	}
	return false, err
}
