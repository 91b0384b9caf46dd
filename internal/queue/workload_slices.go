package queue

import (
	"fmt"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A job that grows while it runs has two workloads, in Kueue's words workload slices: the one it runs
// under and one in its new size, which replaces it. While the first has its quota, the second counts
// with what it needs beyond that, so that nothing is counted twice; when the first ends, the second
// counts in full.

// replacedSlice is the workload that wl replaces, if that one uses quota.
func (s *Shell) replacedSlice(wl *kueue.Workload) *kueue.Workload {
	if old := s.workloads[workload.Replaces(wl)]; old != nil && workload.UsesQuota(old.object) {
		return old.object
	}
	return nil
}

// refuseElasticTopology refuses an elastic job that asks for a particular place in a topology, where the gate says so, in
// Kueue's words: the pods that it grows by are placed without regard to where the others are.
func (s *Shell) refuseElasticTopology(w *admission.Workload, wl *kueue.Workload) {
	if !s.gates.elasticTopology || w.Admission != nil || w.Refused != "" || wl.Annotations[kueuelabels.ElasticJob] != "true" {
		return
	}
	for _, set := range w.PodSets {
		if set.Topology == nil || set.Topology.Mode == admission.TopologyUnconstrained {
			continue
		}
		mode := "required"
		if set.Topology.Mode == admission.TopologyPreferred {
			mode = "preferred"
		}
		w.Refused = fmt.Sprintf("failed to assign flavors to pod set %s: %s topology is not supported with ElasticJobsViaWorkloadSlices", set.Name, mode)
		return
	}
}

// updateReplacement applies the workload again that replaces another.
func (s *Shell) updateReplacement(old admission.Key) {
	t := s.workloads[s.replacements[old]]
	if t == nil {
		return
	}
	s.updateUsage(t)
	if t.writing == nil {
		s.tellEngine(t.object)
		s.followPods(t.object)
	} else {
		t.stale = true // writeFinished does it
	}
	if s.options.Placer != nil && s.usesQuota(t.object) && s.replacedSlice(t.object) == nil {
		s.unplaced = append(s.unplaced, t) // the places of the pods that it has taken over are its own now
	}
}

// followPods tells the placer that a workload has taken over the pods of the one it replaced.
func (s *Shell) followPods(wl *kueue.Workload) {
	if named := s.podsNamedAfter(wl); s.options.Placer != nil && s.usesQuota(wl) && s.replacedSlice(wl) == nil && named != workload.KeyOf(wl) {
		s.options.Placer.Follow(named, workload.KeyOf(wl))
	}
}

// updateUsage counts what a workload uses in its queues.
func (s *Shell) updateUsage(t *tracked) {
	is := s.asCounted(t.object)
	if s.isParent(t.object) {
		s.statuses.Usage().Move(t.counted, nil)
		t.counted = nil
		return
	}
	if old := s.replacedSlice(is); old != nil && workload.UsesQuota(is) {
		w := s.forEngineAlone(is)
		workload.SubtractReplaced(&w, old)
		is = is.DeepCopy()
		is.Status.Admission = workload.ForStatus(w.Admission)
	}
	s.statuses.Usage().Move(t.counted, is)
	t.counted = is
}

// replacedStep finishes a slice when the one that replaces it has quota of the same queue, as Kueue's scheduler does, or,
// where Options.KeepSlices says so, is admitted there. The job may have no controller here.
func (s *Shell) replacedStep(old *kueue.Workload) workload.Step {
	t := s.workloads[s.replacements[workload.KeyOf(old)]]
	if t == nil || s.options.NoDecisions || old.DeletionTimestamp != nil || !workload.UsesQuota(old) {
		return workload.Step{}
	}
	if by := t.object; workload.UsesQuota(by) && (workload.IsAdmitted(by) || !s.options.KeepSlices) && !workload.IsEvicted(by) &&
		by.Status.Admission.ClusterQueue == old.Status.Admission.ClusterQueue {
		return workload.ReplacedBy(by)
	}
	return workload.Step{}
}

// wholeAssignments are the topology assignments to write with an admission: of one that replaces another, the pods of
// that one stay where they are.
func (s *Shell) wholeAssignments(wl *kueue.Workload, given *admission.Admission, more map[string]*kueue.TopologyAssignment) map[string]*kueue.TopologyAssignment {
	old := s.replacedSlice(wl)
	if old == nil || s.options.Placer == nil {
		return more
	}
	had, whole := assignedTopologies(old), map[string]*kueue.TopologyAssignment{}
	for _, set := range given.PodSets {
		before := had[set.Name]
		if before == nil {
			whole[set.Name] = more[set.Name]
			continue
		}
		topology := ""
		for _, name := range set.Flavors {
			if flavor := s.objects.Flavors[name]; flavor != nil && flavor.Spec.TopologyName != nil {
				topology = string(*flavor.Spec.TopologyName)
			}
		}
		whole[set.Name] = s.options.Placer.Extend(topology, before, more[set.Name], int(set.Count))
	}
	return whole
}

// wholeAdmission is the admission to write for one that the engine decided. It is nil if the
// replaced workload has released its quota since: the engine has to decide again.
func (s *Shell) wholeAdmission(wl *kueue.Workload, given *admission.Admission) *admission.Admission {
	given = workload.MergeGPUClaims(given)
	if workload.Replaces(wl) == (admission.Key{}) {
		return given
	}
	full := s.forEngineAlone(wl)
	if old := s.replacedSlice(wl); old != nil {
		return workload.AddReplaced(given, full, old)
	}
	same := slices.EqualFunc(given.PodSets, full.PodSets, func(a admission.PodSetAssignment, set admission.PodSet) bool {
		return a.Name == set.Name && a.Count == set.Count
	})
	if !same {
		return nil
	}
	return given
}
