package sandbox

import (
	"context"
	"errors"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Snapshot is the identity of a namespace's objects: a job that was stopped and
// started has another pod, one that was lost and made again another workload.
type Snapshot struct {
	namespace string
	is        map[string]string
}

// TakeSnapshot of a namespace.
func TakeSnapshot(ctx context.Context, c client.Client, namespace string) (*Snapshot, error) {
	p := &Snapshot{namespace, map[string]string{}}
	workloads, pods, jobs := &kueue.WorkloadList{}, &corev1.PodList{}, &batchv1.JobList{}
	in := client.InNamespace(namespace)
	if err := errors.Join(c.List(ctx, workloads, in), c.List(ctx, pods, in), c.List(ctx, jobs, in)); err != nil {
		return nil, err
	}
	for i := range jobs.Items {
		p.is["job "+jobs.Items[i].Name] = string(jobs.Items[i].UID)
	}
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		p.is["workload "+wl.Name] = string(wl.UID)
		for _, done := range []string{kueue.WorkloadAdmitted, kueue.WorkloadFinished} {
			if c := apimeta.FindStatusCondition(wl.Status.Conditions, done); c != nil && c.Status == metav1.ConditionTrue {
				p.is[wl.Name+" is "+done] = c.LastTransitionTime.String()
			}
		}
	}
	for i := range pods.Items {
		p.is["pod "+pods.Items[i].Name] = string(pods.Items[i].UID)
	}
	return p, nil
}

// MustHold checks that all objects are still there, and none was replaced, or
// admitted a second time.
func (p *Snapshot) MustHold(t *testing.T, c client.Client) {
	t.Helper()
	now, err := TakeSnapshot(t.Context(), c, p.namespace)
	if err != nil {
		t.Fatal(err)
	}
	for name, was := range p.is {
		if now.is[name] != was {
			t.Errorf("%s was %q and is %q", name, was, now.is[name])
		}
	}
}
