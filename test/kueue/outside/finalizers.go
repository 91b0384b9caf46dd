package outside

import (
	"context"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// releaser lets objects of queues go that are deleted while others use them. Some suites set up controllers of jobs
// alone: nothing in their process puts finalizers on these, and they delete them in any order.
func releaser(ctx context.Context, cfg *rest.Config) (func(), error) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return func() {
		for _, list := range []client.ObjectList{&kueue.ResourceFlavorList{}, &kueue.AdmissionCheckList{}, &kueue.ClusterQueueList{}} {
			if c.List(ctx, list) != nil {
				return // the suite ends
			}
			_ = apimeta.EachListItem(list, func(item runtime.Object) error {
				obj, ok := item.(client.Object)
				if ok && obj.GetDeletionTimestamp() != nil && controllerutil.RemoveFinalizer(obj, kueue.ResourceInUseFinalizerName) {
					_ = c.Update(ctx, obj) // again, if it changed meanwhile
				}
				return nil
			})
		}
	}, nil
}
