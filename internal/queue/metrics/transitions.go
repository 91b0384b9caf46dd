package metrics

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// WorkloadChanged counts what became of a workload between two versions of it, whoever wrote the
// newer one. What a new leader finds was counted by the one before.
func (m *Metrics) WorkloadChanged(objects *engineview.Objects, was, is *kueue.Workload, now time.Time) {
	admitted := is
	if is.Status.Admission == nil {
		admitted = was
	}
	class := ""
	if ref := is.Spec.PriorityClassRef; ref != nil {
		class = ref.Name
	}
	if admitted.Status.Admission == nil { // it has no quota in any queue
		if _, became := becameTrue(was, is, kueue.WorkloadFinished); became {
			m.count("finished_workloads_total", m.queueLabels(objects, is), class)
		}
		return
	}
	if objects.ClusterQueues[string(admitted.Status.Admission.ClusterQueue)] == nil {
		return // its series went with the queue, and would not go away again
	}
	q := m.queueLabels(objects, admitted)
	queued := QueuedSince(was)
	if at, became := becameTrue(was, is, kueue.WorkloadQuotaReserved); became {
		m.count("quota_reserved_workloads_total", q, class)
		m.observe("quota_reserved_wait_time_seconds", q, at.Sub(queued), class)
	}
	if at, became := becameTrue(was, is, kueue.WorkloadAdmitted); became {
		m.count("admitted_workloads_total", q, class)
		m.observe("admission_wait_time_seconds", q, at.Sub(queued), class)
		if reserved := apimeta.FindStatusCondition(is.Status.Conditions, kueue.WorkloadQuotaReserved); len(is.Status.AdmissionChecks) > 0 && reserved != nil {
			m.observe("admission_checks_wait_time_seconds", q, at.Sub(reserved.LastTransitionTime.Time), class)
		}
		if m.options.Cohorts {
			for _, cohort := range objects.CohortsAbove(q.clusterQueue) {
				m.Inc("kueue_cohort_subtree_admitted_workloads_total", cohort, class)
				delete(m.uncounted, cohort)
			}
		}
	}
	if at, became := becameTrue(was, is, kueue.WorkloadPodsReady); became {
		m.observe("ready_wait_time_seconds", q, at.Sub(queued), class)
		if admitted := apimeta.FindStatusCondition(is.Status.Conditions, kueue.WorkloadAdmitted); admitted != nil {
			m.observe("admitted_until_ready_wait_time_seconds", q, at.Sub(admitted.LastTransitionTime.Time), class)
		}
	}
	m.evicted(was, is, q, class, now)
	if _, became := becameTrue(was, is, kueue.WorkloadFinished); became {
		m.count("finished_workloads_total", q, class)
		if apimeta.FindStatusCondition(is.Status.Conditions, kueue.WorkloadFinished).Reason == kueue.WorkloadSliceReplaced {
			m.count("replaced_workload_slices_total", q)
		}
	}
}

// evicted counts evictions by the workload's own statistics, which have the reasons, and observes
// how long it took to release the quota.
func (m *Metrics) evicted(was, is *kueue.Workload, q queueLabels, class string, now time.Time) {
	for _, eviction := range evictions(is) {
		before := int32(0)
		for _, old := range evictions(was) {
			if old.Reason == eviction.Reason && old.UnderlyingCause == eviction.UnderlyingCause {
				before = old.Count
			}
		}
		cause := string(eviction.UnderlyingCause)
		if before == 0 && eviction.Count > 0 {
			m.count("evicted_workloads_once_total", q, eviction.Reason, cause, class)
		}
		for range eviction.Count - before {
			m.count("evicted_workloads_total", q, eviction.Reason, cause, class)
			ready := apimeta.FindStatusCondition(was.Status.Conditions, kueue.WorkloadPodsReady)
			if ready != nil && ready.Status == metav1.ConditionTrue {
				m.observe("pods_ready_to_evicted_time_seconds", q, now.Sub(ready.LastTransitionTime.Time), eviction.Reason, cause)
			}
		}
	}
	if evicted := apimeta.FindStatusCondition(is.Status.Conditions, kueue.WorkloadEvicted); evicted != nil &&
		evicted.Status == metav1.ConditionTrue && workload.HasReservation(was) && !workload.HasReservation(is) {
		m.observe("workload_eviction_latency_seconds", q, now.Sub(evicted.LastTransitionTime.Time), evicted.Reason)
	}
}

func evictions(wl *kueue.Workload) []kueue.WorkloadSchedulingStatsEviction {
	if wl.Status.SchedulingStats == nil {
		return nil
	}
	return wl.Status.SchedulingStats.Evictions
}

// Preempted counts a preemption by the queue of the preemptor.
func (m *Metrics) Preempted(objects *engineview.Objects, preemptor *kueue.Workload, rule string) {
	if name := objects.ClusterQueueOf(preemptor); objects.ClusterQueues[name] != nil {
		m.Inc("kueue_preempted_workloads_total", name, rule)
	}
}

// becameTrue says that a condition became true, and when.
func becameTrue(was, is *kueue.Workload, condition string) (time.Time, bool) {
	now := apimeta.FindStatusCondition(is.Status.Conditions, condition)
	if now == nil || now.Status != metav1.ConditionTrue || apimeta.IsStatusConditionTrue(was.Status.Conditions, condition) {
		return time.Time{}, false
	}
	return now.LastTransitionTime.Time, true
}

// QueuedSince is when a workload was created or last requeued.
func QueuedSince(wl *kueue.Workload) time.Time {
	since := wl.CreationTimestamp.Time
	for _, name := range []string{kueue.WorkloadEvicted, kueue.WorkloadRequeued} {
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, name); c != nil && c.Status == metav1.ConditionTrue {
			since = later(since, c.LastTransitionTime.Time)
		}
	}
	return since
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// queueLabels are those of a workload; without quota it is in no ClusterQueue.
func (m *Metrics) queueLabels(objects *engineview.Objects, wl *kueue.Workload) queueLabels {
	q := queueLabels{localQueue: client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}}
	if given := wl.Status.Admission; given != nil {
		q.clusterQueue = string(given.ClusterQueue)
	}
	q.local = m.hasMetrics(objects.LocalQueues[q.localQueue])
	return q
}

func (m *Metrics) hasMetrics(lq *kueue.LocalQueue) bool {
	return lq != nil && m.options.LocalQueue != nil && m.options.LocalQueue(lq)
}
