package qgpu_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/qgpu"
)

// newBackend on a node with /dev/qgpu3 and /dev/qgpuctl, which are as /dev/null is, and other files of those names.
func newBackend(t *testing.T, dir string) *qgpu.Backend {
	t.Helper()
	root := conformance.Folder(t)
	dev := filepath.Join(root, "dev")
	if err := os.Mkdir(dev, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"qgpu3", "qgpuctl", "sda"} {
		device(t, filepath.Join(dev, name))
	}
	for _, err := range []error{
		os.WriteFile(filepath.Join(dev, "qgpu-file"), nil, 0o600),
		os.Mkdir(filepath.Join(dev, "qgpu-folder"), 0o750),
		os.Symlink("sda", filepath.Join(dev, "qgpu-link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return &qgpu.Backend{Dir: dir, Allowed: []string{"/dev/qgpu*"}, Root: root}
}

// device that is /dev/null: made, or where that is not for the user, bound.
func device(t *testing.T, path string) {
	t.Helper()
	const null = 1<<8 | 3
	if syscall.Mknod(path, syscall.S_IFCHR|0o600, null) == nil {
		return
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("/dev/null", path, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) { conformance.Apart(m) }

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Subject{
		Leaves: true, Paths: []string{"/dev/qgpu3", "/dev/qgpuctl"},
		New: func(t *testing.T, dir string) backend.Backend { return newBackend(t, dir) },
	})
}

func TestDevicesOfTheShare(t *testing.T) {
	b := newBackend(t, conformance.Folder(t))
	s := conformance.Subject{Paths: []string{"/dev/qgpu3", "/dev/qgpuctl"}}.Share("1", 0)
	edits, err := b.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(edits.DeviceNodes) != 2 || len(edits.Mounts) != 0 {
		t.Fatalf("devices %v, mounts %v", edits.DeviceNodes, edits.Mounts)
	}
	if d := edits.DeviceNodes[0]; d.Path != "/dev/qgpu3" || d.Type != "c" || d.Major != 1 || d.Minor != 3 {
		t.Errorf("device %+v", d)
	}
	s.Paths = nil
	if _, err := b.Prepare(t.Context(), s); err == nil {
		t.Error("a share without a device was given")
	}
}

// An ElasticGPU names qGPU devices, and nothing else of the node.
func TestOnlyQGPUDevices(t *testing.T) {
	b := newBackend(t, conformance.Folder(t))
	for path, words := range map[string]string{
		"/dev/sda": "none of /dev/qgpu*", "/etc/shadow": "none of", "/": "none of", "": "none of", "dev/qgpu3": "none of",
		"/dev/qgpu/../sda": "none of", "/dev//qgpu3": "none of", "/dev/qgpu3/": "none of", "/dev/qgpu*": "no such file",
		"/dev/qgpu-link": "not a device", "/dev/qgpu-file": "not a device", "/dev/qgpu-folder": "not a device", "/dev/qgpu9": "no such file",
	} {
		s := conformance.Subject{Paths: []string{"/dev/qgpu3", path}}.Share("1", 0)
		if edits, err := b.Prepare(t.Context(), s); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %+v %v, want %q", path, edits, err, words)
		}
	}
	if held, err := b.Held(t.Context()); err != nil || len(held) != 0 {
		t.Errorf("held are %v %v", held, err)
	}
}
