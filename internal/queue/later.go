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
	if cq == nil || cq.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	elsewhere := o.elsewhere(cq)
	var later []string
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		if !elsewhere && !o.answeredBy(rule, kueue.ProvisioningRequestControllerName) {
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

// elsewhere says a queue's jobs run in other clusters.
func (o *objects) elsewhere(cq *kueue.ClusterQueue) bool {
	return cq != nil && cq.Spec.AdmissionChecksStrategy != nil &&
		slices.ContainsFunc(cq.Spec.AdmissionChecksStrategy.AdmissionChecks, func(rule kueue.AdmissionCheckStrategyRule) bool {
			return o.answeredBy(rule, kueue.MultiKueueControllerName)
		})
}

func (o *objects) answeredBy(rule kueue.AdmissionCheckStrategyRule, controller string) bool {
	check := o.checks[string(rule.Name)]
	return check != nil && check.Spec.ControllerName == controller
}

// unknownYet says that nodes for a pod set of a workload with quota are not, or
// not yet, among those we know.
func (s *Shell) unknownYet(wl *kueue.Workload, flavors map[string]string) bool {
	cq := s.statuses.clusterQueues[string(wl.Status.Admission.ClusterQueue)]
	if s.statuses.elsewhere(cq) {
		return true
	}
	return !workload.IsAdmitted(wl) && !workload.ChecksReady(wl) && onAny(s.statuses.nodesLater(cq), flavors)
}

func onAny(names []string, flavors map[string]string) bool {
	for _, flavor := range flavors {
		if slices.Contains(names, flavor) {
			return true
		}
	}
	return false
}

// placedLater are the pod sets of an admission that get their places in a
// topology when their nodes are there.
func (s *Shell) placedLater(wl *kueue.Workload) []kueue.PodSetReference {
	cq := s.statuses.clusterQueues[string(wl.Status.Admission.ClusterQueue)]
	later := s.statuses.nodesLater(cq)
	if len(later) == 0 || s.statuses.elsewhere(cq) || s.options.Placer == nil || !s.gates.topology {
		return nil
	}
	var names []kueue.PodSetReference
	w := s.alone(wl)
	for _, assigned := range w.Admission.PodSets {
		i := slices.IndexFunc(w.PodSets, func(set admission.PodSet) bool { return set.Name == assigned.Name })
		if i >= 0 && w.PodSets[i].Topology != nil && onAny(later, assigned.Flavors) && s.inTopology(assigned.Flavors) {
			names = append(names, kueue.PodSetReference(assigned.Name))
		}
	}
	return names
}

// inTopology says that one of the flavors has one.
func (s *Shell) inTopology(flavors map[string]string) bool {
	for _, name := range flavors {
		if flavor := s.statuses.flavors[name]; flavor != nil && flavor.Spec.TopologyName != nil {
			return true
		}
	}
	return false
}

// late is a workload whose checks are ready, and why its nodes have no room yet.
type late struct {
	*tracked
	why string
}

// placeLate finds places in the topology for a workload whose checks are ready,
// and admits it. Where there is no room yet, as while nodes start, it is tried
// again with every change of them.
func (s *Shell) placeLate(t *tracked) {
	key := workload.KeyOf(t.object)
	var places map[string]*kueue.TopologyAssignment
	if s.options.Placer != nil {
		placed, refusal := s.moveIn(t)
		if refusal != nil {
			if _, told := s.late[key]; !told {
				s.tell(t.object, corev1.EventTypeWarning, "SecondPassFailed", "%s", refusal.Reason)
			}
			s.late[key] = late{t, refusal.Reason}
			return
		}
		places = s.options.Placer.Assignments(placed)
	}
	delete(s.late, key)
	s.start(t, s.step(workload.Step{Act: workload.PlaceNow, Places: places}))
}

// moveIn gives a workload room for all its pods. Where there is none, those that
// had their nodes before keep what they have.
func (s *Shell) moveIn(t *tracked) (any, *admission.Refusal) {
	w := s.forEngine(t.object)
	mark := s.options.Placer.Checkpoint()
	s.options.Placer.Remove(w.Key)
	placed, refusal := s.options.Placer.Place(s.placeRequest(&w, t.object))
	s.options.Placer.Rollback(mark)
	if refusal == nil {
		w.Admission.Placement = placed
		s.engine.Apply(admission.WorkloadChanged{Workload: w})
	}
	return placed, refusal
}

// settleLate holds the room of an admitted workload whose nodes have come, as much
// of it as there is.
func (s *Shell) settleLate(wl *kueue.Workload) {
	t := s.workloads[workload.KeyOf(wl)]
	if t == nil || s.options.Placer == nil || wl.Status.Admission == nil {
		return
	}
	cq := s.statuses.clusterQueues[string(wl.Status.Admission.ClusterQueue)]
	if len(s.statuses.nodesLater(cq)) == 0 || s.statuses.elsewhere(cq) {
		return
	}
	if _, refusal := s.moveIn(t); refusal != nil {
		s.unplaced = append(s.unplaced, t)
	}
}
