package remote

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// Adapter copies the jobs of one kind to other clusters and brings their status back.
type Adapter struct{ *kinds.Kind }

// gatesPods: jobs of the kind can be dispatched because their pods here stay behind their gates.
func gatesPods(kind *kinds.Kind) bool { return kind.IsPod() || kind.GroupsPods() }

// HasLocalStatus: the object's own operator writes its status here, so the status of its copy
// cannot be shown on it.
func (a *Adapter) HasLocalStatus() bool { return a.GroupsPods() }

// SharesJob: several workloads may have the same job.
func (a *Adapter) SharesJob() bool { return a.HasManyGroups() }

// WhyNotHandedOver says, in Kueue's words, why an object would be run here; "" if it is handed over.
func (a *Adapter) WhyNotHandedOver(obj *unstructured.Unstructured) string {
	by := a.Object(obj).ManagedBy()
	if gatesPods(a.Kind) || by == kueue.MultiKueueControllerName {
		return ""
	}
	return fmt.Sprintf("Expecting spec.managedBy to be %q not %q", kueue.MultiKueueControllerName, by)
}

// Copy is an object as it is created in another cluster: suspended, with a workload that is there
// already, and without the fields that hold the UID of the original.
func (a *Adapter) Copy(obj *unstructured.Unstructured, name, origin string) (*unstructured.Unstructured, error) {
	from := obj.DeepCopy()
	removeValue(from.Object, string(obj.GetUID()))
	copied := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range from.Object {
		if field != "metadata" && field != "status" {
			copied.Object[field] = value
		}
	}
	copied.SetNamespace(obj.GetNamespace())
	copied.SetName(obj.GetName())
	copied.SetLabels(from.GetLabels())
	copied.SetAnnotations(from.GetAnnotations())
	if !a.SharesJob() {
		kinds.SetPrebuiltName(copied, name)
	}
	kinds.SetLabel(copied, kueue.MultiKueueOriginLabel, origin)
	kinds.SetAnnotation(copied, kueue.MultiKueueOriginUIDAnnotation, string(obj.GetUID()))
	a.Object(copied).RemoveManagedBy()
	if !a.Suspends() {
		return copied, nil
	}
	return copied, a.Object(copied).Suspend(true)
}

// IsCopy: an object in another cluster is a copy of this one, for this workload.
func (a *Adapter) IsCopy(copied, obj *unstructured.Unstructured, name string) bool {
	if a.SharesJob() {
		return copied.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation] == string(obj.GetUID())
	}
	return kinds.PrebuiltName(copied) == name
}

// IsElastic: the copy of a job follows the sizes of its workload while it runs.
func (a *Adapter) IsElastic(obj *unstructured.Unstructured) bool {
	return kinds.IsElastic(a.Object(obj))
}

// HandOn gives a copy of a running job the workload that replaced its own, and the numbers of pods that this one has. It
// reports whether the copy is that workload's: one that has a later workload by now is not.
func (a *Adapter) HandOn(ctx context.Context, there client.Client, obj, copied *unstructured.Unstructured, name, replaced string, sets []kueue.PodSet) (bool, error) {
	has := kinds.PrebuiltName(copied)
	if copied.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation] != string(obj.GetUID()) || has != name && has != replaced {
		return false, nil
	}
	wanted := copied.DeepCopy()
	kinds.SetPrebuiltName(wanted, name)
	if err := a.Object(wanted).SetCounts(sets); err != nil {
		return false, err
	}
	if equality.Semantic.DeepEqual(wanted.Object, copied.Object) {
		return true, nil
	}
	return true, there.Patch(ctx, wanted, kinds.OptimisticMerge(copied))
}

// removeValue deletes the entries with a value from all maps within an object.
func removeValue(fields map[string]any, value string) {
	for key, field := range fields {
		switch at := field.(type) {
		case string:
			if at == value {
				delete(fields, key)
			}
		case map[string]any:
			removeValue(at, value)
		case []any:
			for _, element := range at {
				if m, ok := element.(map[string]any); ok {
					removeValue(m, value)
				}
			}
		}
	}
}
