package remote

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// Dispatched: another cluster runs the workload's job.
func Dispatched(wl *kueue.Workload) bool { return wl.Status.ClusterName != nil }

// Adapters find out how jobs of a kind are run in other clusters.
type Adapters struct {
	client   client.Client
	pods     client.Reader // of pods in queues
	kinds    *kinds.InUse
	external map[schema.GroupKind]*kinds.Kind
	changed  func(types.NamespacedName)
}

// NewAdapters reads objects through the client and pods through the reader. externalFrameworks
// are kinds, as "Kind.version.group", that their own controllers queue.
func NewAdapters(c client.Client, pods client.Reader, inUse *kinds.InUse, externalFrameworks []string) (*Adapters, error) {
	external, err := externalKinds(externalFrameworks)
	return &Adapters{client: c, pods: pods, kinds: inUse, external: external}, err
}

func externalKinds(names []string) (map[schema.GroupKind]*kinds.Kind, error) {
	out := map[schema.GroupKind]*kinds.Kind{}
	for _, name := range names {
		gvk, _ := schema.ParseKindArg(name)
		if gvk == nil {
			return nil, fmt.Errorf("multiKueue.externalFrameworks: %q is not written as Kind.version.group", name)
		}
		if out[gvk.GroupKind()] != nil {
			return nil, fmt.Errorf("multiKueue.externalFrameworks: %q is there twice", name)
		}
		out[gvk.GroupKind()] = kinds.ExternalFramework(name, *gvk)
	}
	return out, nil
}

// OnJobChange is called with each workload that another cluster runs and whose job has changed
// here. It is to be set before the controllers start.
func (a *Adapters) OnJobChange(changed func(types.NamespacedName)) { a.changed = changed }

// JobChanged reports a change of a job if its copy in another cluster follows such changes.
func (a *Adapters) JobChanged(kind *kinds.Kind, wl *kueue.Workload) {
	if a != nil && a.changed != nil && len(kind.ForwardedFields()) > 0 && wl != nil && Dispatched(wl) {
		a.changed(client.ObjectKeyFromObject(wl))
	}
}

// For is the adapter of a workload's job, or, in Kueue's words, why jobs of its kind run in no
// other cluster.
func (a *Adapters) For(wl *kueue.Workload) (*Adapter, string) {
	if len(wl.OwnerReferences) == 0 {
		return nil, "No multikueue adapter found"
	}
	owner := wl.OwnerReferences[0]
	gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	if kind := a.external[gvk.GroupKind()]; kind != nil {
		return &Adapter{kind}, ""
	}
	kind := a.kinds.ByGroupKind(gvk.GroupKind())
	if kind == nil || len(kind.SyncedFields()) == 0 && !kind.GroupsPods() || !kind.HasManagedBy() && !gatesPods(kind) {
		return nil, fmt.Sprintf("No multikueue adapter found for owner kind %q", gvk.String())
	}
	return &Adapter{kind}, ""
}

// WorkloadsOf are the workloads a job of a kind has here.
func (a *Adapters) WorkloadsOf(ctx context.Context, namespace string, kind schema.GroupKind, name string) ([]kueue.Workload, error) {
	list := &kueue.WorkloadList{}
	err := a.client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{kinds.OwnerNameIndex: kinds.OwnerKey(kind, name)})
	return list.Items, err
}

// JobObjects are the objects a workload's job consists of: itself, or its pods. Deleted ones are
// left out.
func (a *Adapters) JobObjects(ctx context.Context, wl *kueue.Workload, adapter *Adapter) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, owner := range wl.OwnerReferences {
		obj, err := a.get(ctx, adapter.Kind, types.NamespacedName{Namespace: wl.Namespace, Name: owner.Name})
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && obj.GetUID() == owner.UID {
			out = append(out, obj)
		}
	}
	return out, nil
}

func (a *Adapters) get(ctx context.Context, kind *kinds.Kind, key types.NamespacedName) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind.GVK)
	if !kind.IsPod() {
		return obj, a.client.Get(ctx, key, obj)
	}
	pod := &corev1.Pod{}
	if err := a.pods.Get(ctx, key, pod); err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, err
	}
	obj.Object = fields
	obj.SetGroupVersionKind(kind.GVK)
	return obj, nil
}
