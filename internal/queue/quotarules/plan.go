package quotarules

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Plan makes a ClusterQueue what it should be, and returns what changed, in words, and when to look again; zero: when
// something changes.
func Plan(cq *kueue.ClusterQueue, r Rule, nodes Capacity, at time.Time) (changes []string, again time.Time, err error) {
	was, is := read(cq.Annotations[Annotation]), records{}
	now, again := r.at(at)
	for g := range cq.Spec.ResourceGroups {
		for f := range cq.Spec.ResourceGroups[g].Flavors {
			flavor := &cq.Spec.ResourceGroups[g].Flavors[f]
			for i := range flavor.Resources {
				q := &flavor.Resources[i]
				which := quotaName{string(flavor.Name), string(q.Name)}
				stored := was[which.flavor][which.resource]
				follows := r.Follows && (nodes.known[q.Name] || stored != nil && stored.Nodes != nil) // nodes had it, if they no longer do
				if !follows && !r.named[which] {
					if stored != nil {
						changes = append(changes, set(which, q, stored.Declared, stored.Lending)...)
					}
					continue
				}
				next := is.take(which, q, stored)
				next.Written = next.Declared
				if follows {
					had := next.look(nodes.flavors[which.flavor][q.Name], at, r.grace)
					if now.share > 0 {
						next.Written = share(had, q.Name, now.share, r.headroom)
					}
					again = Earlier(again, next.Nodes.ends())
				}
				if amount, ok := now.quotas[which]; ok {
					next.Written = amount
				}
				changes = append(changes, set(which, q, next.Written, next.Lending)...)
			}
		}
	}
	return changes, again, is.write(cq)
}

// write puts the records into the ClusterQueue.
func (rs records) write(cq *kueue.ClusterQueue) error {
	if len(rs) == 0 {
		delete(cq.Annotations, Annotation)
		return nil
	}
	text, err := json.Marshal(rs)
	if err == nil {
		metav1.SetMetaDataAnnotation(&cq.ObjectMeta, Annotation, string(text))
	}
	return err
}

// Earlier is the first of two times; zero is never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// take takes over the record of a quota, or begins one. What was declared is what the object says, unless that is what
// was written to it last.
func (rs records) take(which quotaName, q *kueue.ResourceQuota, stored *record) *record {
	next := &record{Declared: q.NominalQuota.DeepCopy(), Lending: copyOf(q.LendingLimit)}
	if stored != nil {
		next.Nodes = stored.Nodes
		if q.NominalQuota.Cmp(stored.Written) == 0 {
			next.Declared = stored.Declared
		}
		if equal(q.LendingLimit, lending(stored.Written, stored.Lending)) {
			next.Lending = stored.Lending
		}
	}
	if rs[which.flavor] == nil {
		rs[which.flavor] = map[string]*record{}
	}
	rs[which.flavor][which.resource] = next
	return next
}

// set writes a quota, and says so if it was another.
func set(which quotaName, q *kueue.ResourceQuota, nominal resource.Quantity, declared *resource.Quantity) []string {
	if q.LendingLimit = lending(nominal, declared); q.NominalQuota.Cmp(nominal) == 0 {
		return nil
	}
	change := fmt.Sprintf("%s of %s: %s instead of %s", which.resource, which.flavor, nominal.String(), q.NominalQuota.String())
	q.NominalQuota = nominal.DeepCopy()
	return []string{change}
}

// lending is a lending limit beside a nominal quota, which it may not exceed.
func lending(nominal resource.Quantity, declared *resource.Quantity) *resource.Quantity {
	if declared == nil || declared.Cmp(nominal) <= 0 {
		return copyOf(declared)
	}
	return ptr.To(nominal.DeepCopy())
}

func equal(a, b *resource.Quantity) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Cmp(*b) == 0
}

func copyOf(q *resource.Quantity) *resource.Quantity {
	if q == nil {
		return nil
	}
	return ptr.To(q.DeepCopy())
}
