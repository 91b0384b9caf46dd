package gpuscheduler

import (
	"syscall"
	"testing"

	"github.com/elastic-ai/elastic/internal/cli/local"
)

// programPID is the process that "elastic up" keeps for the scheduler.
func programPID(t *testing.T) int {
	t.Helper()
	c, err := local.Open("test")
	if err != nil {
		t.Fatal(err)
	}
	state, err := c.State()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range state.Programs {
		if p.Name == "elastic-gpu-scheduler" {
			return p.PID
		}
	}
	t.Fatal("elastic-gpu-scheduler does not run")
	return 0
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
