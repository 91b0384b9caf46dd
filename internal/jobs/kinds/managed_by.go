package kinds

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// MultiKueue leaves a job to another cluster through the field managedBy of its spec. What a
// copy there reports comes back through the fields the row lists under sync.

// HasManagedBy: the kind's operator leaves a job alone that spec.managedBy gives to another controller.
func (k *Kind) HasManagedBy() bool { return k.managedBy != nil }

// SyncedFields are the status fields a copy in another cluster reports back.
func (k *Kind) SyncedFields() []FieldPath { return k.sync }

// GrowingFields are counters among them, which never become smaller.
func (k *Kind) GrowingFields() []FieldPath { return k.grows }

// ForwardedFields are the spec fields that may change while a copy runs.
func (k *Kind) ForwardedFields() []FieldPath { return k.forward }

// PatchesStatus: the status of the kind's objects is written here, to clear or to sync it.
func (k *Kind) PatchesStatus() bool {
	return len(k.clearOnStop) > 0 || len(k.sync) > 0 && k.managedBy != nil
}

// ManagedBy is the controller that spec.managedBy names; "" for the kind's own operator.
func (j Object) ManagedBy() string {
	if j.kind.managedBy == nil {
		return ""
	}
	value, _ := j.kind.managedBy.Get(j.Object)
	by, _ := value.(string)
	return by
}

// SetManagedBy names the controller that runs the job.
func (j Object) SetManagedBy(controller string) error {
	return j.kind.managedBy.Set(j.Object, controller)
}

// RemoveManagedBy leaves the job to its kind's own operator.
func (j Object) RemoveManagedBy() {
	if j.kind.managedBy != nil {
		j.kind.managedBy.Remove(j.Object)
	}
}

// HandedOver: MultiKueue runs the job in another cluster, and no pods are made here.
func (j Object) HandedOver() bool { return j.ManagedBy() == kueue.MultiKueueControllerName }

// ExternalFramework is the row of a kind that its own controller queues. Only what Kueue expects
// of such kinds is known of it: the fields spec.managedBy and status.
func ExternalFramework(name string, gvk schema.GroupVersionKind) *Kind {
	return &Kind{
		Name: name, GVK: gvk,
		managedBy: FieldPath{{name: "spec"}, {name: "managedBy"}}, sync: []FieldPath{{{name: "status"}}},
	}
}
