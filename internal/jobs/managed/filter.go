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

// scope tells which jobs are ours.
type Filter struct {
	Cached client.Reader
	Direct client.Reader // for owners, which may be of any kind
	Kinds  *kinds.InUse

	WithoutQueueName bool
	Namespaces       labels.Selector
	External         map[schema.GroupKind]bool
}

// manages says the job is ours: it names a queue, in a namespace that takes
// part, and it is not the part of another job that is.
func (s *Filter) Manages(ctx context.Context, kind *kinds.Kind, obj *unstructured.Unstructured) (bool, error) {
	if kinds.QueueName(obj) == "" && !s.WithoutQueueName {
		return false, nil
	}
	if skip, err := kind.Object(obj).IsSkipped(); err != nil || skip {
		return false, err
	}
	return s.IsIndependent(ctx, obj, obj.GetNamespace())
}

// independent says nothing above the object is queued in its stead, and its
// namespace takes part.
func (s *Filter) IsIndependent(ctx context.Context, obj client.Object, namespace string) (bool, error) {
	if !s.Namespaces.Empty() {
		ns := &corev1.Namespace{}
		if err := s.Cached.Get(ctx, types.NamespacedName{Name: namespace}, ns); err != nil {
			return false, err
		}
		if !s.Namespaces.Matches(labels.Set(ns.Labels)) {
			return false, nil
		}
	}
	above, err := s.managedAncestor(ctx, obj, namespace)
	return !above, err
}

// managedAncestor walks up the chain of owners: a Job made by a JobSet made by
// a TrainJob is one job, the TrainJob.
func (s *Filter) managedAncestor(ctx context.Context, obj client.Object, namespace string) (bool, error) {
	const highest = 10
	at := metav1.Object(obj)
	for range highest {
		owner := metav1.GetControllerOf(at)
		if owner == nil {
			return false, nil
		}
		gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
		parent := &metav1.PartialObjectMetadata{}
		parent.SetGroupVersionKind(gvk)
		err := s.Direct.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, parent)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return false, nil // beyond what we can see nobody is queued by us
		}
		if err != nil {
			return false, err
		}
		row := s.Kinds.ByGroupKind(gvk.GroupKind())
		queued := row != nil && row.Suspends() || s.External[gvk.GroupKind()]
		if queued && (kinds.QueueName(parent) != "" || s.WithoutQueueName) {
			return true, nil
		}
		at = parent
	}
	return false, nil
}

// defaultQueue is the queue of jobs that name none: the namespace's LocalQueue
// called "default", if there is one.
func (s *Filter) DefaultQueue(ctx context.Context, namespace string) (string, error) {
	queue := &kueue.LocalQueue{}
	err := s.Cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: kinds.DefaultQueue}, queue)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return kinds.DefaultQueue, err
}
