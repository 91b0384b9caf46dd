package jobs

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kinds is the rows in use. It changes while the program runs.
type kinds struct {
	mu   sync.RWMutex
	rows []*Kind
}

func (k *kinds) set(rows []*Kind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rows = rows
}

func (k *kinds) find(match func(*Kind) bool) *Kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if i := slices.IndexFunc(k.rows, match); i >= 0 {
		return k.rows[i]
	}
	return nil
}

func (k *kinds) byName(name string) *Kind {
	return k.find(func(row *Kind) bool { return name != "" && row.Name == name })
}

func (k *kinds) byGVK(gvk schema.GroupVersionKind) *Kind {
	return k.find(func(row *Kind) bool { return row.GVK == gvk })
}

func (k *kinds) byGroupKind(gk schema.GroupKind) *Kind {
	return k.find(func(row *Kind) bool { return row.GVK.GroupKind() == gk })
}

// scope tells which jobs are ours.
type scope struct {
	cached client.Reader
	direct client.Reader // for owners, which may be of any kind
	kinds  *kinds

	withoutQueueName bool
	namespaces       labels.Selector
	external         map[schema.GroupKind]bool
}

// manages says the job is ours: it names a queue, in a namespace that takes
// part, and it is not the part of another job that is.
func (s *scope) manages(ctx context.Context, kind *Kind, obj *unstructured.Unstructured) (bool, error) {
	if queueName(obj) == "" && !s.withoutQueueName {
		return false, nil
	}
	if skip, err := kind.skip.boolean(map[string]any{"object": obj.Object}, false); err != nil || skip {
		return false, err
	}
	return s.independent(ctx, obj, obj.GetNamespace())
}

// independent says nothing above the object is queued in its stead, and its
// namespace takes part.
func (s *scope) independent(ctx context.Context, obj client.Object, namespace string) (bool, error) {
	if !s.namespaces.Empty() {
		ns := &corev1.Namespace{}
		if err := s.cached.Get(ctx, types.NamespacedName{Name: namespace}, ns); err != nil {
			return false, err
		}
		if !s.namespaces.Matches(labels.Set(ns.Labels)) {
			return false, nil
		}
	}
	above, err := s.managedAncestor(ctx, obj, namespace)
	return !above, err
}

// managedAncestor walks up the chain of owners: a Job made by a JobSet made by
// a TrainJob is one job, the TrainJob.
func (s *scope) managedAncestor(ctx context.Context, obj client.Object, namespace string) (bool, error) {
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
		err := s.direct.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, parent)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return false, nil // beyond what we can see nobody is queued by us
		}
		if err != nil {
			return false, err
		}
		row := s.kinds.byGroupKind(gvk.GroupKind())
		queued := row != nil && row.suspends() || s.external[gvk.GroupKind()]
		if queued && (queueName(parent) != "" || s.withoutQueueName) {
			return true, nil
		}
		at = parent
	}
	return false, nil
}

// defaultQueue is the queue of jobs that name none: the namespace's LocalQueue
// called "default", if there is one.
func (s *scope) defaultQueue(ctx context.Context, namespace string) (string, error) {
	queue := &kueue.LocalQueue{}
	err := s.cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: defaultQueue}, queue)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return defaultQueue, err
}

// newest reads an object past the cache if that has not seen it: a job may come
// together with its queue, and cannot be handed over later.
func (s *scope) newest(ctx context.Context, key types.NamespacedName, obj client.Object) (found bool, err error) {
	if err = s.cached.Get(ctx, key, obj); apierrors.IsNotFound(err) {
		err = s.direct.Get(ctx, key, obj)
	}
	return err == nil, client.IgnoreNotFound(err)
}

// leadsElsewhere says a queue sends jobs to other clusters.
func (s *scope) leadsElsewhere(ctx context.Context, namespace string, name kueue.LocalQueueName) (bool, error) {
	local, queue := &kueue.LocalQueue{}, &kueue.ClusterQueue{}
	if found, err := s.newest(ctx, types.NamespacedName{Namespace: namespace, Name: string(name)}, local); err != nil || !found {
		return false, err
	}
	if found, err := s.newest(ctx, types.NamespacedName{Name: string(local.Spec.ClusterQueue)}, queue); err != nil || !found {
		return false, err
	}
	if queue.Spec.AdmissionChecksStrategy == nil {
		return false, nil
	}
	for _, rule := range queue.Spec.AdmissionChecksStrategy.AdmissionChecks {
		check := &kueue.AdmissionCheck{}
		found, err := s.newest(ctx, types.NamespacedName{Name: string(rule.Name)}, check)
		if err != nil {
			return false, err
		}
		if found && check.Spec.ControllerName == kueue.MultiKueueControllerName {
			return true, nil
		}
	}
	return false, nil
}
