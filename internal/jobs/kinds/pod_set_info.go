package kinds

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// PodSetInfo is what an admission adds to the pods of a set.
type PodSetInfo struct {
	Count           int32
	Labels          map[string]string
	Annotations     map[string]string
	NodeSelector    map[string]string
	Tolerations     []corev1.Toleration
	SchedulingGates []corev1.PodSchedulingGate

	checks checkUpdates // what of it is from admission checks
}

// MergeInto adds the info to a pod's metadata and spec. Two different values for the same key are
// an error that no retry solves.
func (info PodSetInfo) MergeInto(meta *metav1.ObjectMeta, spec *corev1.PodSpec) error {
	if info.Annotations[kueue.WorkloadSliceNameAnnotation] != "" { // an elastic job may have those of an earlier slice
		delete(meta.Annotations, kueue.WorkloadSliceNameAnnotation)
		delete(meta.Annotations, kueue.WorkloadAnnotation)
	}
	for _, part := range []struct {
		what string
		to   *map[string]string
		from map[string]string
	}{
		{"label", &meta.Labels, info.Labels},
		{"annotation", &meta.Annotations, info.Annotations},
		{"node selector", &spec.NodeSelector, info.NodeSelector},
	} {
		if err := merge(part.what, part.to, part.from); err != nil {
			return err
		}
	}
	for _, toleration := range info.Tolerations {
		if !slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, toleration) }) {
			spec.Tolerations = append(spec.Tolerations, toleration)
		}
	}
	for _, gate := range info.SchedulingGates {
		if !slices.Contains(spec.SchedulingGates, gate) {
			spec.SchedulingGates = append(spec.SchedulingGates, gate)
		}
	}
	return nil
}

// AvoidNodes has no pod be on some nodes. Of a kind's fields an admission may set no affinity: JobSet, and others, refuse
// that. So the pods are made with a gate, and get their affinity as it is removed.
func (info *PodSetInfo) AvoidNodes(nodes []string) {
	if len(nodes) == 0 {
		return
	}
	info.Annotations[v1alpha1.AvoidNodesAnnotation] = strings.Join(nodes, ",")
	info.HoldForAvoidNodes()
}

// HoldForAvoidNodes has pods be made with the gate that is removed as they get their affinity.
func (info *PodSetInfo) HoldForAvoidNodes() {
	if !slices.Contains(info.SchedulingGates, avoidNodesGate) {
		info.SchedulingGates = append(info.SchedulingGates, avoidNodesGate)
	}
}

var avoidNodesGate = corev1.PodSchedulingGate{Name: v1alpha1.AvoidNodesGate}

// avoidedNodes are the nodes that the pods are not to be on.
func (info *PodSetInfo) avoidedNodes() []string {
	if text := info.Annotations[v1alpha1.AvoidNodesAnnotation]; text != "" {
		return strings.Split(text, ",")
	}
	return nil
}

// AddUpdates adds what an admission check wants to change in a pod set.
func (info *PodSetInfo) AddUpdates(updates []kueue.PodSetUpdate, name kueue.PodSetReference) error {
	for _, u := range updates {
		if u.Name != name {
			continue
		}
		if err := errors.Join(
			merge("label", &info.Labels, u.Labels),
			merge("annotation", &info.Annotations, u.Annotations),
			merge("node selector", &info.NodeSelector, u.NodeSelector),
		); err != nil {
			return err
		}
		info.Tolerations = append(info.Tolerations, u.Tolerations...)
		info.checks.add(&u)
	}
	return nil
}

// removePodSetInfo removes what an admission has added to a template. Scheduling fields are reset
// to what the workload says the user wrote. Labels and annotations may have been changed by others
// since, so only those that an admission adds are reset.
func removePodSetInfo(template, written *corev1.PodTemplateSpec, checks checkUpdates) {
	labels := []string{PodSetLabel, LocalQueueLabel, ClusterQueueLabel, ManagedLabel, JobUIDLabel, kueue.MultiKueueWorkerWorkloadPodLabel}
	annotations := []string{kueue.WorkloadAnnotation, kueue.WorkloadSliceNameAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation, egpu.OnPreemptionAnnotation, v1alpha1.AvoidNodesAnnotation, cloudv1.PriceAnnotation, cloudv1.BoughtAtAnnotation}
	reset(&template.Labels, written.Labels, append(labels, checks.Labels...))
	reset(&template.Annotations, written.Annotations, append(annotations, checks.Annotations...))
	template.Spec.NodeSelector = written.Spec.NodeSelector
	template.Spec.Tolerations = written.Spec.Tolerations
	template.Spec.SchedulingGates = written.Spec.SchedulingGates
	template.Spec.Affinity = written.Spec.Affinity // written only where there are no gates
}

// reset some keys to what they were.
func reset(of *map[string]string, before map[string]string, keys []string) {
	for _, key := range keys {
		delete(*of, key)
		value, found := before[key]
		if !found {
			continue
		}
		if *of == nil {
			*of = map[string]string{}
		}
		(*of)[key] = value
	}
}

func merge(what string, to *map[string]string, from map[string]string) error {
	if len(from) > 0 && *to == nil {
		*to = map[string]string{}
	}
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if old, taken := (*to)[key]; taken && old != from[key] {
			return &PodSetConflictError{what: what, key: key, have: old, want: from[key]}
		}
		(*to)[key] = from[key]
	}
	return nil
}

// PodSetConflictError: a job cannot be started as it was admitted.
type PodSetConflictError struct{ what, key, have, want string }

func (e *PodSetConflictError) Error() string {
	return fmt.Sprintf("the %s %s is already %q and cannot become %q", e.what, e.key, e.have, e.want)
}
