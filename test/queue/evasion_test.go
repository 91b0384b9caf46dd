package queue

import (
	"context"
	"fmt"
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

func plainPod(namespace, name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: map[string]string{sandbox.RunFor: "forever"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "example.com/train:1",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{sandbox.GPU: resource.MustParse("1")}},
		}}},
	}
}

// A pod's author may change the pod, and still does not start it: not by a label that says it is managed
// already, and not by taking its gate off.
func TestAuthorsDoNotUngateTheirPods(t *testing.T) {
	ns := queueFor(t, "0")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: ns + "-author"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get", "update", "patch", "delete"},
	}}}
	cluster.Make(t, role)
	author := as(t, ns+"-author", role.Name, ns)
	for name, labels := range map[string]map[string]string{
		"plain":  {"kueue.x-k8s.io/queue-name": "main"},
		"forged": {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/managed": "true"},
	} {
		pod := plainPod(ns, name, labels)
		if err := author.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if len(pod.Spec.SchedulingGates) == 0 {
			t.Fatalf("pod %s is not gated", name)
		}
		waitCondition(t, cluster.WorkloadOf(t, pod), kueue.WorkloadQuotaReserved, false)
		sandbox.Eventually(t, "the gate stays", func(ctx context.Context) error {
			if err := author.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			pod.Spec.SchedulingGates = nil
			err := author.Update(ctx, pod)
			if apierrors.IsConflict(err) {
				return err
			}
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				t.Fatalf("its author takes the gate off: %v", err)
			}
			return nil
		})
		// Everything else about it is the author's.
		sandbox.Eventually(t, "the author labels the pod", func(ctx context.Context) error {
			if err := author.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			pod.Labels["team"] = "a"
			return author.Update(ctx, pod)
		})
		if err := author.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
}

// Where every job needs a queue, and pods are among the kinds, a pod without one waits for it.
func TestPodsWithoutAQueueWaitWhereOneIsNeeded(t *testing.T) {
	was := v1alpha1.QueueConfiguration{}
	cluster.Reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) {
		was = *cfg
		cfg.ManageJobsWithoutQueueName = true
		cfg.ManagedJobsNamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"needs-a-queue": "yes"}}
		cfg.Integrations = &kueueconfig.Integrations{Frameworks: []string{"batch/job", "pod"}}
	})
	t.Cleanup(func() {
		cluster.Reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) {
			cfg.ManageJobsWithoutQueueName, cfg.Integrations = was.ManageJobsWithoutQueueName, was.Integrations
			cfg.ManagedJobsNamespaceSelector = &metav1.LabelSelector{}
		})
		sandbox.Eventually(t, "jobs of every namespace are sent to the webhook again", func(ctx context.Context) error {
			hooks := &admissionregv1.MutatingWebhookConfiguration{}
			if err := cluster.Get(ctx, client.ObjectKey{Name: "elastic-queue-jobs"}, hooks); err != nil {
				return err
			}
			for _, hook := range hooks.Webhooks {
				if len(hook.NamespaceSelector.MatchLabels) > 0 {
					return fmt.Errorf("%s is for %v alone", hook.Name, hook.NamespaceSelector.MatchLabels)
				}
			}
			return nil
		})
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: map[string]string{"needs-a-queue": "yes"}}}
	cluster.Make(t, namespace)
	var pod *corev1.Pod
	sandbox.Eventually(t, "pods are sent to the webhook", func(ctx context.Context) error {
		pod = plainPod(namespace.Name, "", nil)
		pod.GenerateName = "bare-"
		if err := cluster.Create(ctx, pod); err != nil {
			return err // the webhook is not up yet
		}
		if len(pod.Spec.SchedulingGates) == 0 {
			return fmt.Errorf("pod %s is not gated", pod.Name)
		}
		return nil
	})
	waitReason(t, cluster.WorkloadOf(t, pod), kueue.WorkloadQuotaReserved, false, kueue.WorkloadInadmissible)
	elsewhere := plainPod(cluster.Namespace(t), "bare", nil)
	cluster.Make(t, elsewhere)
	if len(elsewhere.Spec.SchedulingGates) > 0 {
		t.Error("a pod is gated in a namespace that is not selected")
	}
}
