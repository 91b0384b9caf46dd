package kinds

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// View is the state of a job as the CLI shows it.
type View struct {
	// Suspended: nothing of it may run.
	Suspended bool
	// Ended, and how.
	Ended, Succeeded bool
	Message          string
}

// View reads a job of the kind.
func (k *Kind) View(obj *unstructured.Unstructured) (View, error) {
	j := k.Object(obj)
	end, err := j.Finished()
	if err != nil {
		return View{}, err
	}
	return View{
		Suspended: k.Suspends() && j.IsSuspended(),
		Ended:     end.Ended, Succeeded: end.Reason == kueue.WorkloadFinishedReasonSucceeded, Message: end.Message,
	}, nil
}

// Suspend sets the job's suspend flag.
func (k *Kind) Suspend(obj *unstructured.Unstructured, value bool) error {
	return k.Object(obj).Suspend(value)
}

// PodSets are the pods a job of the kind will have, as its workload describes them.
func (k *Kind) PodSets(ctx context.Context, c client.Reader, obj *unstructured.Unstructured) ([]kueue.PodSet, error) {
	return k.Object(obj).PodSets(ctx, c)
}

// WorkloadName is the name of a job's workload.
func (k *Kind) WorkloadName(obj *unstructured.Unstructured) string {
	return k.Object(obj).WorkloadName()
}
