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

// A job that says so is not stopped when another takes its place: its pods stay where they are, and the
// agents of their nodes move what they have on cards to the host. When all have reported so the eviction is
// complete and its quota is another's. Admitted again, they are brought back and go on where they were.
//
// Where the pods are is in the pods: their annotation says where they are to be, their condition where they
// are; those that are back have no annotation. Nothing is remembered, and a new leader goes on.

// swapPods is the managed label's value on pods of jobs that are swapped.
const swapPods = "swap"

// swapPatience is how long agents may take: they give up on a container after two minutes.
const swapTimeout = 3 * time.Minute

// swaps says a job is to be swapped out when it is preempted. Pods of elastic jobs come and go.
func swapsOnPreemption(j GenericJob) bool {
	return j.Meta().GetAnnotations()[egpu.OnPreemptionAnnotation] == egpu.OnPreemptionSwap && !kinds.IsElastic(j) && !j.HandedOver()
}

// markSwapped has the pods of a job that is started found again, and their agents make them so that they can move.
func markSwappable(j GenericJob, infos []kinds.PodSetInfo) {
	for i := range infos {
		infos[i].Annotations[egpu.OnPreemptionAnnotation] = egpu.OnPreemptionSwap
		if _, pods := j.(*podgroups.Group); !pods {
			infos[i].Labels[kinds.ManagedLabel], infos[i].Labels[kinds.JobUIDLabel] = swapPods, string(j.Meta().GetUID())
		}
	}
}

// podsOf are the pods of a job that is swapped, as far as they have not ended.
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

// swapOut has a preempted job leave its cards and keep its pods, and gives its quota back when it has. It reports
// false where the job is to be stopped instead.
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
	out, refusal, err := c.move(ctx, pods, egpu.SwapOut)
	if err != nil {
		return false, err
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
		return true, nil // it waits for its turn
	}
	c.recorder.Eventf(j.Meta(), wl, corev1.EventTypeNormal, "SwappedOut", "Stop", "The job is swapped out: %s", evicted.Message)
	return true, c.releaseQuota(ctx, wl, false)
}

// swapIn brings the pods of a job that was swapped out back. It reports whether there was something to do.
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
	additions, err := c.podSetInfos(ctx, wl)
	if err != nil {
		return false, err
	}
	refusal := placementChanged(pods, wl, additions)
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
		return true, c.stop(ctx, j, "it starts anew, as it cannot go on where it was: "+refusal)
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

// move has the pods' agents move them out or in. done says that all are there; refusal, why one cannot be.
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
			told := pod.DeepCopy()
			kinds.SetAnnotation(told, egpu.SwapAnnotation, where)
			if err := c.client.Patch(ctx, told, kinds.OptimisticMerge(pod)); err != nil {
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

func swapCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == egpu.SwappedOut {
			return c
		}
	}
	return nil
}

// settledAs says the pod's agent has reported this.
func hasSwapReason(pod *corev1.Pod, reason string) bool {
	c := swapCondition(pod)
	return c != nil && c.Reason == reason
}

// elsewhere says why pods are not where a new admission has them: their nodes were chosen by another one.
func placementChanged(pods []*corev1.Pod, wl *kueue.Workload, additions []kinds.PodSetInfo) string {
	for i, info := range additions {
		name := string(wl.Spec.PodSets[i].Name)
		if len(info.SchedulingGates) > 0 {
			return "its place in the topology was chosen anew"
		}
		for _, pod := range pods {
			if of := pod.Labels[kinds.PodSetLabel]; of != "" && of != name {
				continue
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

// restartable says a job that was stopped after it could not go on may be started again: nothing of it runs, and
// its templates are as the user wrote them.
func (c *controller) restartable(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	active, err := j.IsActive()
	if err != nil || active {
		return false, err
	}
	return true, c.restore(ctx, j, wl)
}

// laterError: nothing is wrong, and what is waited for has until then.
type requeueError struct{ after time.Duration }

func (e *requeueError) Error() string { return "looking again in " + e.after.String() }
