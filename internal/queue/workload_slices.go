package queue

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A job that grows while it runs has two workloads: the one it runs under and
// one in its new size, which is to take its place. While the first holds its
// quota the second counts with what it needs beyond that, so that nothing is
// counted twice; when the first ends the second counts in full, in one step.

// replaced is the workload whose place wl is to take, if that holds quota.
func (s *Shell) replacedSlice(wl *kueue.Workload) *kueue.Workload {
	if old := s.workloads[workload.Replaces(wl)]; old != nil && workload.UsesQuota(old.object) {
		return old.object
	}
	return nil
}

// alone is a workload in the engine's words, for itself.
func (s *Shell) forEngineAlone(wl *kueue.Workload) admission.Workload {
	w := workload.ForEngine(wl, s.options.Transformations)
	if s.gates.boost {
		w.Priority += workload.PriorityBoost(wl)
	}
	w.Gated = w.Gated && s.gates.gated
	s.countDevices(&w, wl)
	flat := s.impliedTopologies[s.objects.ClusterQueueOf(wl)]
	for i := range w.PodSets {
		set := &w.PodSets[i]
		if !s.gates.partial {
			set.MinCount = 0
		}
		if !s.gates.reclaim {
			set.Reclaimable = 0
		}
		if !s.gates.topology {
			set.Topology = nil
		}
		flat.Apply(set)
	}
	return w
}

// forEngine is a workload in the engine's words, beside what it replaces.
func (s *Shell) forEngine(wl *kueue.Workload) admission.Workload {
	w := s.forEngineAlone(wl)
	if old := s.replacedSlice(wl); old != nil {
		workload.SubtractReplaced(&w, old)
		return w // the claims of its pods are those of the first
	}
	s.countGPUClaims(&w, wl)
	return w
}

// tellWorkload tells the engine what a workload is now, and what that makes of the one
// that is to take its place.
func (s *Shell) applyWorkload(wl *kueue.Workload) {
	s.engine.Apply(admission.WorkloadChanged{Workload: s.forEngine(wl)})
	s.followPods(wl)
	s.updateReplacement(workload.KeyOf(wl))
	for _, claim := range gpuClaimKeys(wl) {
		s.reapplyUsers(claim, workload.KeyOf(wl))
	}
}

// passOn looks again at the workload that is to take another's place.
func (s *Shell) updateReplacement(old admission.Key) {
	t := s.workloads[s.replacements[old]]
	if t == nil {
		return
	}
	s.updateUsage(t)
	if t.writing == nil { // else the end of the write does it
		s.engine.Apply(admission.WorkloadChanged{Workload: s.forEngine(t.object)})
		s.followPods(t.object)
	}
}

// follow tells the placer whose pods a workload has taken over.
func (s *Shell) followPods(wl *kueue.Workload) {
	if s.options.Placer != nil && workload.UsesQuota(wl) && s.replacedSlice(wl) == nil && workload.PodsNamedAfter(wl) != workload.KeyOf(wl) {
		s.options.Placer.Follow(workload.PodsNamedAfter(wl), workload.KeyOf(wl))
	}
}

// book brings the ledger up to date with what a workload holds.
func (s *Shell) updateUsage(t *tracked) {
	is := t.object
	if old := s.replacedSlice(is); old != nil && workload.UsesQuota(is) {
		w := s.forEngineAlone(is)
		workload.SubtractReplaced(&w, old)
		is = is.DeepCopy()
		is.Status.Admission = workload.ForStatus(w.Admission)
	}
	s.statuses.Usage().Move(t.counted, is)
	t.counted = is
}

// whole is the admission to write for one that the engine gave. It is nil where
// the workload whose place is taken has let go since: that has to be decided anew.
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
