package queue

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/metrics"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Events have Kueue's reasons and messages, and all are recorded. Where Options.LeaveOutEvents says so, those that the
// status shows as well, quota reserved and admitted, have a budget: each event is a write, and while the API server is
// busy decisions come first.

func (s *Shell) recordEvent(wl *kueue.Workload, kind, reason, format string, args ...any) {
	s.options.Recorder.Eventf(wl, nil, kind, reason, reason, format, args...)
}

// recordEventWithinBudget records an event if the budget, where there is one, has more than a reserve left.
func (s *Shell) recordEventWithinBudget(wl *kueue.Workload, reserve float64, reason, format string, args ...any) {
	if s.options.LeaveOutEvents && (s.events.Left < reserve || !s.events.Take()) {
		s.options.Metrics.Inc("elastic_events_left_out_total", reason)
		return
	}
	s.recordEvent(wl, corev1.EventTypeNormal, reason, format, args...)
}

// reservedEvent leaves half of the budget to others: that quota was reserved is news only while
// checks hold up the admission.
func (s *Shell) reservedEvent(wl *kueue.Workload) {
	reserve := s.events.Most / 2
	if !workload.IsAdmitted(wl) {
		reserve = 0
	}
	s.recordEventWithinBudget(wl, reserve, "QuotaReserved", "Quota reserved in ClusterQueue %s, wait time since queued was %.0fs",
		wl.Status.Admission.ClusterQueue, s.now().Sub(metrics.QueuedSince(wl)).Seconds())
}

func (s *Shell) admittedEvent(wl *kueue.Workload) {
	waited := 0.0
	if reserved := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved); len(wl.Status.AdmissionChecks) > 0 && reserved != nil {
		waited = s.now().Sub(reserved.LastTransitionTime.Time).Seconds()
	}
	s.recordEventWithinBudget(wl, 0, "Admitted", "Admitted by ClusterQueue %s, wait time since reservation was %.0fs", wl.Status.Admission.ClusterQueue, waited)
}

func (s *Shell) evictedEvent(wl *kueue.Workload, reason, cause, message string) {
	name := kueue.WorkloadEvicted + "DueTo" + reason
	if reason == kueue.WorkloadDeactivated && cause != "" {
		name += "DueTo" + cause
	}
	s.recordEvent(wl, corev1.EventTypeNormal, name, "%s", message)
}

// preemptedEvents tell both sides of a preemption about the other.
func (s *Shell) preemptedEvents(wl *kueue.Workload, e admission.Evict, message string) {
	by := s.workloads[e.Preemptor]
	if by == nil {
		return
	}
	priorities := "; preemptor " + s.priorities(by.object) + "; preemptee " + s.priorities(wl)
	s.recordEvent(wl, corev1.EventTypeNormal, kueue.WorkloadPreempted, "%s", message+priorities)
	queue := ""
	if wl.Status.Admission != nil {
		queue = string(wl.Status.Admission.ClusterQueue)
	}
	preemptor := *by.object
	preemptor.ResourceVersion = "" // all preemptions for it are one series, though its status changes meanwhile
	s.recordEvent(&preemptor, corev1.EventTypeNormal, "PreemptedWorkload", "Preempted workload %s (UID: %s) in ClusterQueue %s%s",
		workload.KeyOf(wl), wl.UID, queue, priorities)
}

func (s *Shell) priorities(wl *kueue.Workload) string {
	base, boost := int64(ptr.Deref(wl.Spec.Priority, 0)), int64(0)
	if s.gates.boost {
		boost = workload.PriorityBoost(wl)
	}
	return fmt.Sprintf("effective priority: %d (base: %d, boost: %d)", base+boost, base, boost)
}

// preemptionMessage names the preemptor's job, which the engine does not know.
func (s *Shell) preemptionMessage(e admission.Evict) string {
	job := ""
	if by := s.workloads[e.Preemptor]; by != nil {
		job = by.object.Labels[kueuelabels.JobUID]
	}
	return workload.AddJobUID(e.Message, e.PreemptorUID, job)
}

// pendingEvent tells why a workload waits.
func (s *Shell) pendingEvent(wl *kueue.Workload, p admission.Pending) {
	if string(p.Reason) == kueue.WorkloadAdmissionGated {
		s.recordEvent(wl, corev1.EventTypeNormal, kueue.WorkloadAdmissionGated, "Workload admission is gated by: %s", wl.Annotations[workload.GatedByAnnotation])
		return
	}
	kind := corev1.EventTypeWarning
	if p.Reason == admission.ReasonDependency {
		kind = corev1.EventTypeNormal // as its user wants it
	}
	s.recordEvent(wl, kind, workload.PendingReason(p, s.options.Lifecycle.GranularReasons), "%s", p.Message)
}

// stepEvent tells of a step of the lifecycle that was taken.
func (s *Shell) stepEvent(wl *kueue.Workload, step workload.Step) {
	switch step.Action {
	case workload.AdmitNow, workload.SecondPassNow:
		s.admittedEvent(wl)
	case workload.EvictNow:
		if wl.Status.Admission != nil {
			s.evictedEvent(wl, step.Reason, step.Cause, step.Message)
		}
	case workload.MarkForDeactivation:
		reason, message := step.Reason, step.Message
		switch reason {
		case kueue.WorkloadEvictedByAdmissionCheck:
			reason, message = "AdmissionCheckRejected", "Deactivated due to "+message
		case kueue.WorkloadMaximumExecutionTimeExceeded:
			message = fmt.Sprintf("The maximum execution time (%ds) exceeded", ptr.Deref(wl.Spec.MaximumExecutionTimeSeconds, 0))
		}
		s.recordEvent(wl, corev1.EventTypeWarning, reason, "%s", message)
	case workload.Activate, workload.Deactivate:
		if step.Reason != "" {
			s.recordEvent(wl, corev1.EventTypeNormal, step.Reason, "%s", step.Message)
		}
	case workload.OpenPreemptionGate:
		s.recordEvent(wl, corev1.EventTypeNormal, "PreemptionUngatedVariant", "Opened preemption gate for variant workload %q", workload.KeyOf(wl))
	case workload.FollowVariant:
		s.admittedEvent(wl)
	case workload.FinishNow:
		if step.Reason == kueue.WorkloadSliceReplaced {
			s.recordEvent(wl, corev1.EventTypeNormal, step.Reason, "%s", step.Message)
		}
	case workload.DeleteNow:
		if workload.IsFinished(wl) {
			s.recordEvent(wl, corev1.EventTypeNormal, "Deleted", "Deleted finished workload due to elapsed retention")
		}
	}
}
