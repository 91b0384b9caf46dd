package cli

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// The session that arena's users know, typed as it stands in their documents.
func TestArenaSession(t *testing.T) {
	tfjobs(t)
	queues(t, "default", "arena", "8")
	t.Cleanup(func() { must(t, "default", "arena delete tfjob-simple tfjob-after") })
	session(t, "default", "arena.txt")
}

var tfjob = schema.GroupVersionKind{Group: "kubeflow.org", Version: "v1", Kind: "TFJob"}

// tfjobs brings in the TFJob of the training operator, and does for the time of
// the test what the operator would: a started job gets a pod for its chief, and
// has succeeded when that has. (The operator itself runs in test/operators.)
func tfjobs(t *testing.T) {
	t.Helper()
	all, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		if crd.GetName() != "tfjobs.kubeflow.org" {
			continue
		}
		unstructured.RemoveNestedField(crd.Object, "status")
		if err := cluster.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(tfjob.GroupVersion().WithKind("TFJobList"))
	sandbox.Eventually(t, "TFJobs are served", func(ctx context.Context) error { return cluster.List(ctx, list) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := cluster.List(ctx, list); err == nil {
				for i := range list.Items {
					operate(ctx, &list.Items[i])
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// operate takes one step; what fails is tried again at the next look.
func operate(ctx context.Context, job *unstructured.Unstructured) {
	if held, _, _ := unstructured.NestedBool(job.Object, "spec", "runPolicy", "suspend"); held {
		return
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = job.GetNamespace(), job.GetName()+"-chief-0"
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		template, _, _ := unstructured.NestedMap(job.Object, "spec", "tfReplicaSpecs", "Chief", "template")
		if runtime.DefaultUnstructuredConverter.FromUnstructured(template, pod) != nil {
			return
		}
		pod.Namespace, pod.Name = job.GetNamespace(), job.GetName()+"-chief-0"
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		if pod.Labels == nil {
			pod.Labels = map[string]string{}
		}
		pod.Annotations[sandbox.RunFor] = "1s"
		pod.Labels["training.kubeflow.org/replica-type"] = "chief"
		pod.Labels["training.kubeflow.org/job-name"] = job.GetName()
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, tfjob)}
		_ = cluster.Create(ctx, pod)
		return
	}
	if pod.Status.Phase != corev1.PodSucceeded {
		return
	}
	now := metav1.Now().UTC().Format(time.RFC3339)
	_ = unstructured.SetNestedSlice(job.Object, []any{map[string]any{
		"type": "Succeeded", "status": "True", "reason": "TFJobSucceeded", "message": "TFJob has successfully completed.",
		"lastTransitionTime": now, "lastUpdateTime": now,
	}}, "status", "conditions")
	_ = unstructured.SetNestedField(job.Object, now, "status", "completionTime")
	_ = cluster.Status().Update(ctx, job)
}
