package jobs

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// View is a job as people look at it.
type View struct {
	// Held: nothing of it may run.
	Held bool
	// Ended, and how.
	Ended, Succeeded bool
	Message          string
}

// View reads a job of the kind.
func (k *Kind) View(obj *unstructured.Unstructured) (View, error) {
	j := object{obj, k}
	end, err := j.finished()
	if err != nil {
		return View{}, err
	}
	return View{
		Held:  k.suspends() && j.held(),
		Ended: end.ended, Succeeded: end.reason == kueue.WorkloadFinishedReasonSucceeded, Message: end.message,
	}, nil
}

// Suspends says jobs of the kind have a flag of their own that holds them back.
func (k *Kind) Suspends() bool { return k.suspends() }

// Suspend sets that flag.
func (k *Kind) Suspend(obj *unstructured.Unstructured, value bool) error {
	return object{obj, k}.suspend(value)
}

// PodSets are the pods a job of the kind will have, as its workload says it.
func (k *Kind) PodSets(ctx context.Context, c client.Reader, obj *unstructured.Unstructured) ([]kueue.PodSet, error) {
	return object{obj, k}.podSets(ctx, c)
}

// WorkloadName is the name of a job's workload.
func (k *Kind) WorkloadName(obj *unstructured.Unstructured) string {
	return object{obj, k}.workloadName()
}
