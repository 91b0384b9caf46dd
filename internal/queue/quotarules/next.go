package quotarules

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Change is a quota that changes by itself: a window opens or closes, or what lost nodes had no longer counts.
type Change struct {
	Flavor, Resource string
	From, To         resource.Quantity
}

// mostLooks ahead are made for the next change: windows may open and close that change nothing.
const mostLooks = 64

// Next is when quotas of a ClusterQueue change next by themselves, and how, if nodes stay as they were at the last look;
// zero: as far as is known they do not.
func Next(cq *kueue.ClusterQueue, r Rule, now time.Time) (at time.Time, changes []Change) {
	is, nodes := cq.DeepCopy(), read(cq.Annotations[Annotation]).nodes()
	_, again, err := Plan(is, r, nodes, now)
	for range mostLooks {
		if err != nil || again.IsZero() {
			return time.Time{}, nil
		}
		at = again
		was := is.DeepCopy()
		var words []string
		if words, again, err = Plan(is, r, nodes, at); len(words) > 0 && err == nil {
			return at, changesOf(was, is)
		}
	}
	return time.Time{}, nil
}

// nodes are what nodes had at the last look.
func (rs records) nodes() Capacity {
	c := Capacity{flavors: map[string]corev1.ResourceList{}, known: map[corev1.ResourceName]bool{}}
	for flavor, resources := range rs {
		c.flavors[flavor] = corev1.ResourceList{}
		for name, r := range resources {
			if r != nil && r.Nodes != nil {
				c.flavors[flavor][corev1.ResourceName(name)] = r.Nodes.Now
			}
		}
	}
	return c
}

func changesOf(was, is *kueue.ClusterQueue) (changes []Change) {
	for g := range is.Spec.ResourceGroups {
		for f := range is.Spec.ResourceGroups[g].Flavors {
			from, to := &was.Spec.ResourceGroups[g].Flavors[f], &is.Spec.ResourceGroups[g].Flavors[f]
			for i := range to.Resources {
				if a, b := from.Resources[i].NominalQuota, to.Resources[i].NominalQuota; a.Cmp(b) != 0 {
					changes = append(changes, Change{string(to.Name), string(to.Resources[i].Name), a, b})
				}
			}
		}
	}
	return changes
}
