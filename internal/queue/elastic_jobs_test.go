package queue

import (
	"maps"
	"slices"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"k8s.io/utils/ptr"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// extra is the workload of an extra pod of a job.
func (p *harness) extra(name, of string) *kueue.Workload {
	wl := p.workload(name, "main", "", 100, "1") // a priority that a tenant wrote
	wl.Annotations = map[string]string{v1alpha1.ExtraOfAnnotation: of, v1alpha1.FlavorsAnnotation: "default"}
	return wl
}

func growPolicy(after v1alpha1.Duration) *v1alpha1.QueuePolicy {
	p := named(&v1alpha1.QueuePolicy{}, "grow")
	p.UID, p.Generation = "grow", 1
	p.Spec.TargetRefs = []v1alpha1.TargetRef{{Kind: v1alpha1.KindClusterQueue, Name: "cq"}}
	p.Spec.ElasticJobs = &v1alpha1.ElasticJobs{GrowAfter: ptr.To(after)}
	return p
}

// preempting is the queue, with four CPUs, that preempts lower priorities of its own.
func preempting(within kueue.PreemptionPolicy, generation int64) *kueue.ClusterQueue {
	cq := queueObject("cq", "", "")
	cq.Generation = generation
	cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: within}
	return cq
}

// Extras have quota where a policy lets jobs grow and they can be made to give it back. A workload that waits gets it, and
// they stay away for a time. Without the policy they leave.
func TestJobsGrowWhereAPolicyLetsThem(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.see(preempting(kueue.PreemptionPolicyNever, 1))
	p.submit("job", "main", "", 0, "2")
	p.see(p.extra("x", "job"))
	p.expect("x", "Misconfigured: No QueuePolicy lets jobs of its queue grow (elasticJobs)")
	policy := growPolicy("10m")
	p.see(policy)
	p.expect("x", "Misconfigured: ClusterQueue cq preempts nobody of its own (withinClusterQueue), so what jobs grow into could not be taken back")
	p.see(preempting(kueue.PreemptionPolicyLowerPriority, 2))
	p.expect("x", "quota")

	p.submit("waits", "main", "", -5, "2") // below what the extra's object says
	if !workload.IsEvicted(p.written["x"]) || workload.IsEvicted(p.written["job"]) {
		t.Fatalf("evicted: the extra %v, the job %v", workload.IsEvicted(p.written["x"]), workload.IsEvicted(p.written["job"]))
	}
	p.change("x", func(wl *kueue.Workload) { workload.Release(wl, "gone", p.time) })
	p.expect("waits", "quota")
	p.end("waits", succeeded)
	if p.started("x") {
		t.Error("it is back at once")
	}
	p.advance(11 * time.Minute)
	p.see()
	p.expect("x", "quota")

	p.turn([]message{{object: policy, deleted: true}})
	p.see()
	if !workload.IsEvicted(p.written["x"]) || workload.IsEvicted(p.written["job"]) {
		t.Error("the policy is gone, and the extra is still there")
	}
}

// Who leads next keeps extras that were taken back away for as long as the one before would have.
func TestRestartKeepsExtrasAway(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	policy := growPolicy("10m")
	p.see(preempting(kueue.PreemptionPolicyLowerPriority, 1), policy)
	p.submit("job", "main", "", 0, "2")
	p.see(p.extra("x", "job"))
	p.submit("waits", "main", "", 0, "2")
	p.change("x", func(wl *kueue.Workload) { workload.Release(wl, "gone", p.time) })
	p.expect("waits", "quota")
	p.end("waits", succeeded)
	for _, step := range []struct {
		after   time.Duration
		started bool
	}{{0, false}, {9 * time.Minute, false}, {2 * time.Minute, true}} {
		p.advance(step.after)
		next := newHarness(t)
		next.time, next.version = p.time, p.version
		next.oneQueue()
		objects := []client.Object{preempting(kueue.PreemptionPolicyLowerPriority, 1), policy}
		for _, name := range slices.Sorted(maps.Keys(p.written)) {
			objects = append(objects, p.written[name].DeepCopy())
		}
		next.see(objects...)
		if p = next; p.started("x") != step.started {
			t.Fatalf("%s later: it is back %t", step.after, p.started("x"))
		}
	}
}

// An extra gets the flavors of its job's pods alone.
func TestExtrasAreTiedToFlavors(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.see(growPolicy("0s"), preempting(kueue.PreemptionPolicyLowerPriority, 2))
	x := p.extra("x", "job")
	x.Annotations[v1alpha1.FlavorsAnnotation] = "other,another"
	p.see(x)
	if p.started("x") {
		t.Error("it has quota of another flavor")
	}
}
