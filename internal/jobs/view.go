package jobs

import (
	"cmp"
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
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

// Imagine is the workload a job that is not there yet would get.
func (k *Kind) Imagine(ctx context.Context, c client.Reader, obj *unstructured.Unstructured) (*kueue.Workload, error) {
	j := object{obj, k}
	sets, err := j.podSets(ctx, c)
	if err != nil {
		return nil, err
	}
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{
		QueueName: cmp.Or(queueName(obj), defaultQueue), PodSets: sets,
	}}
	wl.Namespace, wl.Name = obj.GetNamespace(), obj.GetName()
	if n, err := strconv.ParseInt(obj.GetLabels()[MaxExecTimeLabel], 10, 32); err == nil && n > 0 {
		wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(n))
	}
	if class := obj.GetLabels()[PriorityClassLabel]; class != "" {
		wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(class)
		return wl, nil
	}
	class, err := podPriorityClass(j, sets)
	if err == nil && class != "" {
		wl.Spec.PriorityClassRef = kueue.NewPodPriorityClassRef(class)
	}
	return wl, err
}

// Workload is the one a job gets, for a caller that creates it in the
// controller's stead: the job runs, and no queue knows it.
func (k *Kind) Workload(ctx context.Context, c client.Client, obj *unstructured.Unstructured) (*kueue.Workload, error) {
	var j job = object{obj, k}
	if k.isPod() {
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, pod); err != nil {
			return nil, err
		}
		j = &podGroup{kind: k, pods: []*corev1.Pod{pod}}
	}
	return (&controller{client: c}).build(ctx, j, j.workloadName())
}
