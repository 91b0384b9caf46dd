package backend_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
)

func TestMain(m *testing.M) { conformance.Apart(m) }

// A container fills its own folder, and no more: neither in bytes nor in files.
func TestTmpfsIsBounded(t *testing.T) {
	dir := filepath.Join(conformance.Folder(t), "run")
	small := backend.Tmpfs{MB: 1, Inodes: 16, Mode: 0o777}
	if err := small.Mount(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("2 MiB in a folder of one: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "large")); err != nil {
		t.Fatal(err)
	}
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a thousand files in a folder of 16: %v", err)
	}
	// Again, as an agent does that was restarted, leaves what is there.
	if err := small.Mount(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "0")); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := backend.Unmount(dir); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left on the disk: %v %v", entries, err)
	}
}

// What is mounted twice over itself is unmounted as a whole, and a link is not followed.
func TestUnmount(t *testing.T) {
	top := conformance.Folder(t)
	dir, link := filepath.Join(top, "run"), filepath.Join(top, "link")
	if err := (backend.Tmpfs{MB: 1, Inodes: 16, Mode: 0o777}).Mount(dir); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := backend.Unmount(link); err != nil || len(conformance.Mounted(t, top)) != 2 {
		t.Errorf("by a link: %v, mounted are %v", err, conformance.Mounted(t, top))
	}
	if err := backend.Unmount(dir); err != nil || len(conformance.Mounted(t, top)) != 0 {
		t.Errorf("%v, mounted are %v", err, conformance.Mounted(t, top))
	}
	if err := backend.Unmount(filepath.Join(top, "never")); err != nil {
		t.Error(err)
	}
}

// A state folder by way of a link is as good as another.
func TestTmpfsByALink(t *testing.T) {
	top := conformance.Folder(t)
	if err := os.Mkdir(filepath.Join(top, "real"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	if err := (backend.Tmpfs{MB: 1, Inodes: 16, Mode: 0o777}).Mount(filepath.Join(top, "link", "run")); err != nil {
		t.Fatal(err)
	}
	if mounted := conformance.Mounted(t, top); len(mounted) != 1 {
		t.Errorf("mounted are %v", mounted)
	}
}
