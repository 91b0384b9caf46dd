package podgroups

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
	members := slices.DeleteFunc(slices.Clone(g.Pods), func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil
	})
	fast := slices.ContainsFunc(g.Pods, func(pod *corev1.Pod) bool { return pod.Annotations[kinds.GroupFastAdmission] == "true" })
	if len(members) == 0 || len(members) < total && !fast {
		return nil, &kinds.UnretryableError{Err: fmt.Errorf("the group %s has %d of its %d pods", g.Name, len(members), total)}
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

// RoleHash is computed from everything in a pod's spec that matters to quota and scheduling. The
// field names below are part of the hash.
func RoleHash(spec *corev1.PodSpec) string {
	type container struct {
		Resources corev1.ResourceRequirements
		Ports     []corev1.ContainerPort
	}
	var fields struct {
		Init, Main                     []container
		NodeSelector                   map[string]string
		Affinity                       *corev1.Affinity
		Tolerations                    []corev1.Toleration
		RuntimeClass, Scheduler, Class string
		Overhead                       corev1.ResourceList
		Spread                         []corev1.TopologySpreadConstraint
		Claims                         []corev1.PodResourceClaim
	}
	for _, c := range spec.InitContainers {
		fields.Init = append(fields.Init, container{c.Resources, c.Ports})
	}
	for _, c := range spec.Containers {
		fields.Main = append(fields.Main, container{c.Resources, c.Ports})
	}
	fields.NodeSelector, fields.Affinity, fields.Tolerations = spec.NodeSelector, spec.Affinity, spec.Tolerations
	if spec.RuntimeClassName != nil {
		fields.RuntimeClass = *spec.RuntimeClassName
	}
	fields.Scheduler, fields.Class = spec.SchedulerName, spec.PriorityClassName
	fields.Overhead, fields.Spread, fields.Claims = spec.Overhead, spec.TopologySpreadConstraints, spec.ResourceClaims
	data, err := json.Marshal(fields)
	if err != nil {
		panic(err) // every field is plain data
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:8]
}
