package qgpu_test

import (
	"testing"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/qgpu"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Subject{
		Leaves: true, Paths: []string{"/dev/qgpu3", "/dev/qgpuctl", "/var/run/qgpu/3"},
		New: func(_ *testing.T, dir string) backend.Backend {
			return &qgpu.Backend{Dir: dir}
		},
	})
}

func TestFilesOfTheDevice(t *testing.T) {
	b := &qgpu.Backend{Dir: t.TempDir()}
	s := conformance.Subject{Paths: []string{"/dev/qgpu3", "/var/run/qgpu/3"}}.Share("1", 0)
	edits, err := b.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(edits.DeviceNodes) != 1 || edits.DeviceNodes[0].Path != "/dev/qgpu3" || len(edits.Mounts) != 1 || edits.Mounts[0].ContainerPath != "/var/run/qgpu/3" {
		t.Errorf("devices %v, mounts %v", edits.DeviceNodes, edits.Mounts)
	}
	s.Paths = nil
	if _, err := b.Prepare(t.Context(), s); err == nil {
		t.Error("a share without a device was given")
	}
}
