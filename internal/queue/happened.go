package queue

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// happened counts what became of a workload between two looks at it, whoever
// wrote it down. What a new leader finds has been counted by the one before.
func (s *Shell) happened(was, is *kueue.Workload) {
	m := s.options.Metrics
	holder := is
	if is.Status.Admission == nil {
		holder = was
	}
	if holder.Status.Admission == nil {
		return // it never had anything to do with a queue
	}
	w := s.who(holder)
	class := ""
	if ref := is.Spec.PriorityClassRef; ref != nil {
		class = ref.Name
	}
	queued := queuedSince(was)
	if at, became := turned(was, is, kueue.WorkloadQuotaReserved); became {
		m.count("quota_reserved_workloads_total", w, class)
		m.observe("quota_reserved_wait_time_seconds", w, at.Sub(queued), class)
	}
	if at, became := turned(was, is, kueue.WorkloadAdmitted); became {
		m.count("admitted_workloads_total", w, class)
		m.observe("admission_wait_time_seconds", w, at.Sub(queued), class)
		if reserved := apimeta.FindStatusCondition(is.Status.Conditions, kueue.WorkloadQuotaReserved); len(is.Status.AdmissionChecks) > 0 && reserved != nil {
			m.observe("admission_checks_wait_time_seconds", w, at.Sub(reserved.LastTransitionTime.Time), class)
		}
		if m.options.Cohorts {
			for _, cohort := range s.cohortsAbove(w.clusterQueue) {
				m.inc("kueue_cohort_subtree_admitted_workloads_total", cohort, class)
			}
		}
	}
	if at, became := turned(was, is, kueue.WorkloadPodsReady); became {
		m.observe("ready_wait_time_seconds", w, at.Sub(queued), class)
		if admitted := apimeta.FindStatusCondition(is.Status.Conditions, kueue.WorkloadAdmitted); admitted != nil {
			m.observe("admitted_until_ready_wait_time_seconds", w, at.Sub(admitted.LastTransitionTime.Time), class)
		}
	}
	s.evicted(was, is, w, class)
	if _, became := turned(was, is, kueue.WorkloadFinished); became {
		m.count("finished_workloads_total", w, class)
		if apimeta.FindStatusCondition(is.Status.Conditions, kueue.WorkloadFinished).Reason == kueue.WorkloadSliceReplaced {
			m.count("replaced_workload_slices_total", w)
		}
	}
}

// evicted counts evictions by the workload's own statistics, which know the
// reasons, and how long it took to let go.
func (s *Shell) evicted(was, is *kueue.Workload, w who, class string) {
	m := s.options.Metrics
	for _, eviction := range evictions(is) {
		before := int32(0)
		for _, old := range evictions(was) {
			if old.Reason == eviction.Reason && old.UnderlyingCause == eviction.UnderlyingCause {
				before = old.Count
			}
		}
		cause := string(eviction.UnderlyingCause)
		if before == 0 && eviction.Count > 0 {
			m.count("evicted_workloads_once_total", w, eviction.Reason, cause, class)
		}
		for range eviction.Count - before {
			m.count("evicted_workloads_total", w, eviction.Reason, cause, class)
			ready := apimeta.FindStatusCondition(was.Status.Conditions, kueue.WorkloadPodsReady)
			if ready != nil && ready.Status == metav1.ConditionTrue {
				m.observe("pods_ready_to_evicted_time_seconds", w, s.now().Sub(ready.LastTransitionTime.Time), eviction.Reason, cause)
			}
		}
	}
	if evicted := apimeta.FindStatusCondition(is.Status.Conditions, kueue.WorkloadEvicted); evicted != nil &&
		evicted.Status == metav1.ConditionTrue && workload.HasReservation(was) && !workload.HasReservation(is) {
		m.observe("workload_eviction_latency_seconds", w, s.now().Sub(evicted.LastTransitionTime.Time), evicted.Reason)
	}
}

func evictions(wl *kueue.Workload) []kueue.WorkloadSchedulingStatsEviction {
	if wl.Status.SchedulingStats == nil {
		return nil
	}
	return wl.Status.SchedulingStats.Evictions
}

// preempted counts by the queue that took the place.
func (s *Shell) preempted(e admission.Evict) {
	if t := s.workloads[e.Preemptor]; t != nil {
		key := client.ObjectKey{Namespace: e.Preemptor.Namespace, Name: string(t.object.Spec.QueueName)}
		if lq := s.statuses.localQueues[key]; lq != nil {
			s.options.Metrics.inc("kueue_preempted_workloads_total", string(lq.Spec.ClusterQueue), string(e.Preempted))
		}
	}
}

// turned says that a condition became true, and when.
func turned(was, is *kueue.Workload, condition string) (time.Time, bool) {
	now := apimeta.FindStatusCondition(is.Status.Conditions, condition)
	if now == nil || now.Status != metav1.ConditionTrue || apimeta.IsStatusConditionTrue(was.Status.Conditions, condition) {
		return time.Time{}, false
	}
	return now.LastTransitionTime.Time, true
}

// queuedSince is when a workload last came into line.
func queuedSince(wl *kueue.Workload) time.Time {
	since := wl.CreationTimestamp.Time
	for _, name := range []string{kueue.WorkloadEvicted, kueue.WorkloadRequeued} {
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, name); c != nil && c.Status == metav1.ConditionTrue {
			since = later(since, c.LastTransitionTime.Time)
		}
	}
	return since
}

// who a workload with quota belongs to.
func (s *Shell) who(wl *kueue.Workload) who {
	w := who{
		clusterQueue: string(wl.Status.Admission.ClusterQueue),
		localQueue:   client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)},
	}
	w.local = s.hasMetrics(s.statuses.localQueues[w.localQueue])
	return w
}

func (s *Shell) hasMetrics(lq *kueue.LocalQueue) bool {
	return lq != nil && s.options.Metrics.options.LocalQueue != nil && s.options.Metrics.options.LocalQueue(lq)
}

// cohortsAbove a ClusterQueue, the nearest first. A ring ends where it began.
func (s *Shell) cohortsAbove(clusterQueue string) []string {
	cq := s.statuses.clusterQueues[clusterQueue]
	if cq == nil {
		return nil
	}
	return s.cohortsOf(string(cq.Spec.CohortName))
}

// cohortsOf is a cohort and those above it.
func (s *Shell) cohortsOf(name string) []string {
	var above []string
	seen := map[string]bool{}
	for name != "" && !seen[name] {
		seen[name] = true
		above = append(above, name)
		next := ""
		if cohort := s.statuses.cohorts[name]; cohort != nil {
			next = string(cohort.Spec.ParentName)
		}
		name = next
	}
	return above
}
