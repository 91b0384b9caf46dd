//go:build linux

package realnode

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Of a root's top, containers have what others may look into, and links; not homes, and not what runs.
func TestTopOfARoot(t *testing.T) {
	root := t.TempDir()
	for name, mode := range map[string]os.FileMode{"usr": 0o755, "opt": 0o755, "root": 0o755, "run": 0o755, "home": 0o755, "var": 0o755, "secret": 0o700} {
		if err := os.Mkdir(filepath.Join(root, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(root, "bin")); err != nil {
		t.Fatal(err)
	}
	h := &hostRoot{}
	if err := h.list(root); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(h.folders, []string{"opt", "usr"}) || len(h.links) != 1 || h.links["/bin"] != "usr/bin" {
		t.Errorf("%v %v", h.folders, h.links)
	}
}

func TestMountPoints(t *testing.T) {
	text := "23 27 0:22 / /sys rw - sysfs sysfs rw\n28 27 0:25 / /mnt/my\\040disk ro - ext4 /dev/sdb ro\nx\n"
	if got := mountPoints(text); !slices.Equal(got, []string{"/sys", "/mnt/my disk"}) {
		t.Errorf("%q", got)
	}
}
