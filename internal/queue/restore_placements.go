package queue

import (
	"maps"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// restoreLater notes a workload whose quota was not reserved by this process.
func (s *Shell) restoreLater(t *tracked, before *kueue.Workload) {
	if s.options.Placer != nil && s.usesQuota(t.object) && (before == nil || !s.usesQuota(before)) {
		s.unplaced = append(s.unplaced, t)
	}
}

// restoreFewer notes a placed workload that needs other pods than before, most often fewer: what is reserved
// for pods that have ended is free.
func (s *Shell) restoreFewer(t *tracked, before *kueue.Workload) {
	if s.gates.reclaim && s.options.Placer != nil && s.options.Placer.Reserves(workload.KeyOf(t.object)) &&
		!slices.Equal(before.Status.ReclaimablePods, t.object.Status.ReclaimablePods) {
		s.unplaced = append(s.unplaced, t)
	}
}

// restorePlacements rebuilds the placements of workloads that were admitted before this process
// started, or by someone else, or that need fewer pods now, from their pods and topology assignments.
// All nodes and pods are known by now.
func (s *Shell) restorePlacements() {
	s.restoreOutdated()
	if len(s.unplaced) == 0 {
		return
	}
	for _, t := range s.unplaced {
		// With several pod sets, only the pod itself can say which one it belongs to.
		if sets := t.object.Spec.PodSets; len(sets) == 1 && s.familyOf(t.object).hasPods(t.object) {
			for _, job := range s.asCounted(t.object).OwnerReferences {
				s.options.Placer.Own(job.UID, workload.KeyOf(t.object), string(sets[0].Name))
			}
		}
	}
	bound := s.options.Placer.Bound()
	var later []*tracked
	for _, t := range s.unplaced {
		key := workload.KeyOf(t.object)
		if s.workloads[key] != t || !s.usesQuota(t.object) {
			continue
		}
		if t.writing != nil {
			later = append(later, t)
			continue
		}
		w := s.forEngine(t.object)
		if w.Admission.Placement = s.options.Placer.Restore(s.placeRequest(&w, t.object), bound, assignedTopologies(t.object)); w.Admission.Placement != nil {
			s.engine.Apply(admission.WorkloadChanged{Workload: w})
			s.checkNodes(key) // its nodes may have been lost meanwhile
		}
	}
	s.engine.Apply(admission.CapacityChanged{}) // they may have less than before
	s.unplaced = later
}

// restoreOutdated notes workloads whose nodes may have gone to other pods.
func (s *Shell) restoreOutdated() {
	if s.options.Placer == nil {
		return
	}
	for _, key := range s.options.Placer.Outdated() {
		if t := s.workloads[key]; t != nil && s.usesQuota(t.object) && !workload.IsEvicted(t.object) && !slices.Contains(s.unplaced, t) {
			s.unplaced = append(s.unplaced, t)
		}
	}
}

// endOverdue no longer counts on the end of pods that should have ended by now, and returns when that is so for the next.
func (s *Shell) endOverdue(now time.Time) time.Time {
	if s.options.Placer == nil {
		return time.Time{}
	}
	found, next := s.options.Placer.Overdue(now)
	if found {
		s.engine.Apply(admission.CapacityChanged{})
	}
	return next
}

func assignedTopologies(wl *kueue.Workload) map[string]*kueue.TopologyAssignment {
	assignments := map[string]*kueue.TopologyAssignment{}
	for _, assigned := range wl.Status.Admission.PodSetAssignments {
		if assigned.TopologyAssignment != nil {
			assignments[string(assigned.Name)] = assigned.TopologyAssignment
		}
	}
	return assignments
}

// placeRequest asks the placer for the capacity of an existing admission, without the pods whose
// nodes come with a check that is not ready.
func (s *Shell) placeRequest(w *admission.Workload, wl *kueue.Workload) admission.PlaceRequest {
	r := admission.PlaceRequest{Workload: w.Key, AvoidNodes: w.Admission.AvoidNodes}
	for _, assigned := range w.Admission.PodSets {
		i := slices.IndexFunc(w.PodSets, func(set admission.PodSet) bool { return set.Name == assigned.Name })
		if i < 0 || s.awaitsNodes(wl, assigned.NodeFlavors()) {
			continue
		}
		w.PodSets[i].NodeSelector = workload.NodeSelector(wl, assigned.Name, w.PodSets[i].NodeSelector)
		set := admission.PlacePodSet{Spec: &w.PodSets[i], Count: min(assigned.Count, w.PodSets[i].Left())}
		for _, name := range slices.Compact(slices.Sorted(maps.Values(assigned.NodeFlavors()))) {
			if flavor := s.objects.Flavors[name]; flavor != nil {
				spec := s.event(flavor).(admission.FlavorChanged).Flavor
				set.Flavors = append(set.Flavors, &spec)
			}
		}
		r.PodSets = append(r.PodSets, set)
	}
	return r
}
