package queue

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	corev1 "k8s.io/api/core/v1"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/metrics"
	"github.com/elastic-ai/elastic/internal/queue/placer"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// ErrNotLeading is the answer of a replica that is not the leader.
var ErrNotLeading = errors.New("this replica of elastic-queue does not lead")

// ErrUnknown is the answer about a workload or queue that the loop does not know.
var ErrUnknown = errors.New("the queue does not know this workload")

// ask has the loop answer a question, as only the loop may use the engine.
func (s *Shell) ask(ctx context.Context, question func()) error {
	if !s.leading.Load() {
		return ErrNotLeading
	}
	answered := make(chan struct{})
	s.inbox.Put(message{question: func() {
		defer close(answered)
		question()
	}})
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Explain says where a workload stands, and why.
func (s *Shell) Explain(ctx context.Context, key admission.Key) (v1alpha1.WorkloadStanding, error) {
	var standing v1alpha1.WorkloadStanding
	known := false
	s.options.Metrics.Inc("elastic_explanations_total", "why")
	err := s.ask(ctx, func() {
		t := s.workloads[key]
		if t == nil {
			return
		}
		known = true
		x := s.engine.Explain(s.explainedAs(t.object), s.now())
		standing = s.workloadStanding(&x)
		standing.LocalQueue = string(t.object.Spec.QueueName)
		standing.Devices = s.devicesOf(t.object)
		standing.Policies = s.policiesOf(t.object)
		s.explainQuota(&standing)
		standing.Cost = withInputProblem(standing.Cost, t.object)
		s.addStatus(&standing, t.object)
	})
	if err == nil && !known {
		err = ErrUnknown
	}
	return standing, err
}

// Plan says what would become of a workload that does not exist.
func (s *Shell) Plan(ctx context.Context, wl *kueue.Workload) (v1alpha1.PlanStatus, error) {
	var status v1alpha1.PlanStatus
	s.options.Metrics.Inc("elastic_explanations_total", "plan")
	err := s.ask(ctx, func() {
		now := s.now()
		x := s.engine.Consider(s.forEngine(wl), now)
		status.WorkloadStanding = s.workloadStanding(&x)
		status.LocalQueue = string(wl.Spec.QueueName)
		status.Devices = s.devicesOf(wl)
		status.Policies = s.policiesOf(wl)
		s.explainQuota(&status.WorkloadStanding)
		status.Cost = withInputProblem(status.Cost, wl)
		status.StartsNow = x.Would != nil && x.StartsAt.Equal(now)
	})
	return status, err
}

// withInputProblem adds to what is said of a workload's cost that what it says of its input does not count.
func withInputProblem(cost string, wl *kueue.Workload) string {
	_, err := workload.InputOf(wl.Annotations)
	switch {
	case err == nil:
		return cost
	case cost != "":
		cost += "; "
	}
	return cost + "its input does not count: " + err.Error()
}

// workloadStanding is an explanation in the API's types.
func (s *Shell) workloadStanding(x *admission.Explanation) v1alpha1.WorkloadStanding {
	out := v1alpha1.WorkloadStanding{
		State: string(x.State), Reason: string(x.Reason), Message: x.Message,
		ClusterQueue: x.Queue, Position: x.Position, Order: x.Order, Backfill: x.Backfill, Shares: x.Shares, Moves: x.Moves, Cost: x.Cost,
		Suggestions: x.Suggestions,
	}
	if x.ExpectedCost != nil {
		out.ExpectedCost = strconv.FormatFloat(*x.ExpectedCost, 'f', 2, 64)
	}
	for _, key := range x.Ahead {
		out.Ahead = append(out.Ahead, s.workloadRef(admission.Blocker{Workload: key, Queue: x.Queue}))
	}
	for _, m := range x.Missing {
		missing := v1alpha1.Missing{PodSet: m.PodSet, Resource: m.Resource, Flavor: m.Flavor, Reason: string(m.Reason)}
		if m.Resource != "" && m.Amount != 0 {
			q := s.options.quantity(corev1.ResourceName(m.Resource), m.Amount)
			missing.Amount = q.String()
		}
		if m.AtCohort {
			missing.Cohort = m.At
		} else {
			missing.ClusterQueue = m.At
		}
		out.Missing = append(out.Missing, missing)
	}
	for _, b := range x.Blockers {
		out.HeldBy = append(out.HeldBy, s.workloadRef(b))
	}
	for _, v := range x.PreemptionTargets {
		out.PreemptionTargets = append(out.PreemptionTargets, s.workloadRef(v))
	}
	if !x.StartsAt.IsZero() {
		at := metav1.NewTime(x.StartsAt.UTC().Truncate(time.Second))
		out.StartsAt = &at
	}
	if x.Would != nil {
		out.PodSets = podSets(x.Would)
	}
	return out
}

// workloadRef names another workload, and its job.
func (s *Shell) workloadRef(b admission.Blocker) v1alpha1.WorkloadRef {
	out := v1alpha1.WorkloadRef{
		Namespace: b.Workload.Namespace, Name: b.Workload.Name, ClusterQueue: b.Queue, Priority: b.Priority, Rule: string(b.Rule),
	}
	if t := s.workloads[b.Workload]; t != nil {
		if t.object.Spec.Priority != nil {
			out.Priority = int64(*t.object.Spec.Priority)
		}
		if at := workload.CheckpointedAt(t.object); b.Rule != "" && !at.IsZero() {
			out.CheckpointedAt = &metav1.Time{Time: at}
		}
		for _, owner := range t.object.OwnerReferences {
			out.Job = strings.ToLower(owner.Kind) + "/" + owner.Name
			break
		}
	}
	return out
}

func podSets(a *admission.Admission) []v1alpha1.PodSet {
	placements := placer.NodePlacements(a.Placement)
	var out []v1alpha1.PodSet
	for _, assigned := range a.PodSets {
		set := v1alpha1.PodSet{Name: assigned.Name, Count: assigned.Count, Flavors: assigned.Flavors}
		for _, p := range placements {
			if p.PodSet == assigned.Name {
				set.Nodes = append(set.Nodes, v1alpha1.Node{Name: p.Node, Pods: p.Pods, Cards: p.Cards})
			}
		}
		out = append(out, set)
	}
	return out
}

// addStatus adds what the workload's status says: its admission and its checks.
func (s *Shell) addStatus(out *v1alpha1.WorkloadStanding, wl *kueue.Workload) {
	if a := wl.Status.Admission; a != nil {
		out.ClusterQueue = string(a.ClusterQueue)
		out.PodSets = nil
		for _, assigned := range a.PodSetAssignments {
			set := v1alpha1.PodSet{Name: string(assigned.Name), Flavors: map[string]string{}}
			if assigned.Count != nil {
				set.Count = *assigned.Count
			}
			for resource, flavor := range assigned.Flavors {
				set.Flavors[string(resource)] = string(flavor)
			}
			out.PodSets = append(out.PodSets, set)
		}
	}
	for _, check := range wl.Status.AdmissionChecks {
		out.Checks = append(out.Checks, v1alpha1.Check{Name: string(check.Name), State: string(check.State), Message: check.Message})
	}
	if waiting, found := s.secondPass[workload.KeyOf(wl)]; found {
		out.Reason, out.Message = kueue.WorkloadAdmittedReasonPendingDelayedTopologyRequests, waiting.reason
	}
	switch {
	case workload.WasStoppedByPreemption(wl) && !workload.HasReservation(wl):
		out.Message = "It was preempted, and asked not to be requeued then"
	case workload.IsFinished(wl):
		out.State = "Finished"
	case workload.IsAdmitted(wl) && !workload.IsEvicted(wl):
		out.State = "Admitted"
	}
}

// View is part of metrics.Source.
func (s *Shell) View(ctx context.Context, f func(metrics.View)) error {
	return s.ask(ctx, func() {
		f(metrics.View{
			Engine: s.engine, Objects: s.objects, Statuses: s.statuses, ForEngine: s.forEngine, ReasonsUnwritten: len(s.pendingReasons.unwritten), Budgets: s.budgetUses,
			Workloads: func(yield func(*kueue.Workload) bool) {
				for _, t := range s.workloads {
					if !s.isVariant(t.object) && !yield(t.object) { // its parent counts
						return
					}
				}
			},
		})
	})
}
