package queue

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A check can bring the nodes: cluster-autoscaler makes them, or another cluster
// has them. On flavors with such a check quota is given without a look at nodes;
// where the pods go is found when all checks are ready.

// nodesLater are the flavors of a queue whose nodes come with a check.
func (o *objects) nodesLater(cq *kueue.ClusterQueue) []string {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	var later []string
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		check := o.checks[string(rule.Name)]
		if check == nil {
			continue
		}
		elsewhere := check.Spec.ControllerName == kueue.MultiKueueControllerName
		if !elsewhere && check.Spec.ControllerName != kueue.ProvisioningRequestControllerName {
			continue
		}
		for _, group := range cq.Spec.ResourceGroups {
			for _, flavor := range group.Flavors {
				if elsewhere || len(rule.OnFlavors) == 0 || slices.Contains(rule.OnFlavors, flavor.Name) {
					later = append(later, string(flavor.Name))
				}
			}
		}
	}
	slices.Sort(later)
	return slices.Compact(later)
}

// comesLater says that one of the flavors a pod set was given in a queue has its
// nodes later.
func (s *Shell) comesLater(queue string, flavors map[string]string) bool {
	cq := s.statuses.clusterQueues[queue]
	if cq == nil {
		return false
	}
	later := s.statuses.nodesLater(cq)
	for _, flavor := range flavors {
		if slices.Contains(later, flavor) {
			return true
		}
	}
	return false
}

// placedLater are the pod sets of an admission that get their places in a
// topology when their nodes are there.
func (s *Shell) placedLater(wl *kueue.Workload) []kueue.PodSetReference {
	if s.options.Placer == nil || !s.gates.topology {
		return nil
	}
	var names []kueue.PodSetReference
	w := s.alone(wl)
	for i, assigned := range w.Admission.PodSets {
		if w.PodSets[i].Topology == nil || !s.comesLater(w.Admission.Queue, assigned.Flavors) {
			continue
		}
		for _, name := range assigned.Flavors {
			if flavor := s.statuses.flavors[name]; flavor != nil && flavor.Spec.TopologyName != nil {
				names = append(names, kueue.PodSetReference(assigned.Name))
				break
			}
		}
	}
	return names
}

// placeLate finds places in the topology for a workload whose checks are ready,
// and admits it. Where there is no room yet, as while nodes start, it is tried
// again with every change of them.
func (s *Shell) placeLate(t *tracked) {
	key := workload.KeyOf(t.object)
	w := s.forEngine(t.object)
	var places map[string]*kueue.TopologyAssignment
	if s.options.Placer != nil {
		s.options.Placer.Remove(key)
		placed, refusal := s.options.Placer.Place(s.placeRequest(&w, t.object))
		if refusal != nil {
			s.late[key] = t
			if t.unplaced != refusal.Reason {
				t.unplaced = refusal.Reason
				s.tell(t.object, corev1.EventTypeWarning, "SecondPassFailed", "%s", refusal.Reason)
			}
			return
		}
		w.Admission.Placement = placed
		s.engine.Apply(admission.WorkloadChanged{Workload: w})
		places = s.options.Placer.Assignments(placed)
	}
	s.start(t, s.step(workload.Step{Act: workload.PlaceNow, Places: places}))
}

// settleLate holds the room of an admitted workload whose nodes have come.
func (s *Shell) settleLate(wl *kueue.Workload) {
	t := s.workloads[workload.KeyOf(wl)]
	if t == nil || s.options.Placer == nil || wl.Status.Admission == nil {
		return
	}
	if cq := s.statuses.clusterQueues[string(wl.Status.Admission.ClusterQueue)]; cq != nil && len(s.statuses.nodesLater(cq)) > 0 {
		s.unplaced = append(s.unplaced, t)
	}
}
