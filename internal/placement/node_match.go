package placement

import (
	"slices"

	"github.com/elastic-ai/elastic/internal/nodematch"
)

// matches says whether the node's labels and taints allow the pod.
func matches(p *Pod, n *Node) Reason {
	if n.closed(p.Tolerations) {
		return NodeUnschedulable
	}
	for key, value := range p.Selector {
		if have, labelled := n.Labels[key]; !labelled || have != value {
			return LabelsDiffer
		}
	}
	if len(p.Affinity) > 0 && !slices.ContainsFunc(p.Affinity, func(t Term) bool { return t.MatchesNode(n.Name, n.Labels) }) {
		return LabelsDiffer
	}
	if !p.IgnoresTaints && n.repels(p.Tolerations) {
		return Tainted
	}
	return Fits
}

// Takes says whether the node takes pods with these tolerations, whatever else they request.
func (n *Node) Takes(tolerations []Toleration) bool {
	return !n.closed(tolerations) && !n.repels(tolerations)
}

// cordoned is the taint that kubectl cordon stands for.
var cordoned = Taint{Key: "node.kubernetes.io/unschedulable", Effect: nodematch.NoSchedule}

func (n *Node) closed(tolerations []Toleration) bool {
	return n.Unschedulable && !cordoned.ToleratedBy(tolerations)
}

func (n *Node) repels(tolerations []Toleration) bool {
	for i := range n.Taints {
		if taint := &n.Taints[i]; taint.Binds() && !taint.ToleratedBy(tolerations) {
			return true
		}
	}
	return false
}
