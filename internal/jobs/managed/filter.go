package managed

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// Filter decides which jobs are managed.
type Filter struct {
	Cached client.Reader
	Direct client.Reader // for owners, which may be of any kind
	Kinds  *kinds.InUse

	WithoutQueueName bool
	// Pods that name no queue are managed like jobs that name none: in their namespace's default queue,
	// and WithoutQueueName.
	Pods       bool
	Namespaces labels.Selector
	External   map[schema.GroupKind]bool
}

// Manages: the job is one of a queue, and its kind does not leave it alone.
func (f *Filter) Manages(ctx context.Context, kind *kinds.Kind, obj *unstructured.Unstructured) (bool, error) {
	if skip, err := kind.Object(obj).IsSkipped(); err != nil || skip {
		return false, err
	}
	return f.IsQueued(ctx, obj)
}

// IsQueued: the job names a queue, its namespace is selected, and none of its owners is managed.
func (f *Filter) IsQueued(ctx context.Context, obj *unstructured.Unstructured) (bool, error) {
	if kinds.QueueName(obj) == "" && !f.WithoutQueueName {
		return false, nil
	}
	return f.IsIndependent(ctx, obj, obj.GetNamespace())
}

// IsIndependent: the namespace is selected, and no owner of the object is managed in its place.
func (f *Filter) IsIndependent(ctx context.Context, obj client.Object, namespace string) (bool, error) {
	if selected, err := f.selects(ctx, namespace); err != nil || !selected {
		return false, err
	}
	above, err := f.managedAncestor(ctx, obj, namespace)
	return above == nil, err
}

// Ancestor is the highest owner of a job that is managed in its place; nil for none. The owners of an object
// whose own owner is of a kind that is never queued are not read.
func (f *Filter) Ancestor(ctx context.Context, obj client.Object) (client.Object, error) {
	owner := metav1.GetControllerOf(obj)
	if owner == nil || !f.queues(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()) {
		return nil, nil
	}
	if selected, err := f.selects(ctx, obj.GetNamespace()); err != nil || !selected {
		return nil, err
	}
	var top client.Object
	at := obj
	for range mostOwners {
		above, err := f.managedAncestor(ctx, at, obj.GetNamespace())
		if err != nil || above == nil {
			return top, err
		}
		top, at = above, above // a part of a job may name a queue itself
	}
	return top, nil
}

// selects says whether jobs of a namespace are managed. One that was just made may not be in the cache yet.
func (f *Filter) selects(ctx context.Context, namespace string) (bool, error) {
	if f.Namespaces.Empty() {
		return true, nil
	}
	ns, key := &corev1.Namespace{}, types.NamespacedName{Name: namespace}
	err := f.Cached.Get(ctx, key, ns)
	if apierrors.IsNotFound(err) {
		err = f.Direct.Get(ctx, key, ns)
	}
	return err == nil && f.Namespaces.Matches(labels.Set(ns.Labels)), err
}

// queues: objects of the kind can be jobs, with all that they own.
func (f *Filter) queues(kind schema.GroupKind) bool {
	row := f.Kinds.ByGroupKind(kind)
	return row != nil && row.Suspends() || f.External[kind]
}

// mostOwners are followed one above the other: users write them, and they may own each other.
const mostOwners = 10

// managedAncestor walks up the chain of owners: a Job of a JobSet of a TrainJob is one job, the
// TrainJob.
func (f *Filter) managedAncestor(ctx context.Context, obj client.Object, namespace string) (*metav1.PartialObjectMetadata, error) {
	at := metav1.Object(obj)
	for range mostOwners {
		owner := metav1.GetControllerOf(at)
		if owner == nil {
			return nil, nil
		}
		gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
		parent := &metav1.PartialObjectMetadata{}
		parent.SetGroupVersionKind(gvk)
		err := f.Direct.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, parent)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil, nil // we queue nothing that we may not read
		}
		if err != nil {
			return nil, err
		}
		if parent.UID != owner.UID {
			return nil, nil // it only claims to belong to that one
		}
		if f.queues(gvk.GroupKind()) && (kinds.QueueName(parent) != "" || f.WithoutQueueName) {
			return parent, nil
		}
		at = parent
	}
	return nil, nil
}

// DefaultQueue is the queue of jobs that name none: the namespace's LocalQueue called "default", if
// it exists.
func (f *Filter) DefaultQueue(ctx context.Context, namespace string) (string, error) {
	queue := &kueue.LocalQueue{}
	err := f.Cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: kinds.DefaultQueue}, queue)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return kinds.DefaultQueue, err
}

// DefaultPriorityClass is that of jobs that name none: the WorkloadPriorityClass called "default", if it
// exists.
func (f *Filter) DefaultPriorityClass(ctx context.Context) (string, error) {
	class := &kueue.WorkloadPriorityClass{}
	err := f.Cached.Get(ctx, types.NamespacedName{Name: kinds.DefaultPriorityClass}, class)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return kinds.DefaultPriorityClass, err
}
