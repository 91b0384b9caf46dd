package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A job with the annotation for it is not stopped when it is preempted: its pods stay on their nodes, and
// the agents there move their GPU memory to the host. When all pods have reported that, the eviction is
// complete and the quota is released. When the job is admitted again, the memory is moved back and the pods
// continue.
//
// What a pod has on cards of other nodes it says of itself, too, after the servers that have it there: it is asked as any.
//
// The state is in the pods: an annotation says where their memory is to be, a condition where it is; pods
// that are back have no annotation. Nothing else is remembered, so a new leader can continue.

// swapPods is the managed label's value on pods of jobs that are swapped.
const swapPods = "swap"

// swapTimeout is how long agents may take: they give up on a container after two minutes.
const swapTimeout = 3 * time.Minute

// swapsOnPreemption: the job is swapped out when it is preempted. Elastic jobs are not, as their
// pods change.
func swapsOnPreemption(j GenericJob) bool {
	return j.Meta().GetAnnotations()[egpu.OnPreemptionAnnotation] == egpu.OnPreemptionSwap && !kinds.IsElastic(j) && !j.HandedOver()
}

// markSwappable labels the pods of a job that is started, so that they are found, and annotates
// them, so that their agents start them in a way that they can be moved.
func markSwappable(j GenericJob, infos []kinds.PodSetInfo) {
	for i := range infos {
		infos[i].Annotations[egpu.OnPreemptionAnnotation] = egpu.OnPreemptionSwap
		if _, pods := j.(*podgroups.Group); !pods {
			infos[i].Labels[kinds.ManagedLabel], infos[i].Labels[kinds.JobUIDLabel] = swapPods, string(j.Meta().GetUID())
		}
	}
}

// podsOf are the pods of a swappable job that have not ended.
func (c *controller) podsOf(ctx context.Context, j GenericJob) ([]*corev1.Pod, error) {
	var all []*corev1.Pod
	if g, ok := j.(*podgroups.Group); ok {
		all = g.Pods
	} else {
		list := &corev1.PodList{}
		if err := c.pods.List(ctx, list, client.InNamespace(j.Meta().GetNamespace()), client.MatchingLabels{kinds.JobUIDLabel: string(j.Meta().GetUID())}); err != nil {
			return nil, err
		}
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	var alive []*corev1.Pod
	for _, pod := range all {
		if podgroups.IsLive(pod) {
			alive = append(alive, pod)
		}
	}
	podgroups.SortOldestFirst(alive)
	return alive, nil
}

// swapOut moves a preempted job off its cards without stopping its pods, and releases its quota
// when that is done. It reports false where the job is to be stopped instead.
func (c *controller) swapOut(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	if !swapsOnPreemption(j) || j.IsSuspended() || !workload.IsActive(wl) {
		return false, nil
	}
	evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	if evicted == nil || evicted.Status == metav1.ConditionTrue && evicted.Reason != kueue.WorkloadEvictedByPreemption {
		return false, nil
	}
	pods, err := c.podsOf(ctx, j)
	if err != nil || len(pods) == 0 {
		return false, err
	}
	refusal, out := immovable(pods), false
	if refusal == "" {
		if out, refusal, err = c.move(ctx, pods, egpu.SwapOut); err != nil {
			return false, err
		}
	}
	left := swapTimeout - c.now().Sub(evicted.LastTransitionTime.Time)
	switch {
	case refusal == "" && !out && left <= 0:
		refusal = fmt.Sprintf("it took more than %s", swapTimeout)
	case refusal == "" && !out:
		return true, &requeueError{left}
	}
	if refusal != "" {
		c.recorder.Eventf(j.Meta(), wl, corev1.EventTypeWarning, "NotSwappedOut", "Stop", "The job is stopped, as it cannot be swapped out: %s", refusal)
		return false, nil
	}
	if !workload.IsEvicted(wl) || !workload.HasReservation(wl) {
		return true, nil // it is pending
	}
	c.recorder.Eventf(j.Meta(), wl, corev1.EventTypeNormal, "SwappedOut", "Stop", "The job is swapped out: %s", evicted.Message)
	return true, c.releaseQuota(ctx, wl, false)
}

// swapIn brings a job that was swapped out back onto its cards. It reports whether there was
// something to do.
func (c *controller) swapIn(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	if !swapsOnPreemption(j) || j.IsSuspended() {
		return false, nil
	}
	pods, err := c.podsOf(ctx, j)
	if err != nil {
		return false, err
	}
	pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return pod.Annotations[egpu.SwapAnnotation] == "" })
	if len(pods) == 0 {
		return false, nil
	}
	infos, err := c.podSetInfos(ctx, wl)
	if err != nil {
		return false, err
	}
	refusal := placementChanged(pods, wl, infos)
	in := false
	if refusal == "" {
		if in, refusal, err = c.move(ctx, pods, egpu.SwapIn); err != nil {
			return false, err
		}
	}
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	left := swapTimeout - c.now().Sub(admitted.LastTransitionTime.Time)
	switch {
	case refusal == "" && !in && left <= 0:
		refusal = fmt.Sprintf("it took more than %s", swapTimeout)
	case refusal == "" && !in:
		return true, &requeueError{left}
	}
	if refusal != "" {
		return true, c.stop(ctx, j, kinds.Stop{Reason: kinds.StopNotAdmitted, Message: "The job starts anew, as it cannot go on where it was: " + refusal})
	}
	for _, pod := range pods {
		back := pod.DeepCopy()
		delete(back.Annotations, egpu.SwapAnnotation)
		if err := c.client.Patch(ctx, back, kinds.OptimisticMerge(pod)); err != nil {
			return false, err
		}
	}
	c.recorder.Eventf(j.Meta(), wl, corev1.EventTypeNormal, "SwappedIn", "Start", "The job goes on where it was, admitted by clusterQueue %s", wl.Status.Admission.ClusterQueue)
	return false, nil
}

// move asks the pods' agents to move them out or in. done: all have been moved; refusal: why one
// cannot be.
func (c *controller) move(ctx context.Context, pods []*corev1.Pod, where string) (done bool, refusal string, err error) {
	reached, refused := egpu.ReasonMovedOut, egpu.ReasonCannotMoveOut
	if where == egpu.SwapIn {
		reached, refused = egpu.ReasonMovedIn, egpu.ReasonCannotMoveIn
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodRunning {
			return false, fmt.Sprintf("pod %s does not run", pod.Name), nil
		}
	}
	done = true
	for _, pod := range pods {
		if pod.Annotations[egpu.SwapAnnotation] != where {
			done = false
			asked := pod.DeepCopy()
			kinds.SetAnnotation(asked, egpu.SwapAnnotation, where)
			if err := c.client.Patch(ctx, asked, kinds.OptimisticMerge(pod)); err != nil {
				return false, "", err
			}
			continue
		}
		if hasSwapReason(pod, refused) {
			return false, fmt.Sprintf("pod %s: %s", pod.Name, swapCondition(pod).Message), nil
		}
		done = done && hasSwapReason(pod, reached)
	}
	return done, "", nil
}

// movable says whether the job's pods would be swapped out if it were preempted now, as far as their agents know. Pods that
// do not run yet are taken to be: nothing else is known of them.
func (c *controller) movable(ctx context.Context, j GenericJob) (bool, error) {
	if !swapsOnPreemption(j) {
		return false, nil
	}
	pods, err := c.podsOf(ctx, j)
	return immovable(pods) == "", err
}

// immovable says why a job's pods are not even asked to move: an agent has said that one of them could not, and none has
// been asked yet.
func immovable(pods []*corev1.Pod) string {
	why := ""
	for _, pod := range pods {
		if pod.Annotations[egpu.SwapAnnotation] != "" {
			return ""
		}
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == egpu.Swappable && c.Status == corev1.ConditionFalse {
				why = fmt.Sprintf("pod %s: %s", pod.Name, c.Message)
			}
		}
	}
	return why
}

func swapCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == egpu.SwappedOut {
			return c
		}
	}
	return nil
}

// hasSwapReason: the pod's agent has reported this.
func hasSwapReason(pod *corev1.Pod, reason string) bool {
	c := swapCondition(pod)
	return c != nil && c.Reason == reason
}

// placementChanged says why pods cannot continue where they are: the new admission chose other
// nodes.
func placementChanged(pods []*corev1.Pod, wl *kueue.Workload, infos []kinds.PodSetInfo) string {
	for i, info := range infos {
		name := string(wl.Spec.PodSets[i].Name)
		if slices.Contains(info.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate}) {
			return "its place in the topology was chosen anew"
		}
		for _, pod := range pods {
			if of := pod.Labels[kinds.PodSetLabel]; of != "" && of != name {
				continue
			}
			if slices.Contains(workload.AvoidNodes(wl), pod.Spec.NodeName) {
				return fmt.Sprintf("pod %s is on %s, which is reserved for others", pod.Name, pod.Spec.NodeName)
			}
			for key, value := range info.NodeSelector {
				if pod.Spec.NodeSelector[key] != value {
					return fmt.Sprintf("pod %s is on %s, and it was admitted to nodes with %s=%s", pod.Name, pod.Spec.NodeName, key, value)
				}
			}
		}
	}
	return ""
}

// restartable: a job that was stopped because it could not be swapped in may be started again. None
// of its pods runs any more, and its templates are restored.
func (c *controller) restartable(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	active, err := j.IsActive()
	if err != nil || active {
		return false, err
	}
	return true, c.restore(ctx, j, wl)
}

// requeueError: nothing is wrong, but what the job waits for has only so much time.
type requeueError struct{ after time.Duration }

func (e *requeueError) Error() string { return "requeued after " + e.after.String() }
