package queue

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// With a delay a job of higher priority waits; once the policy is gone it preempts, as in Kueue.
func TestPolicyHoldsPreemptionUp(t *testing.T) {
	ns := preemptingQueueFor(t, "1")
	policy := sandbox.QueuePolicy(ns, sandbox.ClusterQueueTarget(ns))
	policy.Spec.Preemption = &v1alpha1.Preemption{Delay: ptr.To(v1alpha1.Duration("1h"))}
	cluster.Make(t, policy)
	accepted := cluster.WaitAccepted(t, ns, v1alpha1.ReasonAccepted)
	want := []v1alpha1.Value{{Field: "preemption.delay", Value: "1h", Policy: ns, From: "ClusterQueue/" + ns}}
	if got := accepted.Status.Targets; len(got) != 1 || got[0].Target != "ClusterQueue/"+ns || fmt.Sprint(got[0].InForce) != fmt.Sprint(want) {
		t.Errorf("targets are %+v", got)
	}
	_, low := running(t, ns, "low")
	class := &kueue.WorkloadPriorityClass{Value: 10}
	class.Name = ns
	cluster.Make(t, class)
	job := sandbox.Job(ns, "high", "main", 1, "1")
	job.Labels["kueue.x-k8s.io/priority-class"] = ns
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, job)
	high := cluster.WorkloadOf(t, job)
	waitCondition(t, high, kueue.WorkloadQuotaReserved, false)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(low), low); err != nil || workload.IsEvicted(low) {
		t.Fatalf("it was preempted before the delay had passed: %v", err)
	}
	if err := cluster.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, high, kueue.WorkloadAdmitted, true)
}

// A policy that is wrong is told so, and what is right of it counts.
func TestPolicyStatusSaysWhatIsWrong(t *testing.T) {
	ns := queueFor(t, "1")
	first := sandbox.QueuePolicy(ns+"-a", sandbox.ClusterQueueTarget(ns))
	first.Spec.Preemption = &v1alpha1.Preemption{Cooldown: ptr.To(v1alpha1.Duration("1m"))}
	cluster.Make(t, first)
	cluster.WaitAccepted(t, first.Name, v1alpha1.ReasonAccepted)
	second := sandbox.QueuePolicy(ns+"-b", sandbox.ClusterQueueTarget(ns), v1alpha1.TargetRef{Kind: v1alpha1.KindLocalQueue, Namespace: ns, Name: "main"})
	second.Spec.Preemption = &v1alpha1.Preemption{Delay: ptr.To(v1alpha1.Duration("5m"))}
	cluster.Make(t, second)
	conflicted := cluster.WaitAccepted(t, second.Name, v1alpha1.ReasonConflicted)
	if got := conflicted.Status.Targets; len(got) != 2 || got[0].Problem == "" || got[1].Problem != "" || len(got[1].InForce) != 2 {
		t.Errorf("targets are %+v", got)
	}
	if err := cluster.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	cluster.WaitAccepted(t, second.Name, v1alpha1.ReasonAccepted)
	lost := sandbox.QueuePolicy(ns+"-c", sandbox.ClusterQueueTarget(ns+"-nowhere"))
	lost.Spec.Preemption = second.Spec.Preemption
	cluster.Make(t, lost)
	cluster.WaitAccepted(t, lost.Name, v1alpha1.ReasonTargetNotFound)
}

// capacity on the root Cohort: its queues have fair shares, and without the policy none.
func TestPolicyOnTheRootSharesTheTreeOut(t *testing.T) {
	ns := queueFor(t, "1")
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	cluster.Change(t, cq, func() { cq.Spec.CohortName = kueue.CohortReference(ns) })
	policy := sandbox.QueuePolicy(ns, v1alpha1.TargetRef{Kind: v1alpha1.KindCohort, Name: ns})
	policy.Spec.Capacity = v1alpha1.CapacityDRF
	cluster.Make(t, policy)
	shares := func(want bool) {
		t.Helper()
		sandbox.Eventually(t, fmt.Sprintf("the queue has a fair share: %v", want), func(ctx context.Context) error {
			if err := cluster.Get(ctx, client.ObjectKey{Name: ns}, cq); err != nil {
				return err
			}
			if has := cq.Status.FairSharing != nil; has != want {
				return fmt.Errorf("it is %v", has)
			}
			return nil
		})
	}
	shares(true)
	if err := cluster.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	shares(false)
}

// What contradicts itself is refused when it is written.
func TestPolicyIsRefused(t *testing.T) {
	minute := &v1alpha1.Preemption{Delay: ptr.To(v1alpha1.Duration("1m"))}
	local := v1alpha1.TargetRef{Kind: v1alpha1.KindLocalQueue, Namespace: "a", Name: "b"}
	queue := v1alpha1.TargetRef{Kind: v1alpha1.KindClusterQueue, Name: "b"}
	for want, spec := range map[string]v1alpha1.QueuePolicySpec{
		"sets nothing":                        {TargetRefs: []v1alpha1.TargetRef{local}},
		"spec.targetRefs":                     {Preemption: minute},
		"a LocalQueue needs a namespace":      {TargetRefs: []v1alpha1.TargetRef{{Kind: v1alpha1.KindLocalQueue, Name: "b"}}, Preemption: minute},
		"nothing else has one":                {TargetRefs: []v1alpha1.TargetRef{{Kind: v1alpha1.KindCohort, Namespace: "a", Name: "b"}}, Preemption: minute},
		"the same target twice":               {TargetRefs: []v1alpha1.TargetRef{local, local}, Preemption: minute},
		`supported values: "Cohort"`:          {TargetRefs: []v1alpha1.TargetRef{{Kind: "Pod", Name: "b"}}, Preemption: minute},
		"spec.capacity":                       {TargetRefs: []v1alpha1.TargetRef{local}, Capacity: v1alpha1.CapacityDRF},
		`supported values: "FIFO"`:            {TargetRefs: []v1alpha1.TargetRef{{Kind: v1alpha1.KindCohort, Name: "b"}}, Capacity: "Lottery"},
		"at least 0s":                         {TargetRefs: []v1alpha1.TargetRef{local}, Preemption: &v1alpha1.Preemption{Cooldown: ptr.To(v1alpha1.Duration("-1s"))}},
		"at most 720h":                        {TargetRefs: []v1alpha1.TargetRef{local}, Preemption: &v1alpha1.Preemption{MinRuntime: &v1alpha1.MinRuntime{Reclaim: ptr.To(v1alpha1.Duration("721h"))}}},
		"spec.preemption.minRuntime.borrowed": {TargetRefs: []v1alpha1.TargetRef{local}, Preemption: &v1alpha1.Preemption{MinRuntime: &v1alpha1.MinRuntime{Borrowed: ptr.To(v1alpha1.Duration("soon"))}}},
		"spec.budgets[0].amount":              {TargetRefs: []v1alpha1.TargetRef{local}, Budgets: []v1alpha1.Budget{{Period: v1alpha1.PeriodDay}}},
		"more than 0":                         {TargetRefs: []v1alpha1.TargetRef{local}, Budgets: []v1alpha1.Budget{{Period: v1alpha1.PeriodDay, Amount: resource.MustParse("-1")}}},
		"at most 1000000000":                  {TargetRefs: []v1alpha1.TargetRef{local}, Budgets: []v1alpha1.Budget{{Period: v1alpha1.PeriodDay, Amount: resource.MustParse("1e30")}}},
		"money needs rates":                   {TargetRefs: []v1alpha1.TargetRef{local}, Budgets: []v1alpha1.Budget{{Period: v1alpha1.PeriodDay, Amount: resource.MustParse("1"), Currency: "EUR"}}},
		"changes nothing":                     {TargetRefs: []v1alpha1.TargetRef{queue}, Quota: &v1alpha1.Quota{Windows: []v1alpha1.Window{{Name: "w", Start: "0 20 * * *", Duration: "1h"}}}},
		"at least 1m":                         {TargetRefs: []v1alpha1.TargetRef{queue}, Quota: &v1alpha1.Quota{Windows: []v1alpha1.Window{{Name: "w", Start: "0 20 * * *", Duration: "1s", ShareOfNodes: ptr.To[int32](1)}}}},
		"spec.quota in body should have at least 1 properties":    {TargetRefs: []v1alpha1.TargetRef{queue}, Quota: &v1alpha1.Quota{}},
		"spec.backfill in body should have at least 1 properties": {TargetRefs: []v1alpha1.TargetRef{queue}, Backfill: &v1alpha1.Backfill{}},
		"spec.backfill.quantile":                                  {TargetRefs: []v1alpha1.TargetRef{queue}, Backfill: &v1alpha1.Backfill{Quantile: ptr.To[int32](0)}},
		`supported values: "EASY"`:                                {TargetRefs: []v1alpha1.TargetRef{queue}, Backfill: &v1alpha1.Backfill{Strategy: "Hard"}},
		"spec.defragmentation.moves":                              {TargetRefs: []v1alpha1.TargetRef{queue}, Defragmentation: &v1alpha1.Defragmentation{Moves: ptr.To[int32](17), LostWork: ptr.To(v1alpha1.Duration("1h"))}},
		"spec.defragmentation.lostWork":                           {TargetRefs: []v1alpha1.TargetRef{queue}, Defragmentation: &v1alpha1.Defragmentation{Moves: ptr.To[int32](1)}},
		"spec.elasticJobs.growAfter":                              {TargetRefs: []v1alpha1.TargetRef{queue}, ElasticJobs: &v1alpha1.ElasticJobs{}},
		"spec.dependencies.namespaces":                            {TargetRefs: []v1alpha1.TargetRef{queue}, Dependencies: &v1alpha1.Dependencies{}},
		"spec.dependencies.namespaces[0]":                         {TargetRefs: []v1alpha1.TargetRef{queue}, Dependencies: &v1alpha1.Dependencies{Namespaces: []string{"No_Such"}}},
		"spec.reservations[0].name":                               {TargetRefs: []v1alpha1.TargetRef{queue}, Reservations: []v1alpha1.Reservation{{Name: "Not a name", Start: "0 8 * * *", Duration: "1h", Nodes: []string{"n"}}}},
		"Duplicate value":                                         {TargetRefs: []v1alpha1.TargetRef{local}, Budgets: []v1alpha1.Budget{hours(v1alpha1.PeriodDay, "1"), hours(v1alpha1.PeriodDay, "2")}},
	} {
		t.Run(want, func(t *testing.T) {
			policy := sandbox.QueuePolicy("refused")
			policy.Spec = spec
			err := cluster.Create(t.Context(), policy)
			if err == nil {
				_ = cluster.Delete(t.Context(), policy)
			}
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// Administrators write policies; who has a namespace, or submits jobs, does not.
func TestWhoMayWritePolicies(t *testing.T) {
	ns := queueFor(t, "1")
	for role, may := range map[string]bool{"kueue-batch-admin-role": true, "kueue-batch-user-role": false, "admin": false} {
		t.Run(role, func(t *testing.T) {
			where := ns
			if may {
				where = ""
			}
			policy := sandbox.QueuePolicy(ns+"-"+role, sandbox.ClusterQueueTarget(ns))
			policy.Spec.Preemption = &v1alpha1.Preemption{Delay: ptr.To(v1alpha1.Duration("0s"))}
			err := as(t, ns+"-"+role, role, where).Create(t.Context(), policy, client.DryRunAll)
			if may && err != nil || !may && !apierrors.IsForbidden(err) {
				t.Errorf("creating a policy as %s: %v", role, err)
			}
		})
	}
}

// Of jobs that started one after the other, an urgent one preempts neither the last, which asked not to be and may, nor
// the one before it, but the first, which has saved its work since; and that one is not requeued, as it asked.
func TestJobsSayHowTheyArePreempted(t *testing.T) {
	ns := preemptingQueueFor(t, "3")
	policy := sandbox.QueuePolicy(ns, v1alpha1.TargetRef{Kind: v1alpha1.KindLocalQueue, Namespace: ns, Name: "main"})
	policy.Spec.Preemption = &v1alpha1.Preemption{NeverPreempt: v1alpha1.NeverPreemptHonor}
	cluster.Make(t, policy)
	cluster.WaitAccepted(t, ns, v1alpha1.ReasonAccepted)
	workloads := map[string]*kueue.Workload{}
	for _, name := range []string{"first", "second", "steady"} {
		job := sandbox.Job(ns, name, "main", 1, "1")
		job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
		job.Annotations = map[string]string{}
		switch name {
		case "first":
			job.Annotations[egpu.OnPreemptionAnnotation] = egpu.OnPreemptionStop
			job.Annotations[v1alpha1.CheckpointedAtAnnotation] = "2100-01-01T00:00:00Z"
		case "steady":
			job.Annotations[v1alpha1.NeverPreemptAnnotation] = "true"
		}
		cluster.Make(t, job)
		workloads[name] = cluster.WorkloadOf(t, job)
		waitCondition(t, workloads[name], kueue.WorkloadAdmitted, true)
	}
	class := &kueue.WorkloadPriorityClass{Value: 10}
	class.Name = ns
	cluster.Make(t, class)
	urgent := sandbox.Job(ns, "urgent", "main", 1, "1")
	urgent.Labels["kueue.x-k8s.io/priority-class"] = ns
	urgent.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, urgent)
	waitCondition(t, cluster.WorkloadOf(t, urgent), kueue.WorkloadAdmitted, true)
	sandbox.Eventually(t, "the first is deactivated", func(ctx context.Context) error {
		first := workloads["first"]
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(first), first); err != nil {
			return err
		}
		if !workload.WasStoppedByPreemption(first) || workload.HasReservation(first) {
			return fmt.Errorf("active is %v, conditions are %+v", ptr.Deref(first.Spec.Active, true), first.Status.Conditions)
		}
		return nil
	})
	for _, name := range []string{"second", "steady"} {
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(workloads[name]), workloads[name]); err != nil || workload.IsEvicted(workloads[name]) {
			t.Errorf("%s was preempted: %v", name, err)
		}
	}
}
