package gpu

import "github.com/elastic-ai/elastic/internal/placement"

// NodeStatus is a node as /scheduler/status shows it.
type NodeStatus struct {
	Name  string       `json:"name"`
	Cards []CardStatus `json:"cards"`
}

// CardStatus is a card with what containers have of it. Core is in percent, memory in MiB.
type CardStatus struct {
	Index       int              `json:"index"`
	UUID        string           `json:"uuid,omitempty"`
	Model       string           `json:"model,omitempty"`
	Memory      int64            `json:"memory"`
	FreeCore    float64          `json:"freeCore"`
	FreeMemory  int64            `json:"freeMemory"`
	Unhealthy   string           `json:"unhealthy,omitempty"`
	Allocations []CardAllocation `json:"holders,omitempty"`
}

// CardAllocation is what a container has of a card.
type CardAllocation struct {
	Pod       string  `json:"pod"`
	Container string  `json:"container,omitempty"`
	Core      float64 `json:"core"`
	Memory    int64   `json:"memory"`
	// Reserved: its pod is not bound yet.
	Reserved bool `json:"reserved,omitempty"`
}

// StatusOf the nodes that have cards.
func StatusOf(nodes []placement.NodeStatus) []NodeStatus {
	out := []NodeStatus{}
	for _, n := range nodes {
		if len(n.Cards) == 0 {
			continue
		}
		status := NodeStatus{Name: n.Name}
		for _, c := range n.Cards {
			card := CardStatus{
				Index: c.Index, UUID: c.UUID, Model: c.Model, Memory: c.Memory, Unhealthy: c.Unhealthy,
				FreeCore: float64(c.FreeCore) / 10, FreeMemory: c.FreeMemory,
			}
			for _, h := range c.Allocations {
				card.Allocations = append(card.Allocations, CardAllocation{
					Pod: h.Pod, Container: h.Container, Core: float64(h.Core) / 10, Memory: h.Memory, Reserved: !h.Bound,
				})
			}
			status.Cards = append(status.Cards, card)
		}
		out = append(out, status)
	}
	return out
}
