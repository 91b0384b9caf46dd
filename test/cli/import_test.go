package cli

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// A job and a pod that run in no queue are brought into one: they go on running,
// count in its quota, and are looked after like any other from then on.
func TestImport(t *testing.T) {
	ns := cluster.Namespace(t)
	train := sandbox.Job(ns, "train", "", 2, "2")
	train.Labels = map[string]string{"team": "nlp"}
	train.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	train.Spec.Template.Spec.NodeSelector = map[string]string{"elasticgpu.io/gpu-model": "H100-80G"}
	notebook := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "notebook", Labels: map[string]string{"team": "nlp"}, Annotations: train.Spec.Template.Annotations}, Spec: *train.Spec.Template.Spec.DeepCopy()}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other", Annotations: train.Spec.Template.Annotations}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x:1"}}}}
	cluster.Make(t, train, notebook, other)
	sandbox.Eventually(t, "all run", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := cluster.List(ctx, pods, client.InNamespace(ns)); err != nil {
			return err
		}
		for i := range pods.Items {
			if pods.Items[i].Status.Phase != corev1.PodRunning {
				return fmt.Errorf("%s is %s", pods.Items[i].Name, pods.Items[i].Status.Phase)
			}
		}
		if len(pods.Items) != 4 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		return nil
	})
	before := uids(t, ns)
	session(t, ns, "import-check.txt") // without a queue
	queues(t, ns, ns, "4")             // of fewer cards than are in use
	session(t, ns, "import.txt")

	sandbox.Eventually(t, "the queue counts them", func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: ns}, cq); err != nil {
			return err
		}
		if n := cq.Status.AdmittedWorkloads; n != 2 || len(cq.Status.FlavorsUsage) == 0 || cq.Status.FlavorsUsage[0].Resources[0].Total.Value() != 6 {
			return fmt.Errorf("%d admitted, usage %v", n, cq.Status.FlavorsUsage)
		}
		return nil
	})
	// A job that comes now waits, and starts when an imported one has gone.
	late := sandbox.Job(ns, "late", "main", 1, "1")
	cluster.Make(t, late)
	eventually(t, ns, "elastic explain late", "WaitingForQuota")
	for name, uid := range before {
		if now := uids(t, ns)[name]; now != uid {
			t.Errorf("pod %s was replaced: it must go on running", name)
		}
	}
	job := &batchv1.Job{}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(train), job); err != nil || *job.Spec.Suspend {
		t.Errorf("the job must not be suspended: %v", err)
	}
	must(t, ns, "elastic delete train")
	must(t, ns, "elastic wait late --for running")
}

func uids(t *testing.T, namespace string) map[string]string {
	t.Helper()
	pods := &corev1.PodList{}
	if err := cluster.List(t.Context(), pods, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i := range pods.Items {
		out[pods.Items[i].Name] = string(pods.Items[i].UID)
	}
	return out
}
