package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// defaultConcurrency is how many jobs of one kind are reconciled at once.
const defaultConcurrency = 8

// syncControllers stops the controllers of rows that are no longer ready, and starts those that are
// missing.
func (r *registry) syncControllers(ctx context.Context, candidates []*candidate) error {
	wanted := map[string]*candidate{}
	for _, c := range candidates {
		if c.ready() {
			wanted[c.kind.Name] = c
		}
	}
	for name, running := range r.running {
		c := wanted[name]
		if c != nil && reflect.DeepEqual(c.kind.Spec, running.kind.Spec) && c.uid() == running.crd {
			continue
		}
		running.cancel()
		delete(r.running, name)
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(running.kind.GVK)
		if err := r.mgr.GetCache().RemoveInformer(ctx, obj); err != nil {
			return err
		}
		if err := r.common.releaseKind(ctx, running.kind); err != nil {
			return err
		}
		r.mgr.GetLogger().Info("a kind of job is no longer queued", "kind", running.kind.GVK.String())
	}
	for _, c := range candidates {
		if !c.ready() || r.running[c.kind.Name] != nil {
			continue
		}
		if err := r.start(c); err != nil {
			return fmt.Errorf("starting %s: %w", c.kind.Name, err)
		}
	}
	return nil
}

// start runs the controller of a row, if it needs one.
func (r *registry) start(c *candidate) error {
	kind := c.kind
	var reconciler reconcile.Reconciler
	var sources []source.Source
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind.GVK)
	shared := r.mgr.GetCache()
	pods := &podReconciler{controller: r.common, reader: r.podCache, kinds: r.kinds, kind: podKind()}
	switch {
	case kind.IsPod():
		reconciler = pods
		sources = []source.Source{
			source.Kind(r.podCache, client.Object(&corev1.Pod{}), handler.EnqueueRequestsFromMapFunc(
				func(_ context.Context, obj client.Object) []reconcile.Request { return requestForPod(obj) })),
			source.Kind(shared, client.Object(&kueue.Workload{}), handler.EnqueueRequestsFromMapFunc(
				func(_ context.Context, obj client.Object) []reconcile.Request { return requestForWorkload(obj) })),
		}
	case kind.Suspends():
		reconciler = &objectReconciler{controller: r.common, kind: kind}
		sources = []source.Source{
			source.Kind(shared, client.Object(obj), &handler.EnqueueRequestForObject{}),
			source.Kind(shared, client.Object(&kueue.Workload{}), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, wl client.Object) []reconcile.Request {
				return append(r.jobsOfWorkload(kind)(ctx, wl), awaitedJobs(kind, wl)...)
			})),
			source.Kind(r.podCache, client.Object(&corev1.Pod{}), handler.EnqueueRequestsFromMapFunc(r.jobOfPod(kind))),
		}
		if kind.Spec.Elastic || kind.CanRange() {
			sources = append(sources, r.common.elastic.source(kind, r.jobOfElasticPod(kind)))
		}
	case kind.OwnsGroup():
		reconciler = &ownerReconciler{pods, kind}
		sources = []source.Source{source.Kind(shared, client.Object(obj), &handler.EnqueueRequestForObject{})}
	case kind.GroupsPods():
		// The object says how many pods its groups are to have.
		reconciler = pods
		sources = []source.Source{source.Kind(shared, client.Object(obj), handler.EnqueueRequestsFromMapFunc(r.groupsOfObject))}
	}
	ctx, cancel := context.WithCancel(r.leaderCtx)
	r.running[kind.Name] = &run{kind: kind, crd: c.uid(), cancel: cancel}
	if reconciler == nil {
		return nil // the controller of pods reconciles its pods
	}
	ctl, err := ctrlcontroller.NewUnmanaged("job-"+kind.Name, ctrlcontroller.Options{
		Reconciler: reconciler, MaxConcurrentReconciles: cmp.Or(r.concurrency[kind.GVK.GroupKind().String()], defaultConcurrency), SkipNameValidation: ptr.To(true), Logger: r.mgr.GetLogger(),
	})
	if err != nil {
		return err
	}
	for _, s := range sources {
		if err := ctl.Watch(s); err != nil {
			return err
		}
	}
	go func() {
		if err := ctl.Start(ctx); err != nil && ctx.Err() == nil {
			r.mgr.GetLogger().Error(err, "the controller of a kind of job ended", "kind", kind.GVK.String())
		}
	}()
	return nil
}

func podKind() *kinds.Kind {
	for _, kind := range kinds.Table() {
		if kind.IsPod() {
			return kind
		}
	}
	panic("reconcile: the table has no row for pods")
}

// jobsOfWorkload finds the job a workload belongs to: its owner, or, for a prebuilt workload, the
// jobs that name it.
func (r *registry) jobsOfWorkload(kind *kinds.Kind) handler.MapFunc {
	return func(ctx context.Context, wl client.Object) []reconcile.Request {
		key := types.NamespacedName{Namespace: wl.GetNamespace()}
		if extra, ok := wl.(*kueue.Workload); ok && workload.IsExtra(extra) {
			of := &kueue.Workload{}
			if err := r.mgr.GetClient().Get(ctx, types.NamespacedName(workload.ExtraOf(extra)), of); err != nil {
				return nil // it goes with that one
			}
			wl = of
		}
		if owner := metav1.GetControllerOf(wl); owner != nil {
			if schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() != kind.GVK.GroupKind() {
				return nil
			}
			key.Name = owner.Name
			return []reconcile.Request{{NamespacedName: key}}
		}
		if w, ok := wl.(*kueue.Workload); !ok || len(w.Status.Conditions) > 0 {
			return nil // a job that waited for it was requeued when it was created
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
		err := r.mgr.GetClient().List(ctx, list, client.InNamespace(key.Namespace))
		if err != nil {
			return nil // the job itself is reconciled whenever it changes
		}
		var out []reconcile.Request
		for i := range list.Items {
			if kinds.PrebuiltName(&list.Items[i]) == wl.GetName() {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return out
	}
}

// jobOfPod finds the job of a pod through the job's workloads. Only swappable jobs need
// the events of these pods.
func (r *registry) jobOfPod(kind *kinds.Kind) handler.MapFunc {
	return func(ctx context.Context, pod client.Object) []reconcile.Request {
		if pod.GetLabels()[kinds.ManagedLabel] != swapPods {
			return nil
		}
		list := &kueue.WorkloadList{}
		err := r.mgr.GetClient().List(ctx, list, client.InNamespace(pod.GetNamespace()), client.MatchingFields{kinds.OwnerUIDIndex: pod.GetLabels()[kinds.JobUIDLabel]})
		if err != nil || len(list.Items) == 0 {
			return nil // its workload's events requeue the job
		}
		return r.jobsOfWorkload(kind)(ctx, &list.Items[0])
	}
}

// groupsOfObject finds the groups of pods an object describes.
func (r *registry) groupsOfObject(ctx context.Context, obj client.Object) []reconcile.Request {
	list := &kueue.WorkloadList{}
	if err := r.mgr.GetClient().List(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{kinds.OwnerUIDIndex: string(obj.GetUID())}); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, requestForWorkload(&list.Items[i])...)
	}
	return out
}
