//go:build cgo

package agent

import (
	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/mig"
	"github.com/elastic-ai/elastic/internal/agent/backend/mps"
	"github.com/elastic-ai/elastic/internal/agent/backend/qgpu"
	"github.com/elastic-ai/elastic/internal/agent/backend/whole"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
)

// ofRealCards are the backends of cards that the driver knows. A new one is a line here.
func (n *Node) ofRealCards(source *discovery.NVML, driver *backend.NodeDriver) []backend.Backend {
	const control = "nvidia-cuda-mps-control"
	space, alone := &mps.Daemons{Dir: n.state("space"), Control: control}, &mps.Daemons{Dir: n.state("mps"), Control: control}
	n.shares.Space, n.daemons = space, []*mps.Daemons{space, alone}
	instances := &mig.Backend{Driver: driver, Lib: source.Lib(), Dir: n.state("mig")}
	n.divisions = instances.Partitions
	return []backend.Backend{
		n.shares, &whole.Backend{Driver: driver}, instances,
		&mps.Backend{Driver: driver, Daemons: alone},
		&qgpu.Backend{Dir: n.state("qgpu"), Allowed: n.Config.QGPUDevices, Root: n.Config.DeviceRoot},
	}
}

// Divisions of the cards of the node that this runs on, without a cluster.
func Divisions(source *discovery.NVML, dir string) func(uuid string) ([]mig.Partition, bool) {
	return (&mig.Backend{Lib: source.Lib(), Dir: dir}).Partitions
}
