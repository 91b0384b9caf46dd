package queue

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// An admission check can bring the nodes: cluster-autoscaler makes them, or another cluster has them.
// On flavors with such a check quota is reserved without a look at nodes; pods are placed in a second
// pass, when all checks are ready.

// awaitsNodes says that the nodes for a pod set of a workload with quota are in another cluster, or
// not there yet.
func (s *Shell) awaitsNodes(wl *kueue.Workload, flavors map[string]string) bool {
	cq := s.objects.ClusterQueues[string(wl.Status.Admission.ClusterQueue)]
	if s.objects.RunsRemotely(cq) {
		return true
	}
	return !workload.IsAdmitted(wl) && !workload.ChecksReady(wl) && usesAny(s.objects.DelayedFlavors(cq), flavors)
}

func usesAny(names []string, flavors map[string]string) bool {
	for _, flavor := range flavors {
		if slices.Contains(names, flavor) {
			return true
		}
	}
	return false
}

// delayedPodSets are the pod sets of an admission whose topology assignment is found in the second
// pass, or by the cluster that runs them.
func (s *Shell) delayedPodSets(wl *kueue.Workload) []kueue.PodSetReference {
	cq := s.objects.ClusterQueues[string(wl.Status.Admission.ClusterQueue)]
	delayed, elsewhere := s.objects.DelayedFlavors(cq), s.objects.RunsRemotely(cq)
	if len(delayed) == 0 && !elsewhere || s.options.Placer == nil || !s.gates.topology {
		return nil
	}
	var names []kueue.PodSetReference
	w := s.forEngineAlone(wl)
	for _, assigned := range w.Admission.PodSets {
		i := slices.IndexFunc(w.PodSets, func(set admission.PodSet) bool { return set.Name == assigned.Name })
		if i >= 0 && w.PodSets[i].Topology != nil && (elsewhere || usesAny(delayed, assigned.Flavors)) && s.hasTopology(assigned.Flavors) {
			names = append(names, kueue.PodSetReference(assigned.Name))
		}
	}
	return names
}

// hasTopology says that one of the flavors has a topology.
func (s *Shell) hasTopology(flavors map[string]string) bool {
	for _, name := range flavors {
		if flavor := s.objects.Flavors[name]; flavor != nil && flavor.Spec.TopologyName != nil {
			return true
		}
	}
	return false
}

// secondPass is a workload whose checks are ready, and why its pods cannot be placed yet.
type secondPass struct {
	*tracked
	reason   string
	reports  int       // how often that was reported
	reportAt time.Time // when it will be again
}

// mostBetweenReports is the longest time after which it is reported again that pods cannot be placed; at first it is a
// second, and then twice as long each time, as in Kueue.
const mostBetweenReports = 30 * time.Second

// report says in an event, when it is time to, that the pods of a workload cannot be placed yet.
func (s *Shell) report(waiting *secondPass, now time.Time) {
	if !waiting.reportAt.IsZero() && !now.Before(waiting.reportAt) {
		waiting.reports++
		s.recordEvent(waiting.object, corev1.EventTypeWarning, "SecondPassFailed", "%s", waiting.reason)
		waiting.reportAt = time.Time{}
	}
	if waiting.reportAt.IsZero() {
		waiting.reportAt = now.Add(min(time.Second<<min(waiting.reports, 10), mostBetweenReports))
	}
	s.timers.set(workload.KeyOf(waiting.object), waiting.reportAt)
}

// runSecondPass places the pods of a workload whose checks are ready, and admits it. If its nodes
// lack capacity, as while they start, it is tried again with every change of nodes.
func (s *Shell) runSecondPass(t *tracked) {
	key := workload.KeyOf(t.object)
	var assignments map[string]*kueue.TopologyAssignment
	if s.options.Placer != nil {
		placed, refusal := s.placeAll(t)
		if refusal != nil {
			waiting := s.secondPass[key]
			waiting.tracked, waiting.reason = t, refusal.Reason.Error()
			s.report(&waiting, s.now())
			s.secondPass[key] = waiting
			return
		}
		assignments = s.options.Placer.Assignments(placed)
	}
	delete(s.secondPass, key)
	s.startWrite(t, s.step(workload.Step{Action: workload.SecondPassNow, Assignments: assignments}))
}

// placeAll places all pods of a workload. If that fails, pods that were placed before stay where
// they are.
func (s *Shell) placeAll(t *tracked) (any, *admission.Refusal) {
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

// placeAdmitted places an admitted workload whose nodes have come, as far as they have capacity.
func (s *Shell) placeAdmitted(wl *kueue.Workload) {
	t := s.workloads[workload.KeyOf(wl)]
	if t == nil || s.options.Placer == nil || wl.Status.Admission == nil {
		return
	}
	cq := s.objects.ClusterQueues[string(wl.Status.Admission.ClusterQueue)]
	if len(s.objects.DelayedFlavors(cq)) == 0 || s.objects.RunsRemotely(cq) {
		return
	}
	if _, refusal := s.placeAll(t); refusal != nil {
		s.unplaced = append(s.unplaced, t)
	}
}
