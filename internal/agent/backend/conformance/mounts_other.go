//go:build !linux

package conformance

import (
	"os"
	"testing"
)

// Apart runs a package's tests: nothing is mounted here.
func Apart(m *testing.M) { os.Exit(m.Run()) }

// Folder for a test's backend.
func Folder(t testing.TB) string {
	t.Helper()
	return t.TempDir()
}

// Mounted is nothing.
func Mounted(testing.TB, string) []string { return nil }

// UnmountAtEnd does nothing.
func UnmountAtEnd(testing.TB, string) {}
