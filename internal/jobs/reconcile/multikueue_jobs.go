package reconcile

import (
	"context"
	"fmt"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/jobs/remote"
)

// A job that another cluster runs is described and admitted here like any other, and started if it
// has a suspend flag. But no pods are made here: the kind's operator leaves the job to the
// controller that spec.managedBy names, and pods stay behind their gate. A copy runs in the other
// cluster and its status is written here. Where an operator here writes that status itself, the
// status of the copy's workload is used.

// staysGated: pods that run in another cluster are never ungated here. runsElsewhere: they are the
// pods of an object, which its copy makes in the other cluster, and report nothing here.
func staysGated(j GenericJob, wl *kueue.Workload) (gated, runsElsewhere bool) {
	g, pods := j.(*podgroups.Group)
	return pods && remote.Dispatched(wl), pods && remote.Dispatched(wl) && g.Parent != nil
}

// isCopy: the job is a copy, and the cluster that dispatched it makes the workload.
func isCopy(j GenericJob) bool {
	g, pods := j.(*podgroups.Group)
	return kinds.IsPrebuilt(j.Meta()) || pods && g.Parent != nil && g.Parent.GetLabels()[kueue.MultiKueueOriginLabel] != ""
}

// restore removes what the admission added to the job. A job that another cluster ran has nothing
// added, but its status is no longer true.
func (c *controller) restore(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	if o, ok := j.(kinds.Object); ok && o.HandedOver() {
		return (&remote.Adapter{Kind: o.Row()}).ForgetStatus(ctx, c.client, o.Unstructured)
	}
	return j.Restore(ctx, c.client, wl, c.stopMark(wl))
}

// stopMark is another one for each time that this process has a workload's job stopped.
func (c *controller) stopMark(wl *kueue.Workload) string {
	evictions := int32(0)
	if stats := wl.Status.SchedulingStats; stats != nil {
		for i := range stats.Evictions {
			evictions += stats.Evictions[i].Count
		}
	}
	return fmt.Sprintf("%s.%s.%d.%t", c.identity, wl.UID, evictions, wl.DeletionTimestamp != nil)
}
