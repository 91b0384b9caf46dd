package jobs

import (
	"context"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// shares is a namespace with a queue of shares of cards.
func shares(t *testing.T, cores string) string {
	t.Helper()
	ns := cluster.Namespace(t)
	queue := sandbox.ClusterQueue(ns, ns, "0")
	queue.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{egpu.ResourceCore, egpu.ResourceMemory},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(ns), Resources: []kueue.ResourceQuota{
			{Name: egpu.ResourceCore, NominalQuota: resource.MustParse(cores)},
			{Name: egpu.ResourceMemory, NominalQuota: resource.MustParse("100000")},
		}}},
	}}
	cluster.Make(t, sandbox.Flavor(ns, map[string]string{"kubernetes.io/arch": "amd64"}), queue, sandbox.LocalQueue(ns, "main", ns))
	t.Cleanup(func() { emptyOut(t, ns) })
	return ns
}

// sharing is a Job of pods that run until they are stopped and request only what is
// given.
func sharing(ns, name string, pods int32, asks corev1.ResourceList) *batchv1.Job {
	job := sandbox.Job(ns, name, "main", pods, "0")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	job.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: asks}
	return job
}

func waitReserved(t *testing.T, queue string, name corev1.ResourceName, want int64) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("%d of %s are taken", want, name), func(ctx context.Context) error {
		now := &kueue.ClusterQueue{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: queue}, now); err != nil {
			return err
		}
		for _, flavor := range now.Status.FlavorsReservation {
			for _, r := range flavor.Resources {
				if r.Name == name && r.Total.Value() == want {
					return nil
				}
			}
		}
		return fmt.Errorf("taken is %v", now.Status.FlavorsReservation)
	})
}

// TestGPUShares: shares of cards are counted in quota as such, and the pods of
// an admitted job carry what the GPU scheduler needs to start them together on
// cards it chooses.
func TestGPUShares(t *testing.T) {
	t.Parallel()
	ns := shares(t, "100")
	job := sharing(ns, "job", 3, corev1.ResourceList{egpu.ResourceCore: resource.MustParse("30"), egpu.ResourceMemory: resource.MustParse("1000")})
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	waitCondition(t, wl, kueue.WorkloadPodsReady, metav1.ConditionTrue)
	waitReserved(t, ns, egpu.ResourceCore, 90)
	waitReserved(t, ns, egpu.ResourceMemory, 3000)
	pods := &corev1.PodList{}
	if err := cluster.List(t.Context(), pods, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if pod.Annotations[kueue.WorkloadAnnotation] != wl.Name || pod.Labels[kinds.PodSetLabel] != "main" {
			t.Errorf("pod %s does not say which job it is of: labels %v, annotations %v", pod.Name, pod.Labels, pod.Annotations)
		}
		if pod.Annotations[egpu.ContainerPrefix+"main"] == "" || pod.Labels[egpu.Assumed] != "true" {
			t.Errorf("pod %s was not given a card: labels %v, annotations %v", pod.Name, pod.Labels, pod.Annotations)
		}
	}
	if len(pods.Items) != 3 {
		t.Errorf("%d pods", len(pods.Items))
	}

	// A job that does not fit beside it waits.
	more := sharing(ns, "more", 1, corev1.ResourceList{egpu.ResourceCore: resource.MustParse("20")})
	cluster.Make(t, more)
	waiting := waitCondition(t, cluster.WorkloadOf(t, more), kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	if !strings.Contains(waiting.Message, string(egpu.ResourceCore)) {
		t.Errorf("it waits for %q", waiting.Message)
	}
}

// TestClaims: a job with pods that use a claim counts with what the claim requests,
// once for all of them, and once for all jobs that share it.
func TestClaims(t *testing.T) {
	t.Parallel()
	ns := shares(t, "100")
	using := func(name string, pods int32) *batchv1.Job {
		job := sharing(ns, name, pods, nil)
		job.Spec.Template.Annotations[egpu.ClaimPrefix+"main"] = "claim"
		return job
	}
	first := using("first", 2)
	cluster.Make(t, first)
	wl := cluster.WorkloadOf(t, first)
	sandbox.Eventually(t, "it waits for the claim", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		reserved := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		if reserved == nil || !strings.Contains(reserved.Message, "ElasticGPUClaim claim, which its pods use, does not exist") {
			return fmt.Errorf("conditions are %s", describe(wl))
		}
		return nil
	})
	class := &egpu.ElasticGPUClass{
		ObjectMeta: metav1.ObjectMeta{Name: ns}, Provisioner: egpu.ProvisionerShare, ReclaimPolicy: egpu.ReclaimDelete, EGPUBindingMode: egpu.BindImmediate,
	}
	claim := &egpu.ElasticGPUClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "claim"},
		Spec: egpu.ElasticGPUClaimSpec{ElasticGPUClassName: &ns, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			egpu.ProvisionerShare + "/gpu-core": resource.MustParse("60"), egpu.ProvisionerShare + "/gpu-memory": resource.MustParse("1024"),
		}}},
	}
	cluster.Make(t, class, claim)
	waitCondition(t, wl, kueue.WorkloadPodsReady, metav1.ConditionTrue) // its pods run, on the claim's card
	waitReserved(t, ns, egpu.ResourceCore, 60)

	// Another job that shares the claim takes no more of the quota.
	second := using("second", 1)
	cluster.Make(t, second)
	waitCondition(t, cluster.WorkloadOf(t, second), kueue.WorkloadAdmitted, metav1.ConditionTrue)
	waitReserved(t, ns, egpu.ResourceCore, 60)

	// As long as one of them runs, no other job gets the claim's quota.
	if err := cluster.Delete(t.Context(), first, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "the first is gone", func(ctx context.Context) error {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl)
		if err == nil {
			return fmt.Errorf("it is there")
		}
		return client.IgnoreNotFound(err)
	})
	other := sharing(ns, "other", 1, corev1.ResourceList{egpu.ResourceCore: resource.MustParse("50")})
	cluster.Make(t, other)
	waiting := cluster.WorkloadOf(t, other)
	waitCondition(t, waiting, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	if err := cluster.Delete(t.Context(), second, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, waiting, kueue.WorkloadAdmitted, metav1.ConditionTrue)
}
