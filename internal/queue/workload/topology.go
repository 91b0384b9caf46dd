package workload

import (
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Domain is a place in a topology and how many pods belong there.
type Domain struct {
	Values []string
	Count  int
}

// Domains spells a topology assignment out, in the order of ranks.
func Domains(a *kueue.TopologyAssignment) []Domain {
	var out []Domain
	for _, part := range a.Slices {
		for i := range int(part.DomainCount) {
			d := Domain{Count: int(ptr.Deref(part.PodCounts.Universal, 0))}
			if part.PodCounts.Universal == nil {
				d.Count = int(part.PodCounts.Individual[i])
			}
			for _, level := range part.ValuesPerLevel {
				value := ptr.Deref(level.Universal, "")
				if v := level.Individual; v != nil {
					value = ptr.Deref(v.Prefix, "") + v.Roots[i] + ptr.Deref(v.Suffix, "")
				}
				d.Values = append(d.Values, value)
			}
			out = append(out, d)
		}
	}
	return out
}

// Labels are those of the domain's nodes.
func (d Domain) Labels(levels []string) map[string]string {
	labels := make(map[string]string, len(levels))
	for i, key := range levels {
		labels[key] = d.Values[i]
	}
	return labels
}

// Matches says that labels, a node's or a pod's node selector, name the domain.
func (d Domain) Matches(labels map[string]string, levels []string) bool {
	for i, key := range levels {
		if labels[key] != d.Values[i] {
			return false
		}
	}
	return true
}
