package qgpu

import (
	"context"
	"fmt"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Backend of qGPU devices.
type Backend struct {
	// Dir is ours alone.
	Dir string
}

// Name by which classes choose it.
func (*Backend) Name() string { return "qgpu" }

// Prepare says which files the container sees: device files as devices, others mounted at their path.
func (b *Backend) Prepare(_ context.Context, s *share.Share) (*specs.ContainerEdits, error) {
	if len(s.Paths) == 0 {
		return nil, fmt.Errorf("container %s of pod %s: its ElasticGPU names no qGPU device (spec.qGPU.paths)", s.Container, s.Pod)
	}
	edits := &specs.ContainerEdits{}
	for _, path := range s.Paths {
		if strings.HasPrefix(path, "/dev/") {
			edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{Path: path})
		} else {
			edits.Mounts = append(edits.Mounts, &specs.Mount{HostPath: path, ContainerPath: path, Options: []string{"rw", "nosuid", "bind"}})
		}
	}
	return edits, backend.Record(b.Dir, s.ID, s.Paths)
}

// Release forgets it: the device is its driver's to remove.
func (b *Backend) Release(_ context.Context, id string) error { return backend.Forget(b.Dir, id) }

// Held lists what is written down.
func (b *Backend) Held(context.Context) ([]string, error) { return backend.Recorded(b.Dir) }
