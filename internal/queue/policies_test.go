package queue

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

func delayPolicy(name, delay string, targets ...v1alpha1.TargetRef) *v1alpha1.QueuePolicy {
	p := named(&v1alpha1.QueuePolicy{}, name)
	p.UID, p.Generation, p.Spec.TargetRefs = types.UID(name), 1, targets
	p.Spec.Preemption = &v1alpha1.Preemption{Delay: ptr.To(v1alpha1.Duration(delay))}
	return p
}

// policyWrites are the statuses of policies that wait to be written.
func (p *harness) policyWrites() []*v1alpha1.QueuePolicy {
	var list []*v1alpha1.QueuePolicy
	for _, object := range p.statusWrites.waiting {
		if policy, ok := object.(*v1alpha1.QueuePolicy); ok {
			list = append(list, policy)
		}
	}
	p.statusWrites.waiting = nil
	return list
}

// A policy's delay holds from the turn in which it comes, and a deleted policy leaves Kueue's behaviour.
func TestPolicyComesAndGoes(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.submit("low", "main", "", 0, "4")
	policy := delayPolicy("careful", "10m", v1alpha1.TargetRef{Kind: v1alpha1.KindClusterQueue, Name: "cq"})
	p.see(policy)
	p.submit("high", "main", "", 5, "4")
	if workload.IsEvicted(p.written["low"]) {
		t.Fatal("high preempts although the policy's delay has not passed")
	}
	if x := p.engine.Explain(admission.Key{Namespace: "ns", Name: "high"}, p.time); len(x.Suggestions) == 0 || x.StartsAt.After(p.time.Add(time.Hour)) {
		t.Errorf("%+v", x)
	}
	if got := p.policiesOf(p.written["high"]); len(got) != 1 || got[0].Field != "preemption.delay" || got[0].Policy != "careful" || got[0].From != "ClusterQueue/cq" {
		t.Errorf("in force: %v", got)
	}
	p.turn([]message{{object: policy, deleted: true}})
	p.see()
	if !workload.IsEvicted(p.written["low"]) {
		t.Error("the policy is gone, and high still does not preempt")
	}
}

// The status says what is in force, follows the objects that the policy is about, and is written again after an error.
func TestPolicyStatusFollows(t *testing.T) {
	p := newHarness(t)
	policy := delayPolicy("careful", "10m", v1alpha1.TargetRef{Kind: v1alpha1.KindLocalQueue, Namespace: "ns", Name: "main"})
	p.turn([]message{{object: policy}})
	reason := func(want string) *v1alpha1.QueuePolicy {
		t.Helper()
		writes := p.policyWrites()
		if len(writes) != 1 {
			t.Fatalf("%d writes", len(writes))
		}
		if got := apimeta.FindStatusCondition(writes[0].Status.Conditions, v1alpha1.Accepted); got == nil || got.Reason != want {
			t.Fatalf("%+v, want %s", got, want)
		}
		return writes[0]
	}
	written := reason(v1alpha1.ReasonTargetNotFound)
	p.turn([]message{{statusWritten: &statusResult{queue: written, err: errors.New("no")}}})
	if again := p.policyWrites(); len(again) != 0 {
		t.Fatal("written again without a pause")
	}
	p.advance(policyRetry)
	p.turn(nil)
	written = reason(v1alpha1.ReasonTargetNotFound)
	p.turn([]message{{statusWritten: &statusResult{queue: written}}})
	if again := p.policyWrites(); len(again) != 0 {
		t.Fatal("written again although nothing changed")
	}
	p.oneQueue()
	p.statusWrites.waiting = nil
	lq := p.objects.LocalQueues[types.NamespacedName{Namespace: "ns", Name: "main"}].DeepCopy()
	p.turn([]message{{object: lq, deleted: true}})
	p.turn([]message{{statusWritten: &statusResult{queue: written}}}) // of the write in oneQueue, which this one stands for
	p.statusWrites.waiting = nil
	p.turn([]message{{statusWritten: &statusResult{queue: written}}, {object: lq}})
	if got := reason(v1alpha1.ReasonAccepted).Status.Targets; len(got) != 1 || got[0].Target != "LocalQueue/ns/main" || len(got[0].InForce) != 1 || got[0].Problem != "" {
		t.Errorf("%+v", got)
	}
}

// A policy on a Cohort that queues name, and nobody described, decides how its tree is shared out.
func TestPolicyOnCohortWithoutObject(t *testing.T) {
	p := newHarness(t)
	flavor := named(&corev1.Namespace{}, "ns")
	p.see(flavor, queueObject("left", "pair", ""), queueObject("right", "pair", ""))
	if !p.statuses.FairShares("left", "") {
		t.Fatal("the harness has fair sharing for all")
	}
	policy := named(&v1alpha1.QueuePolicy{}, "first-come")
	policy.Generation, policy.Spec.Capacity = 1, v1alpha1.CapacityFIFO
	policy.Spec.TargetRefs = []v1alpha1.TargetRef{{Kind: v1alpha1.KindCohort, Name: "pair"}}
	p.see(policy)
	if p.statuses.FairShares("left", "") || !p.policies.undescribed["pair"] {
		t.Error("the tree is not first come, first served")
	}
	p.turn([]message{{object: policy, deleted: true}})
	if !p.statuses.FairShares("left", "") || len(p.policies.undescribed) > 0 {
		t.Error("the policy is gone, and its effect is not")
	}
}

// Where the queue orders by attained service, an explanation says what the workload's position follows from.
func TestExplainSaysWhatTheOrderFollowsFrom(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.submit("first", "main", "", 0, "4")
	policy := named(&v1alpha1.QueuePolicy{}, "short-first")
	policy.Generation, policy.Spec.Order = 1, v1alpha1.OrderLeastAttainedService
	policy.Spec.TargetRefs = []v1alpha1.TargetRef{{Kind: v1alpha1.KindClusterQueue, Name: "cq"}}
	p.see(policy)
	p.submit("second", "main", "", 0, "4")
	x := p.engine.Explain(admission.Key{Namespace: "ns", Name: "second"}, p.time)
	if got := p.workloadStanding(&x).Order; !strings.HasPrefix(got, "who has used least goes first") {
		t.Errorf("order: %q", got)
	}
	p.turn([]message{{object: policy, deleted: true}})
	x = p.engine.Explain(admission.Key{Namespace: "ns", Name: "second"}, p.time)
	if got := p.workloadStanding(&x).Order; got != "" {
		t.Errorf("without the policy, order: %q", got)
	}
}

// A workload that asks never to be preempted is preempted all the same, unless a policy honours it; and again once the
// policy is gone.
func TestPolicyHonorsNeverPreempt(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	policy := named(&v1alpha1.QueuePolicy{}, "steady")
	policy.Generation, policy.Spec.Preemption = 1, &v1alpha1.Preemption{NeverPreempt: v1alpha1.NeverPreemptHonor}
	policy.Spec.TargetRefs = []v1alpha1.TargetRef{{Kind: v1alpha1.KindLocalQueue, Namespace: "ns", Name: "main"}}
	p.see(policy)
	low := p.workload("low", "main", "", 0, "4")
	low.Annotations = map[string]string{v1alpha1.NeverPreemptAnnotation: "true"}
	p.see(low)
	p.submit("high", "main", "", 5, "4")
	if workload.IsEvicted(p.written["low"]) {
		t.Fatal("it was preempted although the policy honours what it asks for")
	}
	p.turn([]message{{object: policy, deleted: true}})
	p.see()
	if !workload.IsEvicted(p.written["low"]) {
		t.Error("the policy is gone, and the workload is still not preempted")
	}
}

// Run times are learned from workloads that succeeded and exist, whether the policy or they were there first; otherwise
// the policy's default counts.
func TestRunTimesAreLearnedWherePoliciesSaySo(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	policy := named(&v1alpha1.QueuePolicy{}, "easy")
	policy.Generation = 1
	policy.Spec.Backfill = &v1alpha1.Backfill{Strategy: v1alpha1.BackfillEASY, RunTime: ptr.To(v1alpha1.Duration("4h")), Quantile: ptr.To(int32(100))}
	policy.Spec.TargetRefs = []v1alpha1.TargetRef{{Kind: v1alpha1.KindClusterQueue, Name: "cq"}}
	run := func(name string, minutes int) {
		p.submit(name, "main", "", 0, "1")
		p.advance(time.Duration(minutes) * time.Minute)
		ended := p.written[name].DeepCopy()
		workload.Finish(ended, kueue.WorkloadFinishedReasonSucceeded, "", p.time)
		p.see(ended)
	}
	expect := func(want time.Duration) {
		t.Helper()
		w := p.forEngine(p.written["waits"])
		if w.ExpectedRunTime != want {
			t.Errorf("it is taken to run for %s, not %s", w.ExpectedRunTime, want)
		}
	}
	for i, minutes := range []int{10, 20, 30, 40} {
		run(fmt.Sprint(i), minutes)
	}
	p.submit("waits", "main", "", 0, "1")
	expect(0)
	p.see(policy)
	expect(4 * time.Hour)
	run("fifth", 16)
	expect(2560 * time.Second)
	waits := types.NamespacedName{Namespace: p.written["waits"].Namespace, Name: "waits"}
	p.leading.Store(false)
	if _, err := p.RunTime(t.Context(), waits); !errors.Is(err, ErrNotLeading) {
		t.Errorf("asked while it does not lead: %v", err)
	}
	p.leading.Store(true)
	if got := p.askedRunTime(waits); got != 2560*time.Second {
		t.Errorf("checks are told %s, and the engine something else", got)
	}
	p.turn([]message{{object: p.written["3"], deleted: true}})
	expect(4 * time.Hour)
	run("sixth", 17)
	expect(1792*time.Second + 256*time.Second)
	p.turn([]message{{object: policy, deleted: true}})
	expect(0)
}

// askedRunTime is what the loop answers a check.
func (p *harness) askedRunTime(key types.NamespacedName) time.Duration {
	answers := make(chan time.Duration, 1)
	go func() {
		run, _ := p.RunTime(p.t.Context(), key)
		answers <- run
	}()
	messages, err := p.inbox.Take(p.t.Context(), time.Time{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.turn(messages)
	return <-answers
}
