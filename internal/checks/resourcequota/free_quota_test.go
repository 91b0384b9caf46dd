package resourcequota

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func quota(hard, used corev1.ResourceList, scopes ...corev1.ResourceQuotaScope) corev1.ResourceQuota {
	q := corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: hard, Scopes: scopes}, Status: corev1.ResourceQuotaStatus{Used: used}}
	q.Name = "team"
	return q
}

func asking(count int64, limits corev1.ResourceList) []pods {
	return []pods{{&corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: limits}}}}, count}}
}

func TestProblem(t *testing.T) {
	card := list("nvidia.com/gpu", "1", "cpu", "2")
	classes := quota(list("pods", "1"), list("pods", "1"))
	classes.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
		ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"high"},
	}}}
	urgent := asking(1, card)
	urgent[0].spec.PriorityClassName = "high"
	deadline := asking(1, card)
	deadline[0].spec.ActiveDeadlineSeconds = ptr.To(int64(60))
	for name, test := range map[string]struct {
		quota           corev1.ResourceQuota
		granted, wanted []pods
		want            string
	}{
		"enough": {quota: quota(list("requests.nvidia.com/gpu", "8", "pods", "10"), list("requests.nvidia.com/gpu", "4", "pods", "4")), wanted: asking(4, card)},
		"too many cards": {
			quota: quota(list("requests.nvidia.com/gpu", "8"), list("requests.nvidia.com/gpu", "5")), wanted: asking(4, card),
			want: "ResourceQuota team does not have 4 of requests.nvidia.com/gpu free: 5 of 8 are used",
		},
		"granted to others": {
			quota: quota(list("requests.nvidia.com/gpu", "8"), nil), granted: asking(5, card), wanted: asking(4, card),
			want: "ResourceQuota team does not have 4 of requests.nvidia.com/gpu free: 0 of 8 are used, 5 granted to jobs that are starting",
		},
		"never": {
			quota: quota(list("pods", "3"), nil), wanted: asking(4, card),
			want: "ResourceQuota team does not have 4 of pods free: 0 of 3 are used; its limit is too low for that",
		},
		"requests follow limits, and limits count for themselves": {
			quota: quota(list("cpu", "3", "limits.cpu", "100"), nil), wanted: asking(2, card),
			want: "ResourceQuota team does not have 4 of cpu free: 0 of 3 are used; its limit is too low for that",
		},
		"too much by limits": {
			quota: quota(list("limits.cpu", "3"), list("limits.cpu", "1")), wanted: asking(1, list("cpu", "2500m")),
			want: "ResourceQuota team does not have 2500m of limits.cpu free: 1 of 3 are used",
		},
		"what pods do not take":        {quota: quota(list("count/jobs.batch", "0", "services", "0", "requests.storage", "0"), nil), wanted: asking(1, card)},
		"a scope the pods are not in":  {quota: quota(list("pods", "0"), nil, corev1.ResourceQuotaScopeBestEffort), wanted: asking(1, card)},
		"a class they do not have":     {quota: classes, wanted: asking(1, card)},
		"pods that have a deadline":    {quota: quota(list("pods", "0"), nil, corev1.ResourceQuotaScopeNotTerminating), wanted: deadline},
		"a scope they are in":          {quota: quota(list("pods", "0"), nil, corev1.ResourceQuotaScopeNotTerminating), wanted: asking(1, card), want: "ResourceQuota team does not have 1 of pods free: 0 of 0 are used; its limit is too low for that"},
		"the class they have is taken": {quota: classes, wanted: urgent, want: "ResourceQuota team does not have 1 of pods free: 1 of 1 are used"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := insufficientQuota([]corev1.ResourceQuota{test.quota}, test.granted, test.wanted); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}
