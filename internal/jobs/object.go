package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Labels and annotations people put on jobs.
const (
	QueueNameLabel     = "kueue.x-k8s.io/queue-name" // also read as an annotation, as old jobs carry it
	PriorityClassLabel = "kueue.x-k8s.io/priority-class"
	JobUIDLabel        = "kueue.x-k8s.io/job-uid"
	MinParallelism     = "kueue.x-k8s.io/job-min-parallelism"
)

// job is an object seen through its row.
type job struct {
	*unstructured.Unstructured
	kind *Kind
}

func (j job) queueName() kueue.LocalQueueName {
	return kueue.LocalQueueName(cmp.Or(j.GetLabels()[QueueNameLabel], j.GetAnnotations()[QueueNameLabel]))
}

func (j job) suspended() bool {
	suspended, _, _ := unstructured.NestedBool(j.Object, fields(j.kind.Suspend)...)
	return suspended
}

func (j job) setSuspended(value bool) error {
	return unstructured.SetNestedField(j.Object, value, fields(j.kind.Suspend)...)
}

// finished tells whether the job has ended, how, and its own words about it.
func (j job) finished() (ended bool, reason, message string) {
	conditions, _, _ := unstructured.NestedSlice(j.Object, fields(j.kind.Conditions)...)
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if !ok || condition["status"] != "True" {
			continue
		}
		name, _ := condition["type"].(string)
		text, _ := condition["message"].(string)
		switch {
		case slices.Contains(j.kind.Succeeded, name):
			return true, kueue.WorkloadFinishedReasonSucceeded, cmp.Or(text, "Job finished successfully")
		case slices.Contains(j.kind.Failed, name):
			return true, kueue.WorkloadFinishedReasonFailed, cmp.Or(text, "Job failed")
		}
	}
	return false, "", ""
}

// active is the number of pods that may still run.
func (j job) active() int64 { return j.number(j.kind.Active, 0) }

// podsReady says every pod the job wants is up or done.
func (j job) podsReady(sets []kueue.PodSet) bool {
	var want int64
	for _, set := range sets {
		want += int64(set.Count)
	}
	return j.number(j.kind.Ready, 0)+j.number(j.kind.Done, 0) >= want
}

func (j job) number(path string, otherwise int64) int64 {
	if path == "" {
		return otherwise
	}
	n, found, err := unstructured.NestedInt64(j.Object, fields(path)...)
	if !found || err != nil {
		return otherwise
	}
	return n
}

// podSets reads the templates and counts.
func (j job) podSets() ([]kueue.PodSet, error) {
	var sets []kueue.PodSet
	for _, row := range j.kind.PodSets {
		raw, found, err := unstructured.NestedMap(j.Object, fields(row.Template)...)
		if err != nil || !found {
			return nil, fmt.Errorf("%s has no pod template at %s", j.kind.GVK.Kind, row.Template)
		}
		set := kueue.PodSet{Name: kueue.NewPodSetReference(row.Name)}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &set.Template); err != nil {
			return nil, fmt.Errorf("pod template at %s: %w", row.Template, err)
		}
		count := j.number(row.Count, 1)
		set.Count = int32(min(count, j.number(row.AtMost, count)))
		sets = append(sets, set)
	}
	return sets, nil
}

// inject lays onto the job's pod templates what an admission decided: the base
// templates are the workload's, which hold what the user wrote.
func (j job) inject(base []kueue.PodSet, additions []podSetInfo) error {
	for i, row := range j.kind.PodSets {
		template := base[i].Template.DeepCopy()
		if additions != nil {
			additions[i].addTo(template)
		}
		if err := j.setScheduling(row.Template, template); err != nil {
			return err
		}
	}
	return nil
}

// setScheduling writes the parts of a template that steer where pods go, and
// leaves the rest, which the job's own API may forbid to change.
func (j job) setScheduling(path string, template *corev1.PodTemplateSpec) error {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(template)
	if err != nil {
		return err
	}
	for _, field := range []string{"metadata.labels", "metadata.annotations", "spec.nodeSelector", "spec.tolerations", "spec.schedulingGates"} {
		target := append(fields(path), fields(field)...)
		value, found, _ := unstructured.NestedFieldNoCopy(raw, fields(field)...)
		if !found {
			unstructured.RemoveNestedField(j.Object, target...)
			continue
		}
		if err := unstructured.SetNestedField(j.Object, value, target...); err != nil {
			return err
		}
	}
	return nil
}

func fields(path string) []string { return strings.Split(path, ".") }

// podSetInfo is what an admission adds to a pod template.
type podSetInfo struct {
	nodeSelector map[string]string
	tolerations  []corev1.Toleration
}

func (info podSetInfo) addTo(template *corev1.PodTemplateSpec) {
	if len(info.nodeSelector) > 0 && template.Spec.NodeSelector == nil {
		template.Spec.NodeSelector = map[string]string{}
	}
	for key, value := range info.nodeSelector {
		template.Spec.NodeSelector[key] = value
	}
	for _, toleration := range info.tolerations {
		if !slices.Contains(template.Spec.Tolerations, toleration) {
			template.Spec.Tolerations = append(template.Spec.Tolerations, toleration)
		}
	}
}
