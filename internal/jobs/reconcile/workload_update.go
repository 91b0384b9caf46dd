package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

func (c *controller) create(ctx context.Context, j GenericJob) error {
	wl, err := c.builder.Build(ctx, j, j.WorkloadName())
	if err != nil {
		return err
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

// updateWorkload applies changes of a job to its workload, and reports whether there were any.
func (c *controller) updateWorkload(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	wanted := wl.DeepCopy()
	if err := c.builder.SetPriority(ctx, j, wanted); err != nil {
		return false, err
	}
	if !workload.HasReservation(wl) {
		wanted.Spec.QueueName = kinds.QueueName(j.Meta())
		if changed, err := c.updatePodSets(ctx, j, wanted); changed || err != nil {
			return changed, err
		}
	} else if changed, err := c.followCounts(ctx, j, wl); changed || err != nil {
		return changed, err
	}
	if equality.Semantic.DeepEqual(wanted.Spec, wl.Spec) {
		return false, nil
	}
	return true, c.client.Update(ctx, wanted)
}

// updatePodSets applies what a suspended job requests now. A prebuilt workload cannot be changed:
// it is finished instead, which the result reports.
func (c *controller) updatePodSets(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	if hasFixedPods(j) || !j.IsSuspended() {
		return false, nil
	}
	sets, err := c.builder.PodSets(ctx, j)
	if err != nil || kinds.SamePodSets(sets, wl.Spec.PodSets) {
		return false, err
	}
	if kinds.IsPrebuilt(j.Meta()) {
		return true, c.finishOutOfSync(ctx, wl)
	}
	wl.Spec.PodSets = sets
	return false, nil
}

func (c *controller) finishOutOfSync(ctx context.Context, wl *kueue.Workload) error {
	return c.report(ctx, wl, func(wl *kueue.Workload) bool {
		return workload.Finish(wl, kueue.WorkloadFinishedReasonOutOfSync, "The prebuilt workload is out of sync with its job", c.now())
	})
}
