package reconcile

import (
	"context"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// followHold takes the quota of a job that cannot run as it is, and has it queued again when that has changed. It
// reports whether there is nothing else to do. The job is suspended first, so that it does not start without
// quota once it is corrected.
func (c *controller) followHold(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	job, ok := j.(kinds.Object)
	if !ok || job.Row().Spec.OnHold == "" || job.HandedOver() {
		return false, nil
	}
	switch onHold, err := job.IsOnHold(); {
	case err != nil:
		return true, err
	case !onHold && workload.IsOnHold(wl):
		return true, c.writeQuota(ctx, wl, func(wl *kueue.Workload) bool { return workload.Unhold(wl, c.now()) })
	case !onHold:
		return false, nil
	case !job.IsSuspended():
		return true, c.stop(ctx, j, kinds.Stop{Reason: kinds.StopNotAdmitted, Message: "Job is on hold"})
	}
	return true, c.writeQuota(ctx, wl, func(wl *kueue.Workload) bool { return workload.Hold(wl, "Job is on hold", c.now()) })
}
