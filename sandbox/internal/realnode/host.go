//go:build linux

package realnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// HostImage has nothing but links: containers on this machine's root mount the folders of that.
const HostImage = "registry.local/host:1"

// Annotations of a node that offers its machine's root: where it is, and its folders.
const (
	hostRootAnnotation    = "elasticai.io/host-root"
	hostFoldersAnnotation = "elasticai.io/host-folders"
)

// hostRoot is this machine's root as containers may have it: read-only, without devices, set-user-ID programs,
// homes, what runs, and what only root reads.
type hostRoot struct {
	dir     string            // where it is mounted, for this node's processes alone
	folders []string          // of its top that containers mount
	links   map[string]string // of its top
}

// notOffered are folders of a root that are a container's own, a person's, or the system's.
var notOffered = []string{"boot", "dev", "home", "lost+found", "old_root", "proc", "root", "run", "sys", "tmp", "var"}

// mountHost makes it, in mounts that go with the node's last process. Over the machine's root lies a layer with
// empty files: whatever is mounted into a container on a single file finds one there, since none can be made.
func (n *node) mountHost() (*hostRoot, error) {
	h := &hostRoot{dir: n.path("host", "root")}
	if err := h.list("/"); err != nil {
		return nil, err
	}
	layer := n.path("host", "layer")
	for _, dir := range []string{h.dir, layer} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := unix.Mount("elastic", layer, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return nil, fmt.Errorf("a tmpfs: %w", err)
	}
	for _, file := range []string{"usr/lib/elastic-gpu/libelasticgpu.so", "etc/ld.so.preload", "etc/hosts", "etc/hostname", "etc/resolv.conf"} {
		if err := emptyFile(filepath.Join(layer, file)); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"etc/elastic-gpu", "nothing"} {
		if err := os.MkdirAll(filepath.Join(layer, dir), 0o755); err != nil {
			return nil, err
		}
	}
	if err := unix.Mount("elastic", h.dir, "overlay", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "lowerdir="+layer+":/"); err != nil {
		return nil, fmt.Errorf("a layer over / (the kernel's overlay): %w", err)
	}
	if err := h.mountsBelow(); err != nil {
		return nil, err
	}
	return h, h.hide(layer, filepath.Dir(n.absoluteSandbox()), n.dir)
}

func (n *node) absoluteSandbox() string {
	if absolute, err := filepath.Abs(n.SandboxDir); err == nil {
		return absolute
	}
	return n.SandboxDir
}

func emptyFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}

// list the top of a root.
func (h *hostRoot) list(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	h.links = map[string]string{}
	for _, e := range entries {
		info, err := e.Info()
		if slices.Contains(notOffered, e.Name()) || err != nil {
			continue
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if to, err := os.Readlink(filepath.Join(root, e.Name())); err == nil {
				h.links["/"+e.Name()] = to
			}
		case info.IsDir() && info.Mode()&0o005 == 0o005: // others may look into it
			h.folders = append(h.folders, e.Name())
		}
	}
	return nil
}

// mountsBelow brings in what is mounted in the folders: a driver's, a disk with data. Read-only as well.
func (h *hostRoot) mountsBelow() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, at := range mountPoints(string(text)) {
		top, _, below := strings.Cut(strings.TrimPrefix(at, "/"), "/")
		if !below || !slices.Contains(h.folders, top) || strings.HasPrefix(at, filepath.Dir(h.dir)+"/") {
			continue
		}
		to := filepath.Join(h.dir, at)
		if err := unix.Mount(at, to, "", unix.MS_BIND, ""); err != nil {
			continue // under another mount, or in a folder that is not seen: it is not there for containers either
		}
		if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("%s, read-only: %w", at, err)
		}
	}
	return nil
}

// mountPoints of a mountinfo, in its order.
func mountPoints(text string) []string {
	var points []string
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points
}

// hide what is in /etc and others may not read, and folders of ours. That a person may not read them at a shell
// either holds them back already; this is for containers that an administrator runs as root.
func (h *hostRoot) hide(layer string, folders ...string) error {
	hidden := folders
	etc := filepath.Join(h.dir, "etc")
	err := filepath.WalkDir(etc, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Type()&fs.ModeSymlink != 0 {
			return nil //nolint:nilerr // what root cannot look at, nobody can
		}
		info, err := e.Info()
		if err != nil || info.Mode()&0o004 != 0 || !(e.IsDir() || info.Mode().IsRegular()) {
			return nil //nolint:nilerr // as above
		}
		hidden = append(hidden, strings.TrimPrefix(path, h.dir))
		if e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, path := range hidden {
		at := filepath.Join(h.dir, path)
		info, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		nothing := filepath.Join(layer, "nothing")
		if !info.IsDir() {
			nothing = filepath.Join(layer, "etc", "ld.so.preload")
		}
		if err := unix.Mount(nothing, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hiding %s: %w", path, err)
		}
		if err := unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("hiding %s: %w", path, err)
		}
	}
	return nil
}

// announceHost writes on the node where the root is, for those who write pods.
func (n *node) announceHost(ctx context.Context, client kubernetes.Interface) error {
	if n.host == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		hostRootAnnotation: n.host.dir, hostFoldersAnnotation: strings.Join(n.host.folders, ","),
	}}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
