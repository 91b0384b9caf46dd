package admission

import (
	"slices"
	"strconv"
	"strings"
)

// flavor is a ResourceFlavor as last described.
type flavor struct {
	spec          Flavor
	exists        bool
	version       uint32
	awaitingNodes []*equivClass // parked because nodes of this flavor had no room
}

// matches says whether all requirements hold for the labels.
func (t Term) matches(labels map[string]string) bool {
	for i := range t {
		if !t[i].matches(labels) {
			return false
		}
	}
	return true
}

func (r *Requirement) matches(labels map[string]string) bool {
	v, has := labels[r.Key]
	switch r.Operator {
	case "In":
		return has && slices.Contains(r.Values, v)
	case "NotIn":
		return !has || !slices.Contains(r.Values, v)
	case "Exists":
		return has
	case "DoesNotExist":
		return !has
	case "Gt", "Lt":
		if !has || len(r.Values) != 1 {
			return false
		}
		have, err1 := strconv.ParseInt(v, 10, 64)
		want, err2 := strconv.ParseInt(r.Values[0], 10, 64)
		if err1 != nil || err2 != nil {
			return false
		}
		if r.Operator == "Gt" {
			return have > want
		}
		return have < want
	}
	return false
}

// accepts says whether the flavor's nodes may run the pod set: "" or why not.
// Only labels the flavor names are looked at; the rest is for the scheduler.
func (f *flavor) accepts(ps *PodSet) string {
	name := f.spec.Name
	if !f.exists {
		return "flavor " + name + " not found"
	}
	if len(ps.Flavors) > 0 && !slices.Contains(ps.Flavors, name) {
		return "flavor " + name + " is not one of " + strings.Join(ps.Flavors, ", ")
	}
	if ps.Topology != nil && f.spec.Topology == "" {
		return "flavor " + name + " does not support TopologyAwareScheduling"
	}
	for i := range f.spec.NodeTaints {
		t := &f.spec.NodeTaints[i]
		if t.Effect != "NoSchedule" && t.Effect != "NoExecute" {
			continue
		}
		if !tolerated(t, ps.Tolerations) && !tolerated(t, f.spec.Tolerations) {
			return "untolerated taint " + t.String() + " in flavor " + name
		}
	}
	labels := f.spec.NodeLabels
	for k, v := range ps.NodeSelector {
		if has, ok := labels[k]; ok && has != v {
			return "flavor " + name + " doesn't match node affinity"
		}
	}
	if len(ps.Affinity) > 0 && !slices.ContainsFunc(ps.Affinity, func(t Term) bool { return t.allows(labels) }) {
		return "flavor " + name + " doesn't match node affinity"
	}
	return ""
}

// allows is matches for the requirements whose key the flavor labels.
func (t Term) allows(labels map[string]string) bool {
	for i := range t {
		if _, known := labels[t[i].Key]; known && !t[i].matches(labels) {
			return false
		}
	}
	return true
}

// String prints a taint as kubectl does.
func (t *Taint) String() string {
	if t.Value == "" {
		return "{" + t.Key + ": " + t.Effect + "}"
	}
	return "{" + t.Key + ": " + t.Value + " " + t.Effect + "}"
}

func tolerated(t *Taint, by []Toleration) bool {
	return slices.ContainsFunc(by, func(o Toleration) bool {
		if o.Effect != "" && o.Effect != t.Effect {
			return false
		}
		if o.Operator == "Exists" {
			return o.Key == "" || o.Key == t.Key
		}
		return o.Key == t.Key && o.Value == t.Value
	})
}
