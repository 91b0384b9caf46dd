package placement

import (
	"math"
	"math/rand/v2"
)

// Many nodes of a cluster are alike, and a node is again and again as it was. What a request shape scores it is remembered by a
// hash of all that scores go by: what the node is, and what is left of it.

// stateSeed is another one in each process, so that nobody can choose requests for which two states have one hash. No decision
// depends on it.
var stateSeed = rand.Uint64()

// remembered is what scoring a node in some state came to.
type remembered struct {
	state  uint64 // 0: nothing yet
	demand uint64 // version of the demand
	score  float64
	reason Reason
}

// mostRemembered states for each request shape.
const mostRemembered = 1024

// recall is where what is known of a state is, or is to be.
func (x *index) recall(state uint64, nodes int) *remembered {
	if len(x.known) == 0 || len(x.known) < min(nodes, mostRemembered) {
		size := 8
		for size < min(nodes, mostRemembered) {
			size *= 2
		}
		x.known = make([]remembered, size)
	}
	return &x.known[state&uint64(len(x.known)-1)]
}

// stateOf a node, as of its last change.
func (n *node) stateOf() uint64 {
	if n.stateAt == n.rev {
		return n.state
	}
	v := &n.view
	h := n.sort
	for _, free := range v.Free {
		h = stir(h, uint64(free))
	}
	for i := range v.Cards {
		c := &v.Cards[i]
		h = stir(h, uint64(c.FreeCore)<<40^uint64(c.FreeMemory))
		h = stir(h, uint64(uint32(c.Shares))<<32|uint64(uint32(c.InSpace)))
		if c.Busy != 0 || c.MemoryBusy != 0 {
			h = stir(h, uint64(math.Float32bits(c.Busy))<<32|uint64(math.Float32bits(c.MemoryBusy))+1)
		}
	}
	for kind, pods := range v.Kinds {
		if pods != 0 {
			h = stir(h, uint64(kind)<<32|uint64(uint32(pods)))
		}
	}
	n.state, n.stateAt = h|1, n.rev
	return n.state
}

// sortOf a node is what of it no pod changes.
func (n *node) sortOf() uint64 {
	h := stateSeed
	for _, total := range n.view.Total {
		h = stir(h, uint64(total))
	}
	for i := range n.view.Cards {
		c, desc := &n.view.Cards[i], &n.desc.Cards[i]
		usable := uint64(0)
		if c.Usable {
			usable = 1
		}
		h = stir(stir(h, uint64(c.Memory)), uint64(uint32(c.Model))<<32|uint64(uint32(c.NUMA)))
		h = stir(stir(h, usable), math.Float64bits(desc.TFLOPS))
	}
	for _, bandwidth := range n.view.Links {
		h = stir(h, uint64(math.Float32bits(bandwidth)))
	}
	return h
}

// stir takes a value into a hash: each bit of either moves half of all.
func stir(h, v uint64) uint64 {
	h = (h ^ v ^ v>>32) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}
