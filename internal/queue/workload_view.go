package queue

import (
	"math"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// forEngineAlone is a workload as the engine sees it, without regard to the one it replaces.
func (s *Shell) forEngineAlone(wl *kueue.Workload) admission.Workload {
	family := s.familyOf(wl)
	wl = s.podResources.Apply(family.asCounted(wl))
	w := workload.ForEngine(wl, s.options.Transformations)
	if w.Admission == nil && !w.Finished {
		w.Refused = s.podResources.Refusal(wl)
	}
	if w.Admission == nil && w.Unready == "" && workload.TellsOfOther(wl) {
		w.Unready = "Its last run is being added to the account of its LocalQueue"
	}
	if s.gates.boost {
		w.Priority += workload.PriorityBoost(wl)
	}
	w.Gated = w.Gated && s.gates.gated
	w.NeverPreempt = workload.AsksNeverPreempt(wl) && s.objects.HonorsNeverPreempt(types.NamespacedName{Namespace: wl.Namespace, Name: w.LocalQueue})
	s.setExtra(&w, wl)
	w.AdvanceReservation = s.reservations.jobs.Of(wl)
	s.countDevices(&w, wl)
	w.ExpectedRunTime = s.expectedRunTime(&w)
	s.awaits(&w, wl)
	implied := s.impliedTopologies[s.objects.ClusterQueueOf(wl)]
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
		if !s.gates.preferences {
			set.Preferences = nil
		}
		implied.Apply(set)
	}
	s.refuseElasticTopology(&w, wl)
	s.limit(&w, wl, family)
	return w
}

// setExtra says of pods that an elastic job has beyond its least whether they may be there. They have the lowest priority,
// whatever their object says.
func (s *Shell) setExtra(w *admission.Workload, wl *kueue.Workload) {
	if w.Extra = workload.IsExtra(wl); !w.Extra {
		return
	}
	w.Priority, w.NeverPreempt = math.MinInt32, false
	after, refusal := s.objects.Growth(types.NamespacedName{Namespace: wl.Namespace, Name: w.LocalQueue})
	switch {
	case refusal != "":
		w.Refused = refusal
	case w.Admission == nil && (!w.EvictedAt.IsZero() || workload.IsOfPod(wl)):
		since := w.EvictedAt
		if since.IsZero() { // the pod may be in the place of one that was evicted: nothing is left of that
			since = w.Created
		}
		if from := since.Add(after); from.After(w.RequeueAt) {
			w.RequeueAt = from
		}
	}
}

// forEngine is a workload as the engine sees it, less what it replaces.
func (s *Shell) forEngine(wl *kueue.Workload) admission.Workload {
	w := s.forEngineAlone(wl)
	if old := s.replacedSlice(wl); old != nil {
		workload.SubtractReplaced(&w, old)
		return w // its pods use the claims of the replaced one's
	}
	s.countGPUClaims(&w, wl)
	return w
}

// applyWorkload applies a workload to the engine, and those whose usage depends on it: the one that
// replaces it, and the users of the same claims.
func (s *Shell) applyWorkload(wl *kueue.Workload) {
	s.tellEngine(wl)
	s.followPods(wl)
	s.updateReplacement(workload.KeyOf(wl))
	s.reapplyFamily(wl)
	if old := s.workloads[workload.Replaces(wl)]; old != nil {
		s.scheduleStep(old) // it is finished once wl is admitted
	}
	for _, claim := range gpuClaimKeys(wl) {
		s.reapplyUsers(claim, workload.KeyOf(wl))
	}
}

// willBeNominated says that a pending workload waits for others to leave, and its object does not say so yet. It must not
// lose what they leave because a write is late.
func (s *Shell) willBeNominated(wl *kueue.Workload) bool {
	t := s.workloads[workload.KeyOf(wl)]
	if t == nil || workload.HasReservation(wl) {
		return false
	}
	reported := t.lostReason
	switch {
	case t.next != nil && t.next.pending != nil:
		reported = t.next.pending
	case reported == nil && t.writing != nil:
		reported = t.writing.pending
	}
	return reported != nil && reported.Reason == admission.ReasonWaitingForPreemptedWorkloads
}

// tellEngine shows the engine a workload as it is, unless it is set aside.
func (s *Shell) tellEngine(wl *kueue.Workload) {
	if !s.isAside(wl) {
		w := s.forEngine(wl)
		w.Nominated = w.Nominated || s.willBeNominated(wl)
		s.engine.Apply(admission.WorkloadChanged{Workload: w})
		if !s.isVariant(wl) {
			s.learn(wl, &w)
		}
		s.statuses.ObjectChanged(wl) // its usage there is the engine's, which may know it later than we
	}
}
