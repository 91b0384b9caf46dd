package engineview

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
)

// What a policy sets reaches the events of its queues whole; what it leaves is as the options say.
func TestPoliciesInEvents(t *testing.T) {
	o := NewObjects()
	o.Timing = admission.Timing{Delay: time.Second, Cooldown: time.Minute}
	cq := queueWith("", "")
	cq.Spec.CohortName = "pair"
	lq, other := named(&kueue.LocalQueue{}, "main"), named(&kueue.LocalQueue{}, "other")
	lq.Namespace, lq.Spec.ClusterQueue, other.Namespace, other.Spec.ClusterQueue = "team", "cq", "team", "cq"
	cohort := named(&kueue.Cohort{}, "pair")
	o.Set(cq, false)
	o.Set(lq, false)
	o.Set(other, false)
	o.Set(cohort, false)
	local := func(lq *kueue.LocalQueue) *admission.Timing {
		return o.WithPolicy(ChangedEvent(lq)).(admission.LocalQueueChanged).LocalQueue.Timing
	}
	capacity := func() admission.CapacityPolicy {
		return o.WithPolicy(ChangedEvent(cohort)).(admission.CohortChanged).Cohort.Policy
	}
	if o.Queue(cq).Timing != nil || local(lq) != nil || capacity() != admission.PolicyDefault {
		t.Fatal("there is no policy")
	}

	wide := named(&v1alpha1.QueuePolicy{}, "wide")
	wide.Spec = v1alpha1.QueuePolicySpec{
		TargetRefs: []v1alpha1.TargetRef{{Kind: v1alpha1.KindCohort, Name: "pair"}}, Capacity: v1alpha1.CapacityMaxMin,
		Preemption: &v1alpha1.Preemption{MinRuntime: &v1alpha1.MinRuntime{Reclaim: ptr.To(v1alpha1.Duration("5m"))}, Cooldown: ptr.To(v1alpha1.Duration("0s"))},
	}
	narrow := named(&v1alpha1.QueuePolicy{}, "narrow")
	narrow.Spec = v1alpha1.QueuePolicySpec{
		TargetRefs: []v1alpha1.TargetRef{{Kind: v1alpha1.KindLocalQueue, Namespace: "team", Name: "main"}},
		Preemption: &v1alpha1.Preemption{Delay: ptr.To(v1alpha1.Duration("1h"))},
	}
	for _, p := range []*v1alpha1.QueuePolicy{wide, narrow} {
		if !o.ChangesPolicies(p, false) {
			t.Errorf("%s is new", p.Name)
		}
		o.Set(p, false)
	}
	if o.ChangesPolicies(wide, false) || o.ChangesPolicies(cq, false) || !o.ChangesPolicies(cq, true) {
		t.Error("only what is new, gone or changed matters")
	}
	o.ResolvePolicies()
	queue := admission.Timing{Delay: time.Second, MinRuntime: admission.MinRuntime{Reclaim: 5 * time.Minute}}
	if got := o.Queue(cq).Timing; got == nil || *got != queue {
		t.Errorf("ClusterQueue: %+v", got)
	}
	queue.Delay = time.Hour
	if got := local(lq); got == nil || *got != queue {
		t.Errorf("LocalQueue with a policy of its own: %+v", got)
	}
	if got := local(other); got != nil {
		t.Errorf("a LocalQueue without one is as its ClusterQueue: %+v", got)
	}
	if capacity() != admission.PolicyMaxMin || !o.SharesFairly("cq", "", false) {
		t.Error("the tree is not shared out by max-min")
	}

	o.Set(wide, true)
	o.Set(narrow, true)
	o.ResolvePolicies()
	if o.Queue(cq).Timing != nil || local(lq) != nil || capacity() != admission.PolicyDefault || o.SharesFairly("cq", "", false) {
		t.Error("the policies are gone, and their effect is not")
	}
}

// A policy on a Cohort lets the workloads of its ClusterQueues move, within its bounds, until it goes.
func TestDefragmentationReachesTheQueue(t *testing.T) {
	o := NewObjects()
	cq := queueWith("", "")
	cq.Spec.CohortName = "pair"
	o.Set(cq, false)
	p := named(&v1alpha1.QueuePolicy{}, "moves")
	p.Spec = v1alpha1.QueuePolicySpec{
		TargetRefs:      []v1alpha1.TargetRef{{Kind: v1alpha1.KindCohort, Name: "pair"}},
		Defragmentation: &v1alpha1.Defragmentation{Moves: ptr.To(int32(2)), LostWork: ptr.To(v1alpha1.Duration("90m"))},
	}
	o.Set(p, false)
	o.ResolvePolicies()
	if got := o.Queue(cq).Defragmentation; got == nil || *got != (admission.Defragmentation{Moves: 2, LostWork: 90 * time.Minute}) {
		t.Errorf("%+v", got)
	}
	o.Set(p, true)
	o.ResolvePolicies()
	if got := o.Queue(cq).Defragmentation; got != nil {
		t.Errorf("without the policy: %+v", got)
	}
}
