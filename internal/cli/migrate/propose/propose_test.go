package propose

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func quota(ns, name string, hard map[string]string) corev1.ResourceQuota {
	q := corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	q.Namespace, q.Name = ns, name
	for key, value := range hard {
		q.Spec.Hard[corev1.ResourceName(key)] = resource.MustParse(value)
	}
	return q
}

func TestFromResourceQuotas(t *testing.T) {
	scoped := quota("vision", "best-effort", map[string]string{"pods": "1"})
	scoped.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")},
	}}}}}
	pod.Namespace = "vision"
	ended := *pod.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	got := FromResourceQuotas([]corev1.ResourceQuota{
		quota("vision", "cards", map[string]string{"requests.nvidia.com/gpu": "8", "requests.cpu": "64", "limits.cpu": "128", "persistentvolumeclaims": "4"}),
		quota("vision", "more", map[string]string{"cpu": "32", "count/pods": "50"}),
		quota("audio", "cards", map[string]string{"requests.nvidia.com/gpu": "4"}),
		quota("web", "services", map[string]string{"services": "2"}),
		scoped,
	}, []corev1.Pod{pod, ended}, Options{Flavor: "default-flavor", LocalQueue: "default", Cohort: "company"})

	var names []string
	for _, p := range got {
		names = append(names, strings.TrimPrefix(p.Object.GetObjectKind().GroupVersionKind().Kind+" "+p.Object.GetNamespace()+"/"+p.Object.GetName(), ""))
	}
	want := "ResourceFlavor /default-flavor, ClusterQueue /audio, LocalQueue audio/default, ClusterQueue /vision, LocalQueue vision/default"
	if text := strings.Join(names, ", "); text != want {
		t.Fatalf("proposed %s\nwant %s", text, want)
	}
	cq := got[3].Object.(*kueue.ClusterQueue)
	var quotas []string
	for _, r := range cq.Spec.ResourceGroups[0].Flavors[0].Resources {
		quotas = append(quotas, string(r.Name)+"="+r.NominalQuota.String())
	}
	if text := strings.Join(quotas, " "); text != "cpu=32 nvidia.com/gpu=8 pods=50" {
		t.Errorf("vision has %s: of two quotas the smaller counts", text)
	}
	if cq.Spec.CohortName != "company" || cq.Spec.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "vision" {
		t.Errorf("the queue is for its namespace alone, in the cohort: %+v", cq.Spec)
	}
	notes := strings.Join(got[3].Notes, "\n")
	for _, want := range []string{
		"nvidia.com/gpu: pods that run now ask for 2 of 8", "pods: pods that run now ask for 1 of 50",
		"memory: pods ask for 1Gi and nothing limits it", "ResourceQuota cards limits limits.cpu, which queues do not",
		"ResourceQuota cards limits persistentvolumeclaims, which queues do not", "ResourceQuota best-effort counts some pods only",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes are\n%s\nwant one that says %q", notes, want)
		}
	}
}
