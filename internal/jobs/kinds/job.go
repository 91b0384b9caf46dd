package kinds

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Job is what a workload is built from: an object with a suspend flag (Object), or pods
// (podgroups.Group).
type Job interface {
	Meta() client.Object
	// Members are the objects it consists of: itself, or pods.
	Members() []client.Object
	Row() *Kind
	WorkloadName() string
	// SetOwner makes the job the workload's owner, so that the workload is deleted with it.
	SetOwner(wl *kueue.Workload)
	PodSets(ctx context.Context, c client.Reader) ([]kueue.PodSet, error)
	// PriorityClass is the PriorityClass the job itself names for its pods; "" for none.
	PriorityClass() (string, error)
	// HandedOver: MultiKueue runs the job in another cluster, and no pods are made here.
	HandedOver() bool
}

// Outcome is how a job ended, with the job's own message.
type Outcome struct {
	Ended           bool
	Reason, Message string
}

// UnretryableError: the job cannot be read. Only a change of the job helps, so it gets an event
// and is not retried until then.
type UnretryableError struct{ Err error }

func (e *UnretryableError) Error() string { return e.Err.Error() }
func (e *UnretryableError) Unwrap() error { return e.Err }

// MissingError: something that the job names does not exist. The job gets an event, and is tried again: it
// may be created later, or the cache may be behind.
type MissingError struct{ Err error }

func (e *MissingError) Error() string { return e.Err.Error() }
func (e *MissingError) Unwrap() error { return e.Err }

// IsElastic: the job may change its size while it runs. A job that another cluster runs does if its size can be written
// there.
func IsElastic(j Job) bool {
	return j.Row().Spec.Elastic && j.Meta().GetAnnotations()[ElasticAnnotation] == "true" && (!j.HandedOver() || j.Row().hasWritableCounts())
}

// OwnWorkload makes one object the controlling owner of a workload.
func OwnWorkload(wl *kueue.Workload, owner client.Object, gvk schema.GroupVersionKind) {
	wl.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, gvk)}
	SetLabel(wl, JobUIDLabel, string(owner.GetUID()))
}
