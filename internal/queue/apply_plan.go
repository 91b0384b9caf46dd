package queue

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// carryOut turns a plan into status writes; events and metrics follow a write that succeeded.
func (s *Shell) carryOut(plan admission.Plan) {
	for _, evict := range plan.Evict {
		s.pendingReasons.drop(evict.Workload)
		if evict.Reason != admission.ReasonDeactivated { // a step of its lifecycle
			key, uid := s.whoseTimeIsOver(evict)
			s.carryOutOne(key, uid, func() *change { return s.evict(evict) })
		}
	}
	for _, admit := range plan.Admit {
		s.pendingReasons.drop(admit.Workload)
		s.carryOutOne(admit.Workload, admit.UID, func() *change { return s.admit(admit) })
	}
	for _, pending := range plan.Pending {
		if pending.Reason == admission.ReasonWaitingForPreemptedWorkloads { // nominations must survive a restart
			s.pendingReasons.drop(pending.Workload)
			s.carryOutOne(pending.Workload, pending.UID, func() *change { return s.setPending(pending) })
			continue
		}
		s.pendingReasons.add(pending)
	}
}

// carryOutOne writes what a plan says of one workload.
func (s *Shell) carryOutOne(key admission.Key, uid string, make func() *change) {
	s.guard(stageWrite, key, func() { s.startDecision(key, uid, make()) })
}

// writePendingReasons writes why workloads wait, as far as the budget allows, and returns when to
// continue.
func (s *Shell) writePendingReasons() time.Time {
	for p, ok := s.pendingReasons.pop(); ok; p, ok = s.pendingReasons.pop() {
		s.carryOutOne(p.Workload, p.UID, func() *change { return s.setPending(p) })
	}
	return s.pendingReasons.next()
}

func (s *Shell) admit(a admission.Admit) *change {
	checks := engineview.ChecksFor(s.objects.ClusterQueues[a.Admission.Queue], func(flavor kueue.ResourceFlavorReference) bool {
		for _, set := range a.Admission.PodSets {
			for _, given := range set.Flavors {
				if given == string(flavor) {
					return true
				}
			}
		}
		return false
	})
	var assignments map[string]*kueue.TopologyAssignment
	if s.options.Placer != nil {
		assignments = s.options.Placer.Assignments(a.Admission.Placement)
	}
	return s.withinBudgets(a.Workload, &change{
		admits: true,
		apply: func(wl *kueue.Workload, now time.Time) bool {
			given := s.wholeAdmission(wl, a.Admission)
			if given == nil {
				s.engine.Apply(admission.DecisionDropped{Key: a.Workload})
				s.applyWorkload(wl)
				return false
			}
			workload.Admit(wl, given, checks, now)
			if len(s.objects.Offers) > 0 {
				workload.NotePrices(wl, s.objects.Priced, now)
			}
			if old := s.replacedSlice(wl); old != nil && old.Status.ClusterName != nil {
				wl.Status.ClusterName = old.Status.ClusterName // the cluster that runs its job
			}
			s.options.formatUsage(wl.Status.Admission)
			workload.SetTopologyAssignments(wl, s.wholeAssignments(wl, given, assignments))
			workload.DelayTopologyRequests(wl, s.delayedPodSets(wl))
			return true
		},
		done: func(wl *kueue.Workload) {
			s.reservedEvent(wl)
			if workload.IsAdmitted(wl) {
				s.admittedEvent(wl)
			}
		},
	})
}

func (s *Shell) evict(e admission.Evict) *change {
	if e.Reason == admission.ReasonMaxExecutionExceeded {
		return s.step(workload.ExecutionTimeExceeded())
	}
	message := e.Message
	if e.Reason == admission.ReasonPreempted {
		message = s.preemptionMessage(e)
	}
	return &change{
		apply: func(wl *kueue.Workload, now time.Time) bool {
			switch {
			case workload.IsEvicted(wl):
				return false // by someone else
			case s.isOutdated(e, wl):
				s.engine.Apply(admission.DecisionDropped{Key: e.Workload})
				s.applyWorkload(wl)
				return false
			case e.Reason == admission.ReasonPreempted:
				workload.Preempt(wl, string(e.Preempted), message, now)
			default:
				workload.Evict(wl, string(e.Reason), "", message, now)
			}
			return true
		},
		done: func(wl *kueue.Workload) {
			s.evictedEvent(wl, string(e.Reason), "", message)
			if e.Reason == admission.ReasonPreempted {
				s.preemptedEvents(wl, e, message)
				s.countPreemption(e)
			}
		},
	}
}

// isOutdated says that an eviction, which waited until another write of the workload had ended, is for nothing by now: the
// admission that it was to end was not written, or the one that it is for has quota, or gets none even so.
func (s *Shell) isOutdated(e admission.Evict, wl *kueue.Workload) bool {
	if s.workloads[e.Workload].outdated {
		return false // there is a newer object, which the write will meet
	}
	return !workload.HasReservation(wl) || e.Reason == admission.ReasonPreempted && !s.engine.IsAwaited(e.Workload)
}

func (s *Shell) setPending(p admission.Pending) *change {
	return &change{
		onlyReason: true,
		pending:    &p,
		apply: func(wl *kueue.Workload, now time.Time) bool {
			if workload.HasReservation(wl) { // its pods are not gone yet
				s.workloads[p.Workload].lostReason = &p
				return false
			}
			if p.Awaits() && s.dependencies.Of(p.Workload).Waits == "" {
				return false // that has ended since
			}
			changed := workload.SetPending(wl, p, s.options.Lifecycle.GranularReasons, now)
			changed = workload.SetUncountable(wl, s.uncountable(wl, p), now) || changed
			if !changed || p.Blocked || p.Reason == admission.ReasonAdmissionGated || p.Reason == admission.ReasonDeactivated {
				return changed
			}
			workload.SetResourceRequests(wl, s.forEngineAlone(wl), s.options.quantity)
			workload.SetChecks(wl, s.queuesOf(wl).Checks, now) // rather than in a write of its own
			return true
		},
		done: func(wl *kueue.Workload) { s.pendingEvent(wl, p) },
	}
}

func (s *Shell) countPreemption(e admission.Evict) {
	if by := s.workloads[e.Preemptor]; by != nil {
		s.options.Metrics.Preempted(s.objects, by.object, string(e.Preempted))
	}
}
