package podgroups

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

func (g *Group) PodSets(ctx context.Context, c client.Reader) ([]kueue.PodSet, error) {
	if g.Parent != nil {
		return g.Parent.PodSets(ctx, c)
	}
	if g.Name == "" {
		return []kueue.PodSet{kinds.PodSetOf(g.Pods[0], kueue.DefaultPodSetName, 1)}, nil
	}
	total, err := g.total()
	if err != nil {
		return nil, err
	}
	members := slices.DeleteFunc(slices.Clone(g.Pods), func(pod *corev1.Pod) bool { return !mayCount(pod) })
	if err := g.validate(members, total); err != nil {
		return nil, err
	}
	var sets []kueue.PodSet
	for _, pod := range members[:min(total, len(members))] {
		role := kueue.PodSetReference(RoleOf(pod))
		if i := slices.IndexFunc(sets, func(set kueue.PodSet) bool { return set.Name == role }); i >= 0 {
			sets[i].Count++
			continue
		}
		sets = append(sets, kinds.PodSetOf(pod, role, 1))
	}
	sets[0].Count += int32(max(0, total-len(members)))
	slices.SortFunc(sets, func(a, b kueue.PodSet) int { return cmp.Compare(a.Name, b.Name) })
	return sets, nil
}

// RoleOf is the role of a pod within its group: pods with the same requests have the same one.
func RoleOf(pod *corev1.Pod) string {
	if role := pod.Annotations[kinds.RoleAnnotation]; role != "" {
		return role
	}
	return RoleHash(&pod.Spec)
}

// RoleHash is computed from everything in a pod's spec that matters to quota and scheduling, as Kueue
// does: it is the name of the pod set in workloads of either.
func RoleHash(spec *corev1.PodSpec) string {
	fields := map[string]any{
		"initContainers": containerFields(spec.InitContainers), "containers": containerFields(spec.Containers),
		"nodeSelector": spec.NodeSelector, "affinity": spec.Affinity, "tolerations": spec.Tolerations,
		"runtimeClassName": spec.RuntimeClassName, "priority": spec.Priority, "topologySpreadConstraints": spec.TopologySpreadConstraints,
		"overhead": spec.Overhead, "resourceClaims": spec.ResourceClaims,
	}
	if spec.Resources != nil {
		fields["resources"] = spec.Resources.Requests
	}
	data, err := json.Marshal(map[string]any{"spec": fields})
	if err != nil {
		panic(err) // every field is plain data
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:8]
}

func containerFields(containers []corev1.Container) []map[string]any {
	var out []map[string]any
	for _, c := range containers {
		out = append(out, map[string]any{"resources": map[string]any{"requests": c.Resources.Requests}, "ports": c.Ports})
	}
	return out
}

// RoleIn is the pod set of a workload that a pod belongs to. The roles of a workload from before they
// were Kueue's are compared by the pods they stand for.
func RoleIn(wl *kueue.Workload, pod *corev1.Pod) string {
	role := RoleOf(pod)
	for i := range wl.Spec.PodSets {
		if string(wl.Spec.PodSets[i].Name) == role {
			return role
		}
	}
	if len(wl.Spec.PodSets) == 1 && (pod.Annotations[kinds.RoleAnnotation] == "" || pod.Annotations[kinds.ParentAnnotation] != "") {
		return string(wl.Spec.PodSets[0].Name) // what it was started with changed its hash, or its parent makes all of them alike
	}
	for i := range wl.Spec.PodSets {
		if RoleHash(&wl.Spec.PodSets[i].Template.Spec) == role {
			return string(wl.Spec.PodSets[i].Name)
		}
	}
	return role
}
