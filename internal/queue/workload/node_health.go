package workload

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

// NotReadyFor is how long a node may be not ready where its pods' end is not waited for.
const NotReadyFor = 30 * time.Second

// NodeHealth is what a node is to a workload whose topology assignment names it.
type NodeHealth uint8

const (
	NodeHealthy NodeHealth = iota
	// NodeLeaving is lost as soon as no pod of the workload runs there; pods that are sent there cannot start.
	NodeLeaving
	// NodeLost is to be replaced.
	NodeLost
)

// NodeRules say when a node is lost, as three of Kueue's gates do.
type NodeRules struct {
	// AtOnce does not wait for the end of the pods on a node that is not ready or tainted.
	AtOnce bool
	// AfterNotReady is for nodes that have not been ready for a while, whatever runs there.
	AfterNotReady bool
	// IgnoreTaints looks at readiness alone.
	IgnoreTaints bool
}

// Health of a node, nil if there is none, for pods with these tolerations, one list for each pod set; again is when it
// will be worse without a change, zero: never.
func (r NodeRules) Health(node *corev1.Node, tolerations [][]corev1.Toleration, now time.Time) (health NodeHealth, again time.Time) {
	ready := readiness(node)
	if ready == nil {
		return NodeLost, again
	}
	if ready.Status != corev1.ConditionTrue {
		return r.notReady(ready.LastTransitionTime.Add(NotReadyFor), now)
	}
	if r.IgnoreTaints {
		return NodeHealthy, again
	}
	for _, taint := range taintsOf(node) {
		if taint.Effect != corev1.TaintEffectNoExecute && taint.Effect != corev1.TaintEffectNoSchedule {
			continue
		}
		for _, list := range tolerations {
			switch {
			case !tolerated(&taint, list) && r.AtOnce:
				return NodeLost, again
			case !toleratedForever(&taint, list):
				health = NodeLeaving
			}
		}
	}
	return health, again
}

// taintsOf adds the taint that a cordoned node is about to have.
func taintsOf(node *corev1.Node) []corev1.Taint {
	if !node.Spec.Unschedulable {
		return node.Spec.Taints
	}
	return append(slices.Clone(node.Spec.Taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
}

func (r NodeRules) notReady(until, now time.Time) (NodeHealth, time.Time) {
	expired := !now.Before(until)
	switch {
	case expired && (r.AtOnce || r.AfterNotReady):
		return NodeLost, time.Time{}
	case r.AtOnce:
		return NodeHealthy, until
	case r.AfterNotReady:
		return NodeLeaving, until
	}
	return NodeLeaving, time.Time{}
}

// SaysReadiness says that something is known of a node's readiness.
func SaysReadiness(node *corev1.Node) bool { return readiness(node) != nil }

// IsReady says that a node is ready.
func IsReady(node *corev1.Node) bool {
	ready := readiness(node)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// IsAssignedTo says that an admission's topology assignment names a host.
func IsAssignedTo(wl *kueue.Workload, host string) bool {
	return wl.Status.Admission != nil && slices.ContainsFunc(wl.Status.Admission.PodSetAssignments, func(a kueue.PodSetAssignment) bool {
		return slices.Contains(Hosts(a.TopologyAssignment), host)
	})
}

func readiness(node *corev1.Node) *corev1.NodeCondition {
	if node == nil {
		return nil
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}
	return nil
}

func tolerated(taint *corev1.Taint, list []corev1.Toleration) bool {
	engine := admission.Taint{Key: taint.Key, Value: taint.Value, Effect: string(taint.Effect)}
	return engine.ToleratedBy(Tolerations(list))
}

func toleratedForever(taint *corev1.Taint, list []corev1.Toleration) bool {
	return tolerated(taint, slices.DeleteFunc(slices.Clone(list), func(t corev1.Toleration) bool { return t.TolerationSeconds != nil }))
}

// TolerationsOn are those of the pod sets that an admission puts on a host: their own and their flavors'.
func (find Flavors) TolerationsOn(wl *kueue.Workload, host string) ([][]corev1.Toleration, error) {
	var all [][]corev1.Toleration
	for i := range wl.Status.Admission.PodSetAssignments {
		assigned := &wl.Status.Admission.PodSetAssignments[i]
		at := slices.IndexFunc(wl.Spec.PodSets, func(set kueue.PodSet) bool { return set.Name == assigned.Name })
		if at < 0 || !slices.Contains(Hosts(assigned.TopologyAssignment), host) {
			continue
		}
		_, more, err := find.NodeSelection(wl, assigned)
		if err != nil {
			return nil, err
		}
		list := slices.Concat(wl.Spec.PodSets[at].Template.Spec.Tolerations, more)
		for _, check := range wl.Status.AdmissionChecks {
			for _, update := range check.PodSetUpdates {
				if update.Name == assigned.Name {
					list = append(list, update.Tolerations...)
				}
			}
		}
		all = append(all, list)
	}
	return all, nil
}

// Hosts are those that an assignment names; none unless its narrowest level is the host.
func Hosts(a *kueue.TopologyAssignment) []string {
	if a == nil || len(a.Levels) == 0 || a.Levels[len(a.Levels)-1] != corev1.LabelHostname {
		return nil
	}
	var hosts []string
	for _, d := range Domains(a) {
		if d.Count > 0 {
			hosts = append(hosts, d.Values[len(d.Values)-1])
		}
	}
	return hosts
}
