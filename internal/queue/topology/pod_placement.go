package topology

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// ungating is a pod and the node labels of its domain.
type ungating struct {
	pod    *corev1.Pod
	labels map[string]string
}

func gated(pod *corev1.Pod) bool {
	return slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate})
}

// topologyAnnotations are what Kueue's webhooks put on pods that a topology assignment places.
var topologyAnnotations = []string{
	kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation,
	kueue.PodSetSliceRequiredTopologyAnnotation, kueue.PodSetSliceRequiredTopologyConstraintsAnnotation,
}

func isTopologyPod(pod *corev1.Pod) bool {
	return slices.ContainsFunc(topologyAnnotations, func(name string) bool { _, has := pod.Annotations[name]; return has })
}

// ungatedPending says that a pod was ungated and is not scheduled yet.
func ungatedPending(pod *corev1.Pod) bool {
	return !gated(pod) && pod.Spec.NodeName == "" && pod.Status.Phase == corev1.PodPending
}

// placedPodSet is a pod set with a topology assignment. The ranks of its pods begin at first, after
// those of a smaller set of its group.
type placedPodSet struct {
	assigned *kueue.PodSetAssignment
	request  *kueue.PodSetTopologyRequest
	first    int
}

// place finds the domains of the gated pods: by rank if every pod has one, otherwise wherever pods
// are missing.
func (s placedPodSet) place(pods []*corev1.Pod) []ungating {
	domains, levels := workload.Domains(s.assigned.TopologyAssignment), s.assigned.TopologyAssignment.Levels
	ranks, err := s.ranks(pods, domains, levels)
	if err != nil {
		return placeInFreeDomains(pods, domains, levels)
	}
	var ungatings []ungating
	for i, pod := range pods {
		if gated(pod) {
			ungatings = append(ungatings, ungating{pod, domainOfRank(domains, ranks[i]).Labels(levels)})
		}
	}
	return ungatings
}

// domainOfRank is the domain of a rank.
func domainOfRank(domains []workload.Domain, rank int) *workload.Domain {
	for i := range domains {
		if rank < domains[i].Count {
			return &domains[i]
		}
		rank -= domains[i].Count
	}
	return nil
}

func placeInFreeDomains(pods []*corev1.Pod, domains []workload.Domain, levels []string) []ungating {
	var waiting []*corev1.Pod
	for _, pod := range pods {
		if gated(pod) {
			waiting = append(waiting, pod)
			continue
		}
		for i := range domains {
			if domains[i].Count > 0 && domains[i].Matches(pod.Spec.NodeSelector, levels) {
				domains[i].Count--
				break
			}
		}
	}
	var ungatings []ungating
	for i := range domains {
		for ; domains[i].Count > 0 && len(waiting) > 0; domains[i].Count-- {
			ungatings = append(ungatings, ungating{waiting[0], domains[i].Labels(levels)})
			waiting = waiting[1:]
		}
	}
	return ungatings
}

// ranks of the pods. They count only if every pod has its own rank with a domain, and pods that are
// ungated are in the domain of their rank.
func (s placedPodSet) ranks(pods []*corev1.Pod, domains []workload.Domain, levels []string) ([]int, error) {
	if s.request == nil || s.request.PodIndexLabel == nil {
		return nil, fmt.Errorf("pods have no ranks")
	}
	size := int(ptr.Deref(s.assigned.Count, 0))
	perGroup := size
	if s.request.SubGroupIndexLabel != nil {
		groups := int(ptr.Deref(s.request.SubGroupCount, 0))
		if groups <= 0 {
			return nil, fmt.Errorf("pods are in groups, but the number of groups is not set")
		}
		perGroup = size / groups
	}
	ranks, taken := make([]int, len(pods)), map[int]bool{}
	for i, pod := range pods {
		rank, err := s.rank(pod, perGroup)
		if err != nil {
			return nil, err
		}
		if rank < 0 || rank >= size || taken[rank] {
			return nil, fmt.Errorf("rank %d of pod %s is not its own, or none of %d", rank, pod.Name, size)
		}
		domain := domainOfRank(domains, rank)
		if domain == nil || (!gated(pod) && !domain.Matches(pod.Spec.NodeSelector, levels)) {
			return nil, fmt.Errorf("pod %s is not in the domain of rank %d", pod.Name, rank)
		}
		ranks[i], taken[rank] = rank, true
	}
	return ranks, nil
}

func (s placedPodSet) rank(pod *corev1.Pod, perGroup int) (int, error) {
	index, err := strconv.Atoi(pod.Labels[*s.request.PodIndexLabel])
	if err != nil {
		return 0, fmt.Errorf("pod %s has no index: %w", pod.Name, err)
	}
	if text := pod.Annotations[kueue.PodIndexOffsetAnnotation]; text != "" {
		offset, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("pod %s: annotation %s: %w", pod.Name, kueue.PodIndexOffsetAnnotation, err)
		}
		index -= offset
	}
	if s.request.SubGroupIndexLabel == nil {
		return index - s.first, nil
	}
	group, err := strconv.Atoi(pod.Labels[*s.request.SubGroupIndexLabel])
	if err != nil || index >= perGroup {
		return 0, fmt.Errorf("pod %s is in no group, or beyond its end: %w", pod.Name, err)
	}
	return group*perGroup + index - s.first, nil
}

// setsOf are the pod sets of a workload that have a topology assignment.
func setsOf(wl *kueue.Workload) []placedPodSet {
	var out []placedPodSet
	for i := range wl.Status.Admission.PodSetAssignments {
		s := placedPodSet{assigned: &wl.Status.Admission.PodSetAssignments[i]}
		if s.assigned.TopologyAssignment == nil {
			continue
		}
		for j := range wl.Spec.PodSets {
			if wl.Spec.PodSets[j].Name == s.assigned.Name {
				s.request = wl.Spec.PodSets[j].TopologyRequest
			}
		}
		s.first = ranksBefore(wl, s)
		out = append(out, s)
	}
	return out
}

// ranksBefore is how many ranks of a set's group belong to a smaller set: the leader of a group has
// rank 0 and its workers the rest.
func ranksBefore(wl *kueue.Workload, s placedPodSet) int {
	if s.request == nil || s.request.PodSetGroupName == nil {
		return 0
	}
	for i, other := range wl.Spec.PodSets {
		r := other.TopologyRequest
		if other.Name == s.assigned.Name || r == nil || ptr.Deref(r.PodSetGroupName, "") != *s.request.PodSetGroupName || i >= len(wl.Status.Admission.PodSetAssignments) {
			continue
		}
		if count := ptr.Deref(wl.Status.Admission.PodSetAssignments[i].Count, 0); count < ptr.Deref(s.assigned.Count, 0) {
			return int(count)
		}
	}
	return 0
}
