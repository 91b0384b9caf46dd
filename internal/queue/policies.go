package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	visibility "github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// policies is what the loop notes of QueuePolicies.
type policies struct {
	changed  bool            // a policy changed, or the tree of queues that they are about
	reported bool            // all statuses are as they should be, or on their way
	writing  map[string]bool // policies whose status is being written
	retryAt  time.Time       // after a write that failed
	// undescribed are Cohorts without an object that the engine was told of for a policy's sake.
	undescribed map[string]bool
	estimates   bool // some policy says how long workloads are taken to run
}

// policyRetry is how long to wait after a status that could not be written.
const policyRetry = time.Second

// applyPolicies tells the engine what policies say of the queues, if that may have changed. Queues for which it has not
// cost the engine nothing.
func (s *Shell) applyPolicies() {
	if !s.policies.changed {
		return
	}
	s.policies.changed, s.policies.reported = false, false
	s.objects.ResolvePolicies()
	described := map[string]bool{}
	for _, cohort := range s.objects.UndescribedCohorts() {
		described[cohort.Name] = true
		s.engine.Apply(admission.CohortChanged{Cohort: cohort})
	}
	for name := range s.policies.undescribed {
		if !described[name] && s.objects.Cohorts[name] == nil {
			s.engine.Apply(admission.CohortGone{Name: name})
		}
	}
	s.policies.undescribed = described
	for _, cohort := range s.objects.Cohorts {
		s.applyObject(cohort, false)
	}
	s.applyQueues()
	for _, lq := range s.objects.LocalQueues {
		s.applyObject(lq, false)
	}
	s.resolveBudgets()
	s.resolveReservations()
	s.estimatesChanged()
	s.recheckDependencies()
	for _, t := range s.workloads {
		if workload.AsksNeverPreempt(t.object) || workload.IsExtra(t.object) {
			s.tellEngine(t.object)
		}
	}
}

// publishPolicies hands over the statuses of policies that are no longer true, and returns when to call it again;
// zero: after the next event.
func (s *Shell) publishPolicies(now time.Time) time.Time {
	if s.policies.reported {
		return time.Time{}
	}
	if now.Before(s.policies.retryAt) {
		return s.policies.retryAt
	}
	s.policies.reported = true
	for name, p := range s.objects.Policies {
		if s.policies.writing[name] {
			continue // looked at again when the write ends
		}
		next := p.DeepCopy()
		targets, accepted := s.objects.PolicyStatus(p)
		accepted.LastTransitionTime = metav1.NewTime(now)
		apimeta.SetStatusCondition(&next.Status.Conditions, accepted)
		if spent := s.budgetCondition(p); spent != nil {
			spent.LastTransitionTime = metav1.NewTime(now)
			apimeta.SetStatusCondition(&next.Status.Conditions, *spent)
		} else {
			apimeta.RemoveStatusCondition(&next.Status.Conditions, v1alpha1.BudgetsNearlySpent)
		}
		s.setReservationCondition(p, &next.Status, now)
		if next.Status.Targets = targets; equality.Semantic.DeepEqual(p.Status, next.Status) {
			continue
		}
		if s.policies.writing == nil {
			s.policies.writing = map[string]bool{}
		}
		s.policies.writing[name] = true
		s.statusWrites.submit(next)
	}
	return time.Time{}
}

// policyWritten takes in how the write of a policy's status ended.
func (s *Shell) policyWritten(p *v1alpha1.QueuePolicy, err error) {
	delete(s.policies.writing, p.Name)
	s.policies.reported = false
	if err != nil {
		s.policies.retryAt = s.now().Add(policyRetry)
		return
	}
	if known := s.objects.Policies[p.Name]; known != nil && known.UID == p.UID {
		now := *known // its metadata and spec may be newer than what was written
		now.Status = p.Status
		s.objects.Policies[p.Name] = &now
	}
}

// policiesOf is what policies say of a workload's queue.
func (s *Shell) policiesOf(wl *kueue.Workload) []visibility.PolicyValue {
	var list []visibility.PolicyValue
	for _, v := range s.objects.InForce(types.NamespacedName{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}) {
		list = append(list, visibility.PolicyValue(v))
	}
	return list
}
