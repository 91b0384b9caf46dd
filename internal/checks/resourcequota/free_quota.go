package resourcequota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelpers "k8s.io/component-helpers/resource"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// pods is a number of equal pods that do not exist yet.
type pods struct {
	spec  *corev1.PodSpec
	count int64
}

// insufficientQuota says which quota is too small for the wanted pods beside what is used and what
// is granted to others; "" if none is.
func insufficientQuota(quotas []corev1.ResourceQuota, granted, wanted []pods) string {
	var problems []string
	for i := range quotas {
		quota := &quotas[i]
		for _, name := range sets.List(sets.KeySet(quota.Spec.Hard)) {
			needs := sum(quota, name, wanted)
			if needs.IsZero() {
				continue
			}
			hard, used, others := quota.Spec.Hard[name], quota.Status.Used[name], sum(quota, name, granted)
			free := hard.DeepCopy()
			free.Sub(used)
			free.Sub(others)
			if needs.Cmp(free) <= 0 {
				continue
			}
			text := fmt.Sprintf("ResourceQuota %s does not have %s of %s free: %s of %s are used", quota.Name, needs.String(), name, used.String(), hard.String())
			if !others.IsZero() {
				text += fmt.Sprintf(", %s granted to jobs that are starting", others.String())
			}
			if needs.Cmp(hard) > 0 {
				text += "; its limit is too low for that"
			}
			problems = append(problems, text)
		}
	}
	return strings.Join(problems, "; ")
}

// sum is what pods take of one resource of a quota.
func sum(quota *corev1.ResourceQuota, name corev1.ResourceName, list []pods) resource.Quantity {
	total := resource.Quantity{}
	for _, p := range list {
		if !applies(quota, p.spec) {
			continue
		}
		one := ofOne(p.spec, name)
		one.Mul(p.count)
		total.Add(one)
	}
	return total
}

// ofOne is what one pod takes of a quota's resource. Quotas count other objects too; those exist
// already.
func ofOne(spec *corev1.PodSpec, name corev1.ResourceName) resource.Quantity {
	text := string(name)
	switch {
	case name == corev1.ResourcePods, text == "count/pods":
		return resource.MustParse("1")
	case strings.HasPrefix(text, "limits."):
		limits := resourcehelpers.PodLimits(&corev1.Pod{Spec: *spec}, resourcehelpers.PodResourcesOptions{})
		return limits[corev1.ResourceName(strings.TrimPrefix(text, "limits."))]
	case strings.HasPrefix(text, corev1.DefaultResourceRequestsPrefix):
		return workload.PodRequests(spec)[corev1.ResourceName(strings.TrimPrefix(text, corev1.DefaultResourceRequestsPrefix))]
	case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(text, corev1.ResourceHugePagesPrefix):
		return workload.PodRequests(spec)[name]
	}
	return resource.Quantity{}
}

// applies says that a quota counts such pods: all its scopes match.
func applies(quota *corev1.ResourceQuota, spec *corev1.PodSpec) bool {
	for _, scope := range quota.Spec.Scopes {
		if !inScope(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, spec) {
			return false
		}
	}
	if quota.Spec.ScopeSelector == nil {
		return true
	}
	for _, requirement := range quota.Spec.ScopeSelector.MatchExpressions {
		if !inScope(requirement, spec) {
			return false
		}
	}
	return true
}

// inScope counts a pod if in doubt: a scope that cannot be judged from the template matches.
func inScope(r corev1.ScopedResourceSelectorRequirement, spec *corev1.PodSpec) bool {
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(spec)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(spec)
	case corev1.ResourceQuotaScopePriorityClass:
		class := spec.PriorityClassName
		switch r.Operator {
		case corev1.ScopeSelectorOpIn:
			return slices.Contains(r.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(r.Values, class)
		case corev1.ScopeSelectorOpDoesNotExist:
			return class == ""
		}
		return class != ""
	}
	return true
}

func bestEffort(spec *corev1.PodSpec) bool {
	requests := workload.PodRequests(spec)
	cpu, memory := requests[corev1.ResourceCPU], requests[corev1.ResourceMemory]
	return cpu.IsZero() && memory.IsZero()
}
