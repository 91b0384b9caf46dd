package gpuscheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// oneCard is a queue of a namespace with quota for a card, in which the more important preempts.
func oneCard(t *testing.T, ns string) {
	t.Helper()
	cq := sandbox.ClusterQueue(ns, ns, "1")
	cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{egpu.ResourceCore},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(ns), Resources: []kueue.ResourceQuota{
			{Name: egpu.ResourceCore, NominalQuota: resource.MustParse("100")},
		}}},
	}}
	high := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Value: 1000}
	cluster.Make(t, sandbox.Flavor(ns, nil), cq, sandbox.LocalQueue(ns, "main", ns), high)
}

// queued is a job of a pod that runs until it is told to end.
func queued(ns, name string) *batchv1.Job {
	job := sandbox.Job(ns, name, "main", 1, "1")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	job.Spec.Template.Spec.Containers[0].Resources.Limits = nil
	return job
}

// agentSays writes into a pod's conditions what the agent of its node would.
func agentSays(t *testing.T, p *corev1.Pod, status corev1.ConditionStatus, reason string) {
	t.Helper()
	sandbox.Eventually(t, "the agent reports "+reason, func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), now); err != nil {
			return err
		}
		changed := now.DeepCopy()
		changed.Status.Conditions = append(slices.DeleteFunc(changed.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == egpu.SwappedOut }),
			corev1.PodCondition{Type: egpu.SwappedOut, Status: status, Reason: reason, Message: "because of the test", LastTransitionTime: metav1.Now()})
		return cluster.Status().Patch(ctx, changed, client.StrategicMergeFrom(now))
	})
}

func askedTo(t *testing.T, p *corev1.Pod, where string) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("pod %s is told %q", p.Name, where), func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if got := p.Annotations[egpu.SwapAnnotation]; got != where {
			return fmt.Errorf("it is told %q", got)
		}
		return nil
	})
}

func deviceSays(t *testing.T, d *egpu.ElasticGPU, reason string) {
	t.Helper()
	sandbox.Eventually(t, "the ElasticGPU says "+reason, func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.Reason != reason {
			return fmt.Errorf("status %+v", d.Status)
		}
		return nil
	})
}

func podOfJob(t *testing.T, job *batchv1.Job) *corev1.Pod {
	t.Helper()
	found := &corev1.Pod{}
	sandbox.Eventually(t, "the pod of "+job.Name, func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := cluster.List(ctx, list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("it has %d", len(list.Items))
		}
		*found = list.Items[0]
		return nil
	})
	running(t, found)
	return found
}

func waitQuota(t *testing.T, job *batchv1.Job, reserved bool) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("%s has quota: %v", job.Name, reserved), func(context.Context) error {
		wl := cluster.WorkloadOf(t, job)
		if has := apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved); has != reserved {
			return fmt.Errorf("it has: %v: %+v", has, wl.Status.Conditions)
		}
		return nil
	})
}

// A job whose card is on another node is preempted, and not stopped: its server leaves the card, which is free for others then,
// as its quota is. It has neither again before the other job has ended. The test is both nodes' agent; test/agent has real ones.
func preemptedJobLeavesACardOfAnotherNode(t *testing.T) {
	ns := cluster.Namespace(t)
	node := connect(t)
	oneCard(t, ns)
	far := class(ns, egpu.ProvisionerShare, egpu.ReclaimDelete, egpu.BindWaitForFirstConsumer)
	far.Parameters = map[string]string{"sharing": egpu.SharingRemote, "distance": "any", "swap": "on"}
	c, job := claim(ns, "far", 60), queued(ns, "moves")
	job.Annotations = map[string]string{egpu.OnPreemptionAnnotation: egpu.OnPreemptionSwap}
	job.Spec.Template.Annotations[egpu.ClaimPrefix+"main"] = c.Name
	job.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	cluster.Make(t, far, c, job)
	p := podOfJob(t, job)
	waitClaim(t, c, egpu.ClaimBound, "")
	d := device(t, c)
	gpu, record := d.Spec.RemoteGPU.GPUName, egpu.DeviceNamespace+"/"+d.Name
	deviceSays(t, d, egpu.ReasonServed)
	server := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "elastic-queue", Name: "remote-" + d.Name}}
	askedTo(t, server, "")

	urgent := queued(ns, "urgent")
	urgent.Labels["kueue.x-k8s.io/priority-class"] = ns
	urgent.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{egpu.ResourceCore: resource.MustParse("70")}
	cluster.Make(t, urgent)
	askedTo(t, p, egpu.SwapOut)
	askedTo(t, server, egpu.SwapOut)
	if is := cluster.WorkloadOf(t, job); !apimeta.IsStatusConditionTrue(is.Status.Conditions, kueue.WorkloadQuotaReserved) {
		t.Errorf("its quota is gone, and it has the card: %+v", is.Status.Conditions)
	}
	agentSays(t, server, corev1.ConditionTrue, egpu.ReasonMovedOut)
	deviceSays(t, d, egpu.ReasonSwappedOut)
	agentSays(t, p, corev1.ConditionTrue, egpu.ReasonMovedOut)
	waitGPU(t, gpu, func(g *egpu.GPU) bool { return g.Status.Allocated[record] == nil })
	waitQuota(t, job, false)
	podOfJob(t, urgent)
	// It waits for quota, as any job that was preempted: its claim's card is not free of charge because it has left it.
	waitQuota(t, job, false)

	if err := cluster.Delete(t.Context(), urgent, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	waitQuota(t, job, true)
	askedTo(t, p, egpu.SwapIn)
	waitGPU(t, gpu, func(g *egpu.GPU) bool { return g.Status.Allocated[record] != nil })
	askedTo(t, server, egpu.SwapIn)
	agentSays(t, server, corev1.ConditionFalse, egpu.ReasonMovedIn)
	agentSays(t, p, corev1.ConditionFalse, egpu.ReasonMovedIn)
	askedTo(t, p, "")
	askedTo(t, server, "")
	deviceSays(t, d, egpu.ReasonServed)
	uid := p.UID
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
		t.Fatal(err)
	}
	if again := podOfJob(t, job); again.UID != uid || ptr.Deref(job.Spec.Suspend, false) {
		t.Error("it was stopped")
	}
	// A pod of another job uses the claim, too: from now on the server would leave with both of them, or not at all.
	other := user(ns, "other", c.Name)
	other.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	cluster.Make(t, other)
	sandbox.Eventually(t, "the server says who uses it", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(server), server); err != nil {
			return err
		}
		if got := server.Annotations[egpu.SharedAnnotation]; !strings.Contains(got, other.Name) || !strings.Contains(got, p.Name) {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
	if err := cluster.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	remove(t, other, c)
	waitGone(t, d)
	waitGone(t, server)
}
