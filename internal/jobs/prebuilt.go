package jobs

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PrebuiltName is the workload that someone else makes for a job; "" for none.
// Kueue writes the name into an annotation, and before v0.18 into a label.
func PrebuiltName(obj client.Object) string {
	return cmp.Or(obj.GetAnnotations()[PrebuiltLabel], obj.GetLabels()[PrebuiltLabel])
}

func prebuilt(obj client.Object) bool { return PrebuiltName(obj) != "" }

// adopt makes the prebuilt workload a job names the job's own. Until it is
// there the job waits; its coming wakes us.
func (c *controller) adopt(ctx context.Context, j job) error {
	obj := j.meta()
	if !j.held() {
		return c.stop(ctx, j, "its prebuilt workload is not admitted")
	}
	wl := &kueue.Workload{}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: obj.GetNamespace(), Name: PrebuiltName(obj)}, wl)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if owner := metav1.GetControllerOf(wl); owner != nil {
		return &misfitError{fmt.Errorf("the prebuilt workload %s belongs to %s %s", wl.Name, owner.Kind, owner.Name)}
	}
	owned := wl.DeepCopy()
	j.own(owned)
	return c.client.Update(ctx, owned) // the update wakes us
}

// await the prebuilt workload of pods: the cache may have yet to see it. Those
// that are deleted meanwhile wait for nothing.
func (c *controller) await(ctx context.Context, j job) error {
	if g, ok := j.(*podGroup); ok {
		if err := g.letDeletedGo(ctx, c.client); err != nil {
			return err
		}
	}
	return &laterError{time.Second}
}
