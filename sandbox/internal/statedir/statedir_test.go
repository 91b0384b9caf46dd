package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOpenIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(path)
	var inUse *InUseError
	if !errors.As(err, &inUse) || inUse.PID != os.Getpid() {
		t.Fatalf("got %v, want in use by this process", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatalf("after close: %v", err)
	}
	again.Close()
}

// TestOpenAfterCrash: a lock file that a dead process left, readable or not, does not matter.
func TestOpenAfterCrash(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "lock"), []byte("99999999 and some garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	_, err = Open(path)
	var inUse *InUseError
	if !errors.As(err, &inUse) || inUse.PID != os.Getpid() {
		t.Errorf("got %v, want in use by this process", err)
	}
}

func TestWipeKeepsTheLock(t *testing.T) {
	d, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, p := range []string{d.PKI(), d.Etcd(), d.Config()} {
		if err := os.MkdirAll(filepath.Join(p, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(d.Kubeconfig(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Wipe(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if len(names) != 2 || names[0] != "lock" || names[1] != "log" {
		t.Errorf("left over: %v", names)
	}
}
