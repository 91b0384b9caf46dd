package jobs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A job that another cluster runs is described and admitted here as any other,
// and where it has a flag it is started. But nobody makes its pods: its kind's
// operator leaves it to whom spec.managedBy names, and pods keep their gate. A
// copy runs in the other cluster, and what that says of itself is written here;
// where the pods here say it too, what the copy's workload says.

// sentAway says another cluster runs the workload's job.
func sentAway(wl *kueue.Workload) bool { return wl.Status.ClusterName != nil }

// handedOver says nobody makes the job's pods here.
func handedOver(j job) bool {
	o, ok := j.(object)
	return ok && o.managedBy() == kueue.MultiKueueControllerName
}

func (j object) managedBy() string {
	if j.kind.managedBy == nil {
		return ""
	}
	value, _ := j.kind.managedBy.get(j.Object)
	by, _ := value.(string)
	return by
}

// staysGated: pods that run in another cluster are never let in here. Those of an
// object are made there by a copy of it, and tell nothing here.
func staysGated(j job, wl *kueue.Workload) (gated, mute bool) {
	g, pods := j.(*podGroup)
	return pods && sentAway(wl), pods && sentAway(wl) && g.parent != nil
}

// sentHere: another cluster makes the workload.
func sentHere(j job) bool {
	g, pods := j.(*podGroup)
	return prebuilt(j.meta()) || pods && g.parent != nil && g.parent.GetLabels()[kueue.MultiKueueOriginLabel] != ""
}

// Copies is how jobs of all kinds are run in other clusters.
type Copies struct {
	client  client.Client
	pods    client.Reader // of pods in queues
	kinds   *kinds
	foreign map[schema.GroupKind]*Kind
	changed func(types.NamespacedName)
}

// Tell of workloads that another cluster runs whose job has changed here; to be
// set before the controllers start.
func (c *Copies) Tell(changed func(types.NamespacedName)) { c.changed = changed }

func (c *Copies) tell(kind *Kind, wl *kueue.Workload) {
	if c != nil && c.changed != nil && len(kind.forward) > 0 && wl != nil && sentAway(wl) {
		c.changed(client.ObjectKeyFromObject(wl))
	}
}

// foreignKinds are kinds that their own controllers queue: of them is known
// what Kueue expects of such.
func foreignKinds(names []string) (map[schema.GroupKind]*Kind, error) {
	kinds := map[schema.GroupKind]*Kind{}
	for _, name := range names {
		gvk, _ := schema.ParseKindArg(name)
		if gvk == nil {
			return nil, fmt.Errorf("multiKueue.externalFrameworks: %q is not written as Kind.version.group", name)
		}
		if kinds[gvk.GroupKind()] != nil {
			return nil, fmt.Errorf("multiKueue.externalFrameworks: %q is there twice", name)
		}
		kinds[gvk.GroupKind()] = &Kind{Name: name, GVK: *gvk, managedBy: path{{name: "spec"}, {name: "managedBy"}}, sync: []path{{{name: "status"}}}}
	}
	return kinds, nil
}

// KindOf is the kind of a workload's job, or why, in Kueue's words, jobs of it
// run in no other cluster.
func (c *Copies) KindOf(wl *kueue.Workload) (*Kind, string) {
	if len(wl.OwnerReferences) == 0 {
		return nil, "No multikueue adapter found"
	}
	owner := wl.OwnerReferences[0]
	gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	if kind := c.foreign[gvk.GroupKind()]; kind != nil {
		return kind, ""
	}
	kind := c.kinds.byGroupKind(gvk.GroupKind())
	if kind == nil || len(kind.sync) == 0 && !kind.Mute() || kind.managedBy == nil && !kind.gatesPods() {
		return nil, fmt.Sprintf("No multikueue adapter found for owner kind %q", gvk.String())
	}
	return kind, ""
}

// gatesPods: jobs of the kind can be sent because their pods stay behind their
// gates.
func (k *Kind) gatesPods() bool { return k.isPod() || k.group != nil }

// Mute says an object of the kind cannot tell here how its copy goes: its own
// operator writes its status.
func (k *Kind) Mute() bool { return k.group != nil }

// Shared says several workloads may have one job.
func (k *Kind) Shared() bool { return k.group != nil && !k.group.key.absent() }

// Of are the workloads a job of a kind has here.
func (c *Copies) Of(ctx context.Context, namespace string, kind schema.GroupKind, name string) ([]kueue.Workload, error) {
	list := &kueue.WorkloadList{}
	err := c.client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{ownerNameIndex: ownerKey(kind, name)})
	return list.Items, err
}

// Parts are the objects a workload's job is made of: itself, or its pods.
// Those that are gone are left out.
func (c *Copies) Parts(ctx context.Context, wl *kueue.Workload, kind *Kind) ([]*unstructured.Unstructured, error) {
	var parts []*unstructured.Unstructured
	for _, owner := range wl.OwnerReferences {
		part, err := c.get(ctx, kind, types.NamespacedName{Namespace: wl.Namespace, Name: owner.Name})
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && part.GetUID() == owner.UID {
			parts = append(parts, part)
		}
	}
	return parts, nil
}

func (c *Copies) get(ctx context.Context, kind *Kind, key types.NamespacedName) (*unstructured.Unstructured, error) {
	part := &unstructured.Unstructured{}
	part.SetGroupVersionKind(kind.GVK)
	if !kind.isPod() {
		return part, c.client.Get(ctx, key, part)
	}
	pod := &corev1.Pod{}
	if err := c.pods.Get(ctx, key, pod); err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, err
	}
	part.Object = fields
	part.SetGroupVersionKind(kind.GVK)
	return part, nil
}

// NotHandedOver says, in Kueue's words, why a part would be run here; "" if it
// is left to others.
func (k *Kind) NotHandedOver(part *unstructured.Unstructured) string {
	by := object{part, k}.managedBy()
	if k.gatesPods() || by == kueue.MultiKueueControllerName {
		return ""
	}
	return fmt.Sprintf("Expecting spec.managedBy to be %q not %q", kueue.MultiKueueControllerName, by)
}

// Copy is a part as it is created in another cluster, held, and with a workload
// that is there already. What names the original by its UID is not the copy's.
func (k *Kind) Copy(part *unstructured.Unstructured, workload, origin string) (*unstructured.Unstructured, error) {
	from := part.DeepCopy()
	without(from.Object, string(part.GetUID()))
	copied := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range from.Object {
		if field != "metadata" && field != "status" {
			copied.Object[field] = value
		}
	}
	copied.SetNamespace(part.GetNamespace())
	copied.SetName(part.GetName())
	copied.SetLabels(from.GetLabels())
	copied.SetAnnotations(from.GetAnnotations())
	if !k.Shared() {
		setLabel(copied, PrebuiltLabel, workload)
		setAnnotation(copied, PrebuiltLabel, workload)
	}
	setLabel(copied, kueue.MultiKueueOriginLabel, origin)
	setAnnotation(copied, kueue.MultiKueueOriginUIDAnnotation, string(part.GetUID()))
	if k.managedBy != nil {
		k.managedBy.remove(copied.Object)
	}
	if !k.suspends() {
		return copied, nil
	}
	return copied, object{copied, k}.suspend(true)
}

// IsCopy says that an object in another cluster is a copy of this one, and for
// this workload.
func (k *Kind) IsCopy(copied, part *unstructured.Unstructured, workload string) bool {
	if k.Shared() {
		return copied.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation] == string(part.GetUID())
	}
	return PrebuiltName(copied) == workload
}

// without takes entries with a value out of all maps within an object.
func without(fields map[string]any, value string) {
	for key, field := range fields {
		switch at := field.(type) {
		case string:
			if at == value {
				delete(fields, key)
			}
		case map[string]any:
			without(at, value)
		case []any:
			for _, element := range at {
				if m, ok := element.(map[string]any); ok {
					without(m, value)
				}
			}
		}
	}
}

// TakeBack writes what a copy in another cluster says of itself onto the
// original. Where the original has yet to be started it waits: its status would
// keep it from being changed.
func (k *Kind) TakeBack(ctx context.Context, c client.Client, part, copied *unstructured.Unstructured) (waits bool, err error) {
	switch {
	case k.isPod():
		if node, _ := nested(copied.Object, []string{"spec", "nodeName"}); node == nil {
			return false, nil // that it waits there must not be taken for waiting here
		}
	case k.suspends() && object{part, k}.held() && !(object{copied, k}).held():
		end, err := object{copied, k}.finished()
		if err != nil || !end.ended {
			return err == nil, err
		}
	}
	return false, k.tell(ctx, c, part, copied)
}

// forgetStatus removes what a cluster said of a job that it runs no more, and
// may not have been able to take back.
func (k *Kind) forgetStatus(ctx context.Context, c client.Client, part *unstructured.Unstructured) error {
	return k.tell(ctx, c, part, &unstructured.Unstructured{})
}

// tell writes onto a job what another says of itself. What grows never shrinks.
func (k *Kind) tell(ctx context.Context, c client.Client, part, as *unstructured.Unstructured) error {
	told := part.DeepCopy()
	if err := take(told, as, k.sync); err != nil {
		return err
	}
	for _, p := range k.grows {
		had, _ := p.get(part.Object)
		has, _ := p.get(told.Object)
		before, _ := had.(int64)
		if now, _ := has.(int64); now < before {
			if err := p.set(told.Object, before); err != nil {
				return err
			}
		}
	}
	if equality.Semantic.DeepEqual(told.Object, part.Object) {
		return nil
	}
	return c.Status().Patch(ctx, told, lockedMerge(part))
}

// Forward writes onto a copy in another cluster what may change of the original
// while it runs there.
func (k *Kind) Forward(ctx context.Context, there client.Client, part, copied *unstructured.Unstructured) error {
	wanted := copied.DeepCopy()
	if err := take(wanted, part, k.forward); err != nil || equality.Semantic.DeepEqual(wanted.Object, copied.Object) {
		return err
	}
	return there.Patch(ctx, wanted, lockedMerge(copied))
}

// take has an object say at some paths what another does.
func take(to, from *unstructured.Unstructured, paths []path) error {
	for _, p := range paths {
		value, found := p.get(from.Object)
		if !found {
			p.remove(to.Object)
			continue
		}
		if err := p.set(to.Object, runtime.DeepCopyJSONValue(value)); err != nil {
			return err
		}
	}
	return nil
}
