package managed

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// UsesMultiKueue: the queue has an admission check that sends its jobs to other clusters.
func (f *Filter) UsesMultiKueue(ctx context.Context, namespace string, name kueue.LocalQueueName) (bool, error) {
	if name == "" {
		return false, nil
	}
	local, queue := &kueue.LocalQueue{}, &kueue.ClusterQueue{}
	if found, err := f.getPastCache(ctx, types.NamespacedName{Namespace: namespace, Name: string(name)}, local); err != nil || !found {
		return false, err
	}
	if found, err := f.getPastCache(ctx, types.NamespacedName{Name: string(local.Spec.ClusterQueue)}, queue); err != nil || !found {
		return false, err
	}
	if queue.Spec.AdmissionChecksStrategy == nil {
		return false, nil
	}
	for _, rule := range queue.Spec.AdmissionChecksStrategy.AdmissionChecks {
		check := &kueue.AdmissionCheck{}
		found, err := f.getPastCache(ctx, types.NamespacedName{Name: string(rule.Name)}, check)
		if err != nil {
			return false, err
		}
		if found && check.Spec.ControllerName == kueue.MultiKueueControllerName {
			return true, nil
		}
	}
	return false, nil
}

// getPastCache reads an object from the API server if the cache does not have it: a job may be
// created together with its queue, and cannot be handed over later.
func (f *Filter) getPastCache(ctx context.Context, key types.NamespacedName, obj client.Object) (found bool, err error) {
	if err = f.Cached.Get(ctx, key, obj); apierrors.IsNotFound(err) {
		err = f.Direct.Get(ctx, key, obj)
	}
	return err == nil, client.IgnoreNotFound(err)
}
