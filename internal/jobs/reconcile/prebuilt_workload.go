package reconcile

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
)

// adoptPrebuilt makes a job the owner of the prebuilt workload it names. Until that exists the job
// waits; its creation triggers a reconciliation.
func (c *controller) adoptPrebuilt(ctx context.Context, j GenericJob) error {
	obj := j.Meta()
	if !j.IsSuspended() {
		return c.stop(ctx, j, kinds.Stop{Reason: kinds.StopNoMatchingWorkload, Message: "missing workload"})
	}
	wl := &kueue.Workload{}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: obj.GetNamespace(), Name: kinds.PrebuiltName(obj)}, wl)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if owner := metav1.GetControllerOf(wl); owner != nil {
		return &kinds.UnretryableError{Err: fmt.Errorf("the prebuilt workload %s belongs to %s %s", wl.Name, owner.Kind, owner.Name)}
	}
	owned := wl.DeepCopy()
	j.SetOwner(owned)
	return c.client.Update(ctx, owned)
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
