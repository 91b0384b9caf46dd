package kinds

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// AdmittedPods is the number of pods the job was started with.
func AdmittedPods(wl *kueue.Workload) int64 {
	var total int64
	for i := range wl.Spec.PodSets {
		total += int64(AdmittedCount(wl, i))
	}
	return total
}

// AdmittedCount is how many pods of a set were admitted, and are still in it: an elastic job may shrink.
func AdmittedCount(wl *kueue.Workload, i int) int32 {
	count := wl.Spec.PodSets[i].Count
	if a := wl.Status.Admission; a != nil && i < len(a.PodSetAssignments) && a.PodSetAssignments[i].Count != nil {
		count = min(count, *a.PodSetAssignments[i].Count)
	}
	return count
}

// ReclaimedCount is how many pods of a set the workload reports as reclaimable.
func ReclaimedCount(wl *kueue.Workload, name kueue.PodSetReference) int32 {
	for _, pods := range wl.Status.ReclaimablePods {
		if pods.Name == name {
			return pods.Count
		}
	}
	return 0
}

// ReclaimablePods lists, in the workload's order, how many pods of a set no longer need quota.
func ReclaimablePods(wl *kueue.Workload, done map[kueue.PodSetReference]int32) []kueue.ReclaimablePod {
	var out []kueue.ReclaimablePod
	for i := range wl.Spec.PodSets {
		if n := min(done[wl.Spec.PodSets[i].Name], wl.Spec.PodSets[i].Count); n > 0 {
			out = append(out, kueue.ReclaimablePod{Name: wl.Spec.PodSets[i].Name, Count: n})
		}
	}
	return out
}
