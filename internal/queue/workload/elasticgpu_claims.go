package workload

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/gpu/request"
)

// An ElasticGPUClaim is one device, however many pods use it: it counts once, not per pod. For the
// engine it is a pod set of its own with one pod that needs nothing of a node, on the flavors of the
// pods that use it; in the status it is part of their pod set. Claims on cards of other nodes have flavors of their own.
const (
	claimsSuffix       = "/claims" // no pod set's name has a slash
	remoteClaimsSuffix = "/remote-claims"
)

// cutClaims is the pod set whose claims the engine's pod set stands for.
func cutClaims(name string) (podSet string, remote, claims bool) {
	if podSet, remote = strings.CutSuffix(name, remoteClaimsSuffix); remote {
		return podSet, true, true
	}
	podSet, claims = strings.CutSuffix(name, claimsSuffix)
	return podSet, false, claims
}

// GPUClaims are the names of the ElasticGPUClaims that a workload's pods use, sorted.
func GPUClaims(wl *kueue.Workload) []string {
	var names []string
	for i := range wl.Spec.PodSets {
		names = append(names, claimsOf(&wl.Spec.PodSets[i])...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// PodGPUClaims are the names of the ElasticGPUClaims that a pod uses.
func PodGPUClaims(pod *corev1.Pod) []string {
	var names []string
	for _, use := range request.Uses(pod) {
		names = append(names, use.Claim)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func claimsOf(set *kueue.PodSet) []string {
	var names []string
	for key, name := range set.Template.Annotations {
		if strings.HasPrefix(key, egpu.ClaimPrefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// GPUClaim is what is known of a claim that a workload uses.
type GPUClaim struct {
	Object           *egpu.ElasticGPUClaim // nil: it does not exist
	ChargedElsewhere bool                  // another workload's quota is charged for it, or nobody's while its pods are idle
	// Flavors it was counted on before, by resource.
	Flavors map[string]string
	// Remote: its card is used from other nodes, so the nodes of its pods need not be those of its flavor.
	Remote bool
}

// CountGPUClaims adds to w what the claims of its pods ask for, each once.
func CountGPUClaims(w *admission.Workload, wl *kueue.Workload, transformations *ResourceTransformations, lookup func(name string) GPUClaim) {
	seen := map[string]bool{}
	before := map[string]string{}
	for i := range wl.Spec.PodSets {
		charged, elsewhere := corev1.ResourceList{}, corev1.ResourceList{}
		remote := true
		for _, name := range claimsOf(&wl.Spec.PodSets[i]) {
			claim := lookup(name)
			if claim.Object == nil {
				w.Unready = "ElasticGPUClaim " + name + ", which its pods use, does not exist"
				continue
			}
			if named := claim.Object.Spec.ElasticGPUName; named != "" && claim.Object.Status.Phase != egpu.ClaimBound && w.Admission == nil {
				w.Unready = "ElasticGPUClaim " + name + ", which its pods use, does not have ElasticGPU " + named + ", which it names"
			}
			if seen[name] {
				continue
			}
			seen[name] = true
			list, to := claim.Object.Spec.Resources.Requests, charged
			if len(list) == 0 {
				list = claim.Object.Spec.Resources.Limits
			}
			if claim.ChargedElsewhere {
				to = elsewhere
			} else {
				remote = remote && claim.Remote
			}
			maps.Copy(before, claim.Flavors)
			for resource, amount := range request.Quota(list) {
				add(to, resource, amount)
			}
		}
		quota, _ := transformations.requests(charged)
		if w.Admission != nil {
			other, _ := transformations.requests(elsewhere)
			splitClaims(w, i, quota, other, before)
		} else if len(quota) > 0 {
			requestClaims(w, i, quota, remote)
		}
	}
}

// requestClaims asks for the quota of claims. The status has one flavor for each resource of a pod set, so claims on cards of
// other nodes have their own where its pods, and its other claims, ask for nothing of the kind.
func requestClaims(w *admission.Workload, i int, quota admission.Requests, remote bool) {
	set := &w.PodSets[i]
	for name := range quota {
		remote = remote && set.Requests[name] == 0
	}
	if remote {
		w.PodSets = append(w.PodSets, admission.PodSet{
			Name: set.Name + remoteClaimsSuffix, Count: 1, Requests: quota, NodeRequests: admission.Requests{}, Tolerations: set.Tolerations, Elsewhere: true,
		})
		return
	}
	if set.Group == "" {
		set.Group = set.Name
	}
	w.PodSets = append(w.PodSets, admission.PodSet{
		Name: set.Name + claimsSuffix, Count: 1, Requests: quota, NodeRequests: admission.Requests{}, Group: set.Group,
		NodeSelector: set.NodeSelector, Affinity: set.Affinity, Tolerations: set.Tolerations,
	})
}

// splitClaims separates what claims use from what pods use of an admission, so that pods that are
// done give back only their own. What another workload is charged for is taken out; what the status
// does not mention was charged to a workload that has ended.
func splitClaims(w *admission.Workload, i int, charged, elsewhere admission.Requests, before map[string]string) {
	if i >= len(w.Admission.PodSets) || len(charged)+len(elsewhere) == 0 {
		return
	}
	set := &w.Admission.PodSets[i]
	suffix := claimsSuffix
	if len(set.Elsewhere) > 0 {
		suffix = remoteClaimsSuffix
	}
	part := admission.PodSetAssignment{Name: set.Name + suffix, Count: 1, Flavors: map[string]string{}, Usage: charged}
	takeOut := func(name string, amount int64) {
		if own := w.PodSets[i].Requests[name] * int64(set.Count); set.Usage[name] >= own+amount {
			set.Usage[name] -= amount
		}
	}
	for name, amount := range elsewhere {
		takeOut(name, amount)
	}
	for name, amount := range charged {
		takeOut(name, amount)
		if flavor := cmp.Or(set.Flavors[name], before[name]); flavor != "" {
			part.Flavors[name] = flavor
		}
	}
	w.Admission.PodSets = append(w.Admission.PodSets, part)
}

// GPUClaimFlavors are the flavors that a workload's claims are counted on.
func GPUClaimFlavors(w *admission.Workload) map[string]string {
	flavors := map[string]string{}
	if w.Admission != nil {
		for _, set := range w.Admission.PodSets {
			if _, _, claims := cutClaims(set.Name); claims {
				maps.Copy(flavors, set.Flavors)
			}
		}
	}
	return flavors
}

// MergeGPUClaims adds what claims use to what their pod sets use, as the status shows it.
func MergeGPUClaims(a *admission.Admission) *admission.Admission {
	if !slices.ContainsFunc(a.PodSets, func(set admission.PodSetAssignment) bool { _, _, claims := cutClaims(set.Name); return claims }) {
		return a
	}
	merged := *a
	merged.PodSets = nil
	for _, set := range a.PodSets {
		name, remote, claims := cutClaims(set.Name)
		at := slices.IndexFunc(merged.PodSets, func(s admission.PodSetAssignment) bool { return s.Name == name })
		if !claims || at < 0 {
			set.Flavors, set.Usage = maps.Clone(set.Flavors), maps.Clone(set.Usage)
			merged.PodSets = append(merged.PodSets, set)
			continue
		}
		for resource, flavor := range set.Flavors {
			if resource != admission.Pods {
				merged.PodSets[at].Flavors[resource] = flavor
				merged.PodSets[at].Usage[resource] += set.Usage[resource]
			}
		}
		if remote {
			merged.PodSets[at].Elsewhere = slices.DeleteFunc(slices.Sorted(maps.Keys(set.Flavors)), func(name string) bool { return name == admission.Pods })
		}
	}
	return &merged
}
