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

// move is a pod and the node labels of its place.
type ungating struct {
	pod    *corev1.Pod
	labels map[string]string
}

func gated(pod *corev1.Pod) bool {
	return slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate})
}

// sent says a pod has its place and waits for its node to take it.
func ungatedPending(pod *corev1.Pod) bool {
	return !gated(pod) && pod.Spec.NodeName == "" && pod.Status.Phase == corev1.PodPending
}

// set is what is known of the ranks in a pod set: its pods' own ranks begin at
// first, after those of a smaller set of its group.
type placedPodSet struct {
	assigned *kueue.PodSetAssignment
	request  *kueue.PodSetTopologyRequest
	first    int
}

// place finds the places of the pods that wait: by rank where every pod has
// one, else wherever there is room.
func (s placedPodSet) place(pods []*corev1.Pod) []ungating {
	places, levels := workload.Domains(s.assigned.TopologyAssignment), s.assigned.TopologyAssignment.Levels
	ranks, err := s.ranks(pods, places, levels)
	if err != nil {
		return placeInFreeDomains(pods, places, levels)
	}
	var moves []ungating
	for i, pod := range pods {
		if gated(pod) {
			moves = append(moves, ungating{pod, domainOfRank(places, ranks[i]).Labels(levels)})
		}
	}
	return moves
}

// has says that a pod was sent to one of the set's places.
func (s placedPodSet) assignsTo(pod *corev1.Pod) bool {
	a := s.assigned.TopologyAssignment
	return slices.ContainsFunc(workload.Domains(a), func(d workload.Domain) bool { return d.Matches(pod.Spec.NodeSelector, a.Levels) })
}

// at is the domain of a rank.
func domainOfRank(places []workload.Domain, rank int) *workload.Domain {
	for i := range places {
		if rank < places[i].Count {
			return &places[i]
		}
		rank -= places[i].Count
	}
	return nil
}

func placeInFreeDomains(pods []*corev1.Pod, places []workload.Domain, levels []string) []ungating {
	var waiting []*corev1.Pod
	for _, pod := range pods {
		if gated(pod) {
			waiting = append(waiting, pod)
			continue
		}
		for i := range places {
			if places[i].Count > 0 && places[i].Matches(pod.Spec.NodeSelector, levels) {
				places[i].Count--
				break
			}
		}
	}
	var moves []ungating
	for i := range places {
		for ; places[i].Count > 0 && len(waiting) > 0; places[i].Count-- {
			moves = append(moves, ungating{waiting[0], places[i].Labels(levels)})
			waiting = waiting[1:]
		}
	}
	return moves
}

// ranks are the pods' ranks. They can be gone by only if every pod has one of
// its own that has a place, and those that run are where their rank says.
func (s placedPodSet) ranks(pods []*corev1.Pod, places []workload.Domain, levels []string) ([]int, error) {
	if s.request == nil || s.request.PodIndexLabel == nil {
		return nil, fmt.Errorf("pods have no ranks")
	}
	size := int(ptr.Deref(s.assigned.Count, 0))
	perGroup := size
	if s.request.SubGroupIndexLabel != nil {
		groups := int(ptr.Deref(s.request.SubGroupCount, 0))
		if groups <= 0 {
			return nil, fmt.Errorf("pods are in groups, but nobody says how many")
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
		place := domainOfRank(places, rank)
		if place == nil || (!gated(pod) && !place.Matches(pod.Spec.NodeSelector, levels)) {
			return nil, fmt.Errorf("pod %s is not where rank %d goes", pod.Name, rank)
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

// setsOf are the pod sets of a workload that have places.
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

// before is how many ranks of a set's group belong to a smaller set: the leader
// of a group has rank 0 and its workers the rest.
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
