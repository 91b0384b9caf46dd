package nodequota

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// rule is what policies ask of a ClusterQueue.
type rule struct {
	share    int64 // percent of what nodes have; 0: nothing is asked
	headroom int64 // percent of what nodes have that nobody gets
	grace    time.Duration
}

// plan makes a ClusterQueue what it should be, and returns what changed, in words, and when to look again; zero: when
// something changes.
func plan(cq *kueue.ClusterQueue, r rule, nodes capacity, at time.Time) (changes []string, again time.Time, err error) {
	was, is := read(cq.Annotations[Annotation]), records{}
	for g := range cq.Spec.ResourceGroups {
		for f := range cq.Spec.ResourceGroups[g].Flavors {
			flavor := &cq.Spec.ResourceGroups[g].Flavors[f]
			for q := range flavor.Resources {
				quota := &flavor.Resources[q]
				stored := was[string(flavor.Name)][string(quota.Name)]
				switch {
				case r.share > 0 && (stored != nil || nodes.known[quota.Name]): // with a record nodes had it, if they no longer do
					next := is.take(string(flavor.Name), quota, stored)
					next.look(share(nodes.flavors[string(flavor.Name)][quota.Name], quota.Name, r.share, r.headroom), at, r.grace)
					changes = append(changes, set(flavor.Name, quota, next.quota(), next.Lending)...)
					again = earlier(again, next.ends())
				case stored != nil:
					changes = append(changes, set(flavor.Name, quota, stored.Declared, stored.Lending)...)
				}
			}
		}
	}
	if len(is) == 0 {
		delete(cq.Annotations, Annotation)
		return changes, again, nil
	}
	text, err := json.Marshal(is)
	if err != nil {
		return nil, time.Time{}, err
	}
	metav1.SetMetaDataAnnotation(&cq.ObjectMeta, Annotation, string(text))
	return changes, again, nil
}

// earlier is the first of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// take takes over the record of a quota, or begins one. What was declared is what the object says, unless that is what
// was written to it last.
func (rs records) take(flavor string, quota *kueue.ResourceQuota, stored *record) *record {
	next := &record{Declared: quota.NominalQuota.DeepCopy(), Lending: copyOf(quota.LendingLimit)}
	if rs[flavor] == nil {
		rs[flavor] = map[string]*record{}
	}
	rs[flavor][string(quota.Name)] = next
	if stored == nil {
		return next // nothing is held at the first look
	}
	*next = *stored
	written := stored.quota()
	if quota.NominalQuota.Cmp(written) != 0 {
		next.Declared = quota.NominalQuota.DeepCopy()
	}
	if limit := lending(written, stored.Lending); (limit == nil) != (quota.LendingLimit == nil) || limit != nil && limit.Cmp(*quota.LendingLimit) != 0 {
		next.Lending = copyOf(quota.LendingLimit)
	}
	return next
}

// set writes a quota, and says so if it was another.
func set(flavor kueue.ResourceFlavorReference, quota *kueue.ResourceQuota, nominal resource.Quantity, declared *resource.Quantity) []string {
	if quota.LendingLimit = lending(nominal, declared); quota.NominalQuota.Cmp(nominal) == 0 {
		return nil
	}
	change := fmt.Sprintf("%s of %s: %s instead of %s", quota.Name, flavor, nominal.String(), quota.NominalQuota.String())
	quota.NominalQuota = nominal.DeepCopy()
	return []string{change}
}

// lending is a lending limit beside a nominal quota, which it may not exceed.
func lending(nominal resource.Quantity, declared *resource.Quantity) *resource.Quantity {
	if declared == nil || declared.Cmp(nominal) <= 0 {
		return copyOf(declared)
	}
	return ptr.To(nominal.DeepCopy())
}

func copyOf(q *resource.Quantity) *resource.Quantity {
	if q == nil {
		return nil
	}
	return ptr.To(q.DeepCopy())
}
