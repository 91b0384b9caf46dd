package main

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// What a command does that is tried can be seen, though it is in no pod; what others do, only by their pod's UID.
func TestProcessesOfTriedCommandsAreSeen(t *testing.T) {
	pid := os.Getpid()
	for uid, want := range map[types.UID]bool{
		triedUID(pid): true, "": false, "585": false, "9f2c1a5e-3a53-4ddc-9f4e-0c1f5a3b7e11": false,
	} {
		if got, err := ofTriedOrPod(pid, uid); err != nil || got != want {
			t.Errorf("UID %q: %v, %v", uid, got, err)
		}
	}
}
