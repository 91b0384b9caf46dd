package reconcile

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// reportProgress writes whether a running job's pods are ready, and which it no longer needs.
func (c *controller) reportProgress(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	ready, err := j.PodsReady(ctx, c.client, wl)
	if err != nil {
		return err
	}
	reclaimable, err := j.ReclaimablePods(ctx, c.client, wl)
	if err != nil {
		return err
	}
	return c.report(ctx, wl, func(wl *kueue.Workload) bool {
		changed := !equality.Semantic.DeepEqual(reclaimable, wl.Status.ReclaimablePods)
		wl.Status.ReclaimablePods = reclaimable
		return c.reportReadiness(wl, ready) || changed
	})
}

func (c *controller) reportReadiness(wl *kueue.Workload, ready bool) bool {
	had := workload.HadPodsReady(wl)
	if c.noPodsReady {
		return false
	}
	switch was := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady); {
	case ready && had && was.Status == metav1.ConditionTrue:
		return false
	case ready && had:
		return workload.PodsReady(wl, true, kueue.WorkloadRecovered, "All pods reached readiness and the workload is running", c.now())
	case ready:
		return workload.PodsReady(wl, true, kueue.WorkloadStarted, "All pods reached readiness and the workload is running", c.now())
	case had:
		return workload.PodsReady(wl, false, kueue.WorkloadWaitForRecovery, "At least one pod has failed, waiting for recovery", c.now())
	}
	return c.notStarted(wl)
}

// reportAbsentPods says in a group's workload that pods have to be replaced before it can go on.
func (c *controller) reportAbsentPods(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	g, ok := j.(*podgroups.Group)
	if !ok || !workload.WaitForReplacementPods(wl.DeepCopy(), g.AbsentPods(wl) > 0, c.now()) {
		return false, nil
	}
	return true, c.report(ctx, wl, func(wl *kueue.Workload) bool {
		return workload.WaitForReplacementPods(wl, g.AbsentPods(wl) > 0, c.now())
	})
}

// report writes the part of a workload's status that is the job's, if it changed.
func (c *controller) report(ctx context.Context, wl *kueue.Workload, change func(*kueue.Workload) bool) error {
	wl = wl.DeepCopy()
	if !change(wl) {
		return nil
	}
	data, err := workload.JobPatch(wl)
	if err != nil {
		return err
	}
	return c.apply(ctx, wl, data, workload.JobManager)
}

func (c *controller) notStarted(wl *kueue.Workload) bool {
	return workload.PodsReady(wl, false, kueue.WorkloadWaitForStart, "Not all pods are ready or succeeded", c.now())
}

// releaseQuota releases an evicted workload's quota. The workload is requeued, unless it leaves for
// good.
func (c *controller) releaseQuota(ctx context.Context, wl *kueue.Workload, forGood bool) error {
	return c.writeQuota(ctx, wl, func(wl *kueue.Workload) bool {
		changed := workload.Release(wl, "The job has stopped", c.now())
		if forGood {
			changed = workload.PreventRequeue(wl, c.now()) || changed
		}
		return changed
	})
}

// writeQuota writes the part of a workload's status that says which quota it has, if it changed.
func (c *controller) writeQuota(ctx context.Context, wl *kueue.Workload, change func(*kueue.Workload) bool) error {
	wl = wl.DeepCopy()
	if !change(wl) {
		return nil
	}
	data, err := workload.AdmissionPatch(wl)
	if err != nil {
		return err
	}
	return c.apply(ctx, wl, data, workload.AdmissionManager)
}

func (c *controller) apply(ctx context.Context, wl *kueue.Workload, data []byte, manager string) error {
	return c.client.Status().Patch(ctx, wl, client.RawPatch(types.ApplyYAMLPatchType, data),
		client.FieldOwner(manager), client.ForceOwnership)
}
