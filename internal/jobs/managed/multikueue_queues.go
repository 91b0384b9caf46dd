package managed

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// leadsElsewhere says a queue sends jobs to other clusters.
func (s *Filter) UsesMultiKueue(ctx context.Context, namespace string, name kueue.LocalQueueName) (bool, error) {
	local, queue := &kueue.LocalQueue{}, &kueue.ClusterQueue{}
	if found, err := s.getPastCache(ctx, types.NamespacedName{Namespace: namespace, Name: string(name)}, local); err != nil || !found {
		return false, err
	}
	if found, err := s.getPastCache(ctx, types.NamespacedName{Name: string(local.Spec.ClusterQueue)}, queue); err != nil || !found {
		return false, err
	}
	if queue.Spec.AdmissionChecksStrategy == nil {
		return false, nil
	}
	for _, rule := range queue.Spec.AdmissionChecksStrategy.AdmissionChecks {
		check := &kueue.AdmissionCheck{}
		found, err := s.getPastCache(ctx, types.NamespacedName{Name: string(rule.Name)}, check)
		if err != nil {
			return false, err
		}
		if found && check.Spec.ControllerName == kueue.MultiKueueControllerName {
			return true, nil
		}
	}
	return false, nil
}

// newest reads an object past the cache if that has not seen it: a job may come
// together with its queue, and cannot be handed over later.
func (s *Filter) getPastCache(ctx context.Context, key types.NamespacedName, obj client.Object) (found bool, err error) {
	if err = s.Cached.Get(ctx, key, obj); apierrors.IsNotFound(err) {
		err = s.Direct.Get(ctx, key, obj)
	}
	return err == nil, client.IgnoreNotFound(err)
}
