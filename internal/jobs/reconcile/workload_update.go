package reconcile

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

func (c *controller) create(ctx context.Context, j GenericJob) error {
	if g, ok := j.(*podgroups.Group); ok {
		if err := g.Compose(ctx, c.client); err != nil {
			return err
		}
	}
	wl, err := c.builder.Build(ctx, j, j.WorkloadName())
	if err != nil {
		return err
	}
	switch behind, err := c.looksStarted(ctx, j, wl); {
	case err != nil:
		return err
	case behind:
		return &requeueError{after: time.Second}
	}
	if err := c.client.Create(ctx, wl); err != nil {
		return err
	}
	if c.queued != nil {
		c.queued(j.Row().GVK.Kind, c.now().Sub(j.Meta().GetCreationTimestamp().Time))
	}
	c.recorder.Eventf(j.Meta(), wl, corev1.EventTypeNormal, "CreatedWorkload", "Create", "Created Workload: %s/%s", wl.Namespace, wl.Name)
	return nil
}

// looksStarted: the job's templates have what an admission added, and the API server has a newer job than
// the cache. The stop of its last workload removed all that; a workload made from it would keep it for good.
func (c *controller) looksStarted(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	if !slices.ContainsFunc(wl.Spec.PodSets, func(set kueue.PodSet) bool { return set.Template.Annotations[kueue.WorkloadAnnotation] != "" }) {
		return false, nil
	}
	is := &metav1.PartialObjectMetadata{}
	is.SetGroupVersionKind(j.Row().GVK)
	err := c.filter.Direct.Get(ctx, client.ObjectKeyFromObject(j.Meta()), is)
	return err == nil && is.ResourceVersion != j.Meta().GetResourceVersion(), client.IgnoreNotFound(err)
}

// updateWorkload applies changes of a job to its workload, and reports whether there were any.
func (c *controller) updateWorkload(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	wanted := wl.DeepCopy()
	if err := c.builder.SetPriority(ctx, j, wanted); err != nil {
		return false, err
	}
	if err := kinds.SetMaxExecTime(j, wanted); err != nil {
		return false, err
	}
	if !workload.HasReservation(wl) {
		wanted.Spec.QueueName = kinds.QueueName(j.Meta())
		if changed, err := c.updatePodSets(ctx, j, wanted); changed || err != nil {
			return changed, err
		}
	} else if ptr.Deref(wanted.Spec.MaximumExecutionTimeSeconds, 0) != ptr.Deref(wl.Spec.MaximumExecutionTimeSeconds, 0) && !workload.IsEvicted(wl) && !serving(j) {
		return true, c.requeueResized(ctx, j, wl)
	} else if changed, err := c.followCounts(ctx, j, wl); changed || err != nil {
		return changed, err
	}
	gates := c.builder.SetGates(j, wanted)
	movable, err := c.movable(ctx, j)
	if err != nil {
		return false, err
	}
	wishes, after := kinds.SetPreemptionWishes(j, wanted, movable), kinds.SetStart(j, wanted)
	if !gates && !wishes && !after && equality.Semantic.DeepEqual(wanted.Spec, wl.Spec) {
		return false, nil
	}
	if err := c.client.Update(ctx, wanted); err != nil {
		return true, err
	}
	if gates {
		c.recorder.Eventf(j.Meta(), wl, corev1.EventTypeNormal, "UpdatedWorkload", "Update", "Updated workload AdmissionGatedBy to %q", wanted.Annotations[workload.GatedByAnnotation])
	}
	if !samePriority(wanted, wl) {
		c.recorder.Eventf(j.Meta(), wl, corev1.EventTypeNormal, "UpdatedWorkload", "Update", "Updated workload priority class: %s/%s", wl.Namespace, wl.Name)
	}
	if !equality.Semantic.DeepEqual(wanted.Spec.PodSets, wl.Spec.PodSets) {
		c.recorder.Eventf(j.Meta(), wl, corev1.EventTypeNormal, "UpdatedWorkload", "Update", "Updated not matching Workload for suspended job: %s/%s", wl.Namespace, wl.Name)
	}
	return true, nil
}

// updatePodSets applies what a suspended job requests now. A prebuilt workload cannot be changed:
// it is finished instead, which the result reports. A job whose quota somebody else took away is
// restored first: what its admission added is not what it requests.
func (c *controller) updatePodSets(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	if hasFixedPods(j) || !j.IsSuspended() {
		return false, nil
	}
	sets, err := c.builder.PodSets(ctx, j)
	if err != nil {
		return false, err
	}
	if hasAdmissionOf(wl, sets) {
		if active, err := j.IsActive(); err != nil || active {
			return true, err
		}
		return true, c.restore(ctx, j, wl)
	}
	if kinds.SamePodSets(sets, wl.Spec.PodSets) {
		return false, nil
	}
	if kinds.IsPrebuilt(j.Meta()) {
		return true, c.finishOutOfSync(ctx, wl)
	}
	wl.Spec.PodSets = sets
	return false, nil
}

// hasAdmissionOf: the pod sets of a job contain what an admission of the workload added.
func hasAdmissionOf(wl *kueue.Workload, sets []kueue.PodSet) bool {
	return slices.ContainsFunc(sets, func(set kueue.PodSet) bool { return set.Template.Annotations[kueue.WorkloadAnnotation] == wl.Name })
}

func (c *controller) finishOutOfSync(ctx context.Context, wl *kueue.Workload) error {
	return c.report(ctx, wl, func(wl *kueue.Workload) bool {
		return workload.Finish(wl, kueue.WorkloadFinishedReasonOutOfSync, "The prebuilt workload is out of sync with its user job", c.now())
	})
}
