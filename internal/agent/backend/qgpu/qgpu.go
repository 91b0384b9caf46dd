package qgpu

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Backend of qGPU devices.
type Backend struct {
	// Dir is ours alone.
	Dir string
	// Allowed are patterns of the device paths that an ElasticGPU may name, as /dev/qgpu*.
	Allowed []string
	// Root stands before device paths when they are looked at.
	Root string
}

// Name by which classes choose it.
func (*Backend) Name() string { return "qgpu" }

// Prepare says which devices the container sees.
func (b *Backend) Prepare(_ context.Context, s *share.Share) (*specs.ContainerEdits, error) {
	if len(s.Paths) == 0 {
		return nil, fmt.Errorf("container %s of pod %s: its ElasticGPU names no qGPU device (spec.qGPU.paths)", s.Container, s.Pod)
	}
	edits := &specs.ContainerEdits{}
	for _, path := range s.Paths {
		node, err := b.device(path)
		if err != nil {
			return nil, fmt.Errorf("container %s of pod %s: its ElasticGPU's spec.qGPU.paths: %w", s.Container, s.Pod, err)
		}
		edits.DeviceNodes = append(edits.DeviceNodes, node)
	}
	return edits, backend.Record(b.Dir, s.ID, s.Paths)
}

// device node at a path that is allowed. The container runtime gets the numbers that were looked at, and looks at no
// path itself.
func (b *Backend) device(path string) (*specs.DeviceNode, error) {
	allowed := slices.ContainsFunc(b.Allowed, func(pattern string) bool {
		match, err := filepath.Match(pattern, path)
		return err == nil && match
	})
	if !allowed || filepath.Clean(path) != path {
		return nil, fmt.Errorf("%q is none of %s (devicePlugin.qgpuDevices)", path, strings.Join(b.Allowed, ", "))
	}
	return deviceAt(b.Root, path)
}

// Release forgets it: the device is its driver's to remove.
func (b *Backend) Release(_ context.Context, id string) error { return backend.Forget(b.Dir, id) }

// Held lists what is written down.
func (b *Backend) Held(context.Context) ([]string, error) { return backend.Recorded(b.Dir) }
