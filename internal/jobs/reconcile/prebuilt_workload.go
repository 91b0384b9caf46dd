package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// adoptPrebuilt makes a job the owner of the prebuilt workload it names. Until that exists the job
// waits; its creation triggers a reconciliation. A job that runs is stopped, unless one of its workloads is replaced by
// the one it names.
func (c *controller) adoptPrebuilt(ctx context.Context, j GenericJob, had []kueue.Workload) error {
	obj := j.Meta()
	missing := kinds.Stop{Reason: kinds.StopNoMatchingWorkload, Message: "missing workload"}
	if !j.IsSuspended() && !kinds.IsElastic(j) {
		return c.stop(ctx, j, missing)
	}
	wl := &kueue.Workload{}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: obj.GetNamespace(), Name: kinds.PrebuiltName(obj)}, wl)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	found := err == nil
	if !j.IsSuspended() && found && wasReplaced(wl) {
		switch next, err := c.replacementOf(ctx, wl); {
		case err != nil:
			return err
		case next:
			return &requeueError{after: time.Second} // the job is about to name it
		}
	}
	if !j.IsSuspended() && (!found || !replacesOneOf(wl, had)) {
		return c.stop(ctx, j, missing)
	}
	if !found {
		return nil
	}
	switch owner := metav1.GetControllerOf(wl); {
	case owner != nil && owner.UID == obj.GetUID():
		return nil // the cache has yet to see that it was adopted
	case owner != nil:
		return &kinds.UnretryableError{Err: fmt.Errorf("the prebuilt workload %s belongs to %s %s", wl.Name, owner.Kind, owner.Name)}
	}
	owned := wl.DeepCopy()
	j.SetOwner(owned)
	return c.client.Update(ctx, owned)
}

// lacksPrebuilt: the prebuilt workload that a job names is not its own yet. One that runs may name another by now, which
// replaces the one it had.
func lacksPrebuilt(j kinds.Object, wl *kueue.Workload) bool {
	switch name := kinds.PrebuiltName(j.Meta()); {
	case name == "" || wl == nil:
		return name != ""
	default:
		return name != wl.Name && kinds.IsElastic(j) && !j.IsSuspended() && !workload.IsFinished(wl)
	}
}

// replacesOneOf: a workload with quota takes the place of one that the job had.
func replacesOneOf(wl *kueue.Workload, had []kueue.Workload) bool {
	return workload.IsAdmitted(wl) && !workload.IsEvicted(wl) && !workload.IsFinished(wl) &&
		slices.ContainsFunc(had, func(old kueue.Workload) bool { return workload.Replaces(wl) == workload.KeyOf(&old) })
}

// replacementOf: a workload has taken the place of another, and has its quota.
func (c *controller) replacementOf(ctx context.Context, old *kueue.Workload) (bool, error) {
	list := &kueue.WorkloadList{}
	err := c.client.List(ctx, list, client.InNamespace(old.Namespace))
	return slices.ContainsFunc(list.Items, func(wl kueue.Workload) bool { return replacesOneOf(&wl, []kueue.Workload{*old}) }), err
}

// awaitPrebuilt waits for the prebuilt workload of pods, which the cache may not have yet. Pods
// that are deleted meanwhile do not wait.
func (c *controller) awaitPrebuilt(ctx context.Context, j GenericJob) error {
	if g, ok := j.(*podgroups.Group); ok {
		if err := g.ReleaseDeleted(ctx, c.client); err != nil {
			return err
		}
	}
	return &requeueError{time.Second}
}
