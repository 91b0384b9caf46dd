package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// apart says to a test program that it has mounts of its own.
const apart = "ELASTIC_TEST_MOUNTS"

// Apart runs a package's tests with mounts of their own, and where the user is not root as the root of a user namespace.
func Apart(m *testing.M) {
	if os.Getenv(apart) != "" {
		// Nothing of it gets out, and it is shared as a state folder is with its node.
		for _, how := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
			if err := unix.Mount("", "/", "", how|unix.MS_REC, ""); err != nil {
				fmt.Fprintln(os.Stderr, "mounts of the tests' own:", err)
				os.Exit(1)
			}
		}
		os.Exit(m.Run())
	}
	again := exec.Command(os.Args[0], os.Args[1:]...)
	again.Env = append(os.Environ(), apart+"=1")
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		again.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		again.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		again.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := again.Run()
	if again.ProcessState != nil {
		os.Exit(again.ProcessState.ExitCode())
	}
	fmt.Fprintln(os.Stderr, "not tested: this machine gives no mounts of their own to the tests:", err)
	os.Exit(0)
}

// Folder for a test's backend. What is mounted in it is unmounted when the test ends.
func Folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	UnmountAtEnd(t, dir)
	return dir
}

// UnmountAtEnd of a test unmounts what is mounted below a folder.
func UnmountAtEnd(t testing.TB, dir string) {
	t.Helper()
	t.Cleanup(func() {
		for _, at := range Mounted(t, dir) {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Errorf("unmounting %s: %v", at, err)
			}
		}
	})
}

// Mounted lists what is mounted below a folder.
func Mounted(t testing.TB, dir string) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, dir+"/") {
			all = append(all, at)
		}
	}
	return all
}
