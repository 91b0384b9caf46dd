package placement

import (
	"slices"
	"strconv"
)

// matches says whether the node's labels and taints let the pod in.
func matches(p *Pod, n *Node) Reason {
	if n.closed(p.Tolerations) {
		return NodeUnschedulable
	}
	for key, value := range p.Selector {
		if have, labelled := n.Labels[key]; !labelled || have != value {
			return LabelsDiffer
		}
	}
	if len(p.Affinity) > 0 && !slices.ContainsFunc(p.Affinity, func(t Term) bool { return holds(t, n) }) {
		return LabelsDiffer
	}
	if n.repels(p.Tolerations) {
		return Tainted
	}
	return Fits
}

// Takes says whether the node lets in pods with such tolerations, whatever else they ask for.
func (n *Node) Takes(tolerations []Toleration) bool {
	return !n.closed(tolerations) && !n.repels(tolerations)
}

func (n *Node) closed(tolerations []Toleration) bool {
	return n.Unschedulable && !tolerates(tolerations, Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"})
}

func (n *Node) repels(tolerations []Toleration) bool {
	return slices.ContainsFunc(n.Taints, func(taint Taint) bool {
		return taint.Effect != "PreferNoSchedule" && !tolerates(tolerations, taint)
	})
}

func tolerates(tolerations []Toleration, taint Taint) bool {
	for _, t := range tolerations {
		if (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == taint.Key || t.Key == "" && t.Operator == "Exists") &&
			(t.Operator == "Exists" || t.Value == taint.Value) {
			return true
		}
	}
	return false
}

// holds: an empty term matches nothing, as in Kubernetes.
func holds(term Term, n *Node) bool {
	for i := range term {
		if !required(&term[i], n) {
			return false
		}
	}
	return len(term) > 0
}

func required(r *Requirement, n *Node) bool {
	value, labelled := n.Labels[r.Key]
	if r.Key == "metadata.name" {
		value, labelled = n.Name, true
	}
	switch r.Operator {
	case "In":
		return labelled && slices.Contains(r.Values, value)
	case "NotIn":
		return !labelled || !slices.Contains(r.Values, value)
	case "Exists":
		return labelled
	case "DoesNotExist":
		return !labelled
	case "Gt", "Lt":
		have, err1 := strconv.ParseInt(value, 10, 64)
		if !labelled || err1 != nil || len(r.Values) != 1 {
			return false
		}
		want, err2 := strconv.ParseInt(r.Values[0], 10, 64)
		return err2 == nil && (r.Operator == "Gt" && have > want || r.Operator == "Lt" && have < want)
	}
	return false
}
