package world

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/quotarules"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// nominalQuotas are those that follow nodes and hours where a QueuePolicy says so, planned by the code of elastic-queue's
// controller on ClusterQueues as it would see them.
type nominalQuotas struct {
	rules   map[string]quotarules.Rule
	objects []*kueue.ClusterQueue
	flavors []kueue.ResourceFlavor
	again   time.Time         // when to look again; zero: when nodes change
	stale   bool              // they did
	most    map[quotaOf]int64 // the largest so far
}

// quotaOf is one quota of a queue.
type quotaOf struct{ queue, flavor, resource string }

// newNominalQuotas of the cluster; nil if all are as declared.
func (c *Cluster) newNominalQuotas() (*nominalQuotas, error) {
	rules, err := quotarules.Rules(c.QueuePolicies, c.tree())
	if err != nil {
		return nil, err
	}
	n := &nominalQuotas{rules: rules, stale: true, most: map[quotaOf]int64{}}
	for i := range c.Queues {
		q := &c.Queues[i]
		record := c.QuotaRecords[q.Name]
		if _, asked := rules[q.Name]; asked || record != "" {
			n.objects = append(n.objects, clusterQueue(q, record))
		}
	}
	if len(n.objects) == 0 {
		return nil, nil
	}
	for i := range c.Flavors {
		n.flavors = append(n.flavors, resourceFlavor(&c.Flavors[i]))
	}
	return n, nil
}

// clusterQueue is a queue's object as far as its quotas go. The record is what the controller stored in it.
func clusterQueue(q *admission.Queue, record string) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{}
	if cq.Name = q.Name; record != "" {
		cq.Annotations = map[string]string{quotarules.Annotation: record}
	}
	for _, g := range q.Groups {
		group := kueue.ResourceGroup{}
		for _, f := range g.Flavors {
			flavor := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(f.Flavor)}
			for _, name := range sortedKeys(f.Quotas) {
				resource, quota := corev1.ResourceName(name), f.Quotas[name]
				next := kueue.ResourceQuota{Name: resource, NominalQuota: workload.Quantity(resource, quota.Nominal)}
				if quota.LendingLimit != nil {
					limit := workload.Quantity(resource, *quota.LendingLimit)
					next.LendingLimit = &limit
				}
				flavor.Resources = append(flavor.Resources, next)
			}
			group.Flavors = append(group.Flavors, flavor)
		}
		cq.Spec.ResourceGroups = append(cq.Spec.ResourceGroups, group)
	}
	return cq
}

// resourceFlavor is a flavor's object, as far as it says which nodes are its own.
func resourceFlavor(f *admission.Flavor) kueue.ResourceFlavor {
	object := kueue.ResourceFlavor{}
	object.Name, object.Spec.NodeLabels = f.Name, f.NodeLabels
	for _, t := range f.NodeTaints {
		object.Spec.NodeTaints = append(object.Spec.NodeTaints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return object
}

// follow plans the quotas anew, if nodes changed or it is time to, and tells the engine of those that are others now.
func (n *nominalQuotas) follow(w *World) {
	if n == nil || !n.stale && (n.again.IsZero() || w.clock(w.now).Before(n.again)) {
		return
	}
	nodes := make([]corev1.Node, len(w.order))
	for i, s := range w.order {
		nodes[i] = *s.node.object(!s.down)
	}
	n.stale, n.again = false, time.Time{}
	has := quotarules.CapacityOf(n.flavors, nodes)
	for _, cq := range n.objects {
		_, again, err := quotarules.Plan(cq, n.rules[cq.Name], has, w.clock(w.now))
		if err != nil {
			w.fail(err)
			return
		}
		n.again = quotarules.Earlier(n.again, again)
		n.tell(w, cq)
	}
}

// tell the engine of a queue's quotas, if they changed.
func (n *nominalQuotas) tell(w *World, cq *kueue.ClusterQueue) {
	at := slices.IndexFunc(w.cluster.Queues, func(q admission.Queue) bool { return q.Name == cq.Name })
	q, changed := &w.cluster.Queues[at], false
	groups := cloneGroups(q.Groups) // the engine has the others
	for g, group := range cq.Spec.ResourceGroups {
		for f, flavor := range group.Flavors {
			for _, r := range flavor.Resources {
				quota := groups[g].Flavors[f].Quotas[string(r.Name)]
				nominal, was := workload.Amount(r.Name, r.NominalQuota), quota
				if quota.Nominal = nominal; r.LendingLimit != nil {
					limit := workload.Amount(r.Name, *r.LendingLimit)
					quota.LendingLimit = &limit
				}
				changed = changed || quota.Nominal != was.Nominal || quota.LendingLimit != nil && *quota.LendingLimit != *was.LendingLimit
				groups[g].Flavors[f].Quotas[string(r.Name)] = quota
				which := quotaOf{cq.Name, string(flavor.Name), string(r.Name)}
				n.most[which] = max(n.most[which], was.Nominal, nominal)
			}
		}
	}
	if !changed {
		return
	}
	q.Groups = groups
	next := *q
	next.NamespaceSelector = &admission.Term{}
	w.engine.Apply(admission.QueueChanged{Queue: next})
	w.figures.quotaChanged(q.Name, nominalOf(groups, w.cluster.Cards))
}

// fallen is how much less the quotas of a tree are than they were.
func (n *nominalQuotas) fallen(w *World, root, flavor, resource string) int64 {
	var sum int64
	for which, most := range n.mostSoFar() {
		if which.flavor != flavor || which.resource != resource || w.policies.rootOf(w.cluster, which.queue) != root {
			continue
		}
		at := slices.IndexFunc(w.cluster.Queues, func(q admission.Queue) bool { return q.Name == which.queue })
		for _, g := range w.cluster.Queues[at].Groups {
			for _, f := range g.Flavors {
				if f.Flavor == flavor {
					sum += most - f.Quotas[resource].Nominal
				}
			}
		}
	}
	return sum
}

func (n *nominalQuotas) mostSoFar() map[quotaOf]int64 {
	if n == nil {
		return nil
	}
	return n.most
}

// quotaFell says that a queue may have more than it could get now: its quotas are others than they were.
func (p *policies) quotaFell(queue string) bool {
	return p != nil && p.quotas != nil && slices.ContainsFunc(p.quotas.objects, func(cq *kueue.ClusterQueue) bool { return cq.Name == queue })
}
