package queue

import (
	"maps"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// noteTopologies remembers which queues have flavors with topologies, and tells
// the engine again of those who wait in a queue of which that has changed.
func (s *Shell) updateImpliedTopologies() {
	if !s.flavorsChanged || !s.gates.topology {
		return
	}
	s.flavorsChanged = false
	now := map[string]engineview.ImpliedTopology{}
	for name, cq := range s.objects.ClusterQueues {
		if f := s.objects.ImpliedTopology(cq); f.Applies() {
			now[name] = f
		}
	}
	had := len(s.impliedTopologies)
	if s.impliedTopologies = now; had+len(now) == 0 {
		return
	}
	for _, t := range s.workloads {
		f := now[s.objects.ClusterQueueOf(t.object)]
		if f.Equal(t.impliedTopology) {
			continue
		}
		if t.impliedTopology = f; !workload.HasReservation(t.object) {
			s.reapply(t)
		}
	}
}

// settleIn notes a workload that holds quota which was not given here.
func (s *Shell) restoreLater(t *tracked, before *kueue.Workload) {
	if s.options.Placer != nil && workload.UsesQuota(t.object) && (before == nil || !workload.UsesQuota(before)) {
		s.unplaced = append(s.unplaced, t)
	}
}

// restoreRooms gives workloads that were admitted before we came, or by someone
// else, the room on nodes that their pods have and will need. By now all nodes
// and pods are known.
func (s *Shell) restorePlacements() {
	if len(s.unplaced) == 0 {
		return
	}
	for _, t := range s.unplaced {
		// Which of several pod sets a pod is of, only it could say.
		if sets := t.object.Spec.PodSets; len(sets) == 1 {
			for _, job := range t.object.OwnerReferences {
				s.options.Placer.Own(job.UID, workload.KeyOf(t.object), string(sets[0].Name))
			}
		}
	}
	bound := s.options.Placer.Bound()
	var later []*tracked
	for _, t := range s.unplaced {
		key := workload.KeyOf(t.object)
		if s.workloads[key] != t || !workload.UsesQuota(t.object) {
			continue
		}
		if t.writing != nil {
			later = append(later, t)
			continue
		}
		w := s.forEngine(t.object)
		if w.Admission.Placement = s.options.Placer.Restore(s.placeRequest(&w, t.object), bound, assignedTopologies(t.object)); w.Admission.Placement != nil {
			s.engine.Apply(admission.WorkloadChanged{Workload: w})
			s.nodesToCheck[key] = true // its nodes may have gone while nobody looked
		}
	}
	s.unplaced = later
}

func assignedTopologies(wl *kueue.Workload) map[string]*kueue.TopologyAssignment {
	named := map[string]*kueue.TopologyAssignment{}
	for _, assigned := range wl.Status.Admission.PodSetAssignments {
		if assigned.TopologyAssignment != nil {
			named[string(assigned.Name)] = assigned.TopologyAssignment
		}
	}
	return named
}

// placeRequest asks for the room of an admission that was made; for pods whose
// nodes come with a check, once that is ready.
func (s *Shell) placeRequest(w *admission.Workload, wl *kueue.Workload) admission.PlaceRequest {
	r := admission.PlaceRequest{Workload: w.Key}
	for _, assigned := range w.Admission.PodSets {
		i := slices.IndexFunc(w.PodSets, func(set admission.PodSet) bool { return set.Name == assigned.Name })
		if i < 0 || s.awaitsNodes(wl, assigned.Flavors) {
			continue
		}
		w.PodSets[i].NodeSelector = workload.NodeSelector(wl, assigned.Name, w.PodSets[i].NodeSelector)
		set := admission.PlacePodSet{Spec: &w.PodSets[i], Count: min(assigned.Count, w.PodSets[i].Left())}
		for _, name := range slices.Compact(slices.Sorted(maps.Values(assigned.Flavors))) {
			if flavor := s.objects.Flavors[name]; flavor != nil {
				spec := s.event(flavor).(admission.FlavorChanged).Flavor
				set.Flavors = append(set.Flavors, &spec)
			}
		}
		r.PodSets = append(r.PodSets, set)
	}
	return r
}
