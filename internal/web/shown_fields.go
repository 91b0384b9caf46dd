package web

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/json"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/stream"
)

// A new session reads everything there is while someone waits. Of kinds with many objects it reads what records show and
// skips the rest: a node's images, a job's pod templates, managed fields.

// readAll reads the whole object, of a kind with few.
func readAll[T any, P interface {
	*T
	runtime.Object
}](data []byte) (runtime.Object, error) {
	object := P(new(T))
	return object, json.UnmarshalCaseSensitivePreserveInts(data, object)
}

// shown is an object of which a part is read.
type shown[Spec, Status any] struct {
	Metadata stream.Meta `json:"metadata"`
	Spec     Spec        `json:"spec"`
	Status   Status      `json:"status"`
}

func readShown[Spec, Status any](data []byte) (shown[Spec, Status], error) {
	var s shown[Spec, Status]
	err := json.UnmarshalCaseSensitivePreserveInts(data, &s)
	return s, err
}

type shownNodeSpec struct {
	Unschedulable bool `json:"unschedulable"`
}

type shownNodeStatus struct {
	Conditions []corev1.NodeCondition `json:"conditions"`
}

func readNode(data []byte) (runtime.Object, error) {
	n, err := readShown[shownNodeSpec, shownNodeStatus](data)
	return &corev1.Node{
		ObjectMeta: n.Metadata.Object(), Spec: corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable},
		Status: corev1.NodeStatus{Conditions: n.Status.Conditions},
	}, err
}

type shownGPUStatus struct {
	State     string                       `json:"state"`
	Message   string                       `json:"message"`
	Allocated map[string]*egpu.PodResource `json:"allocated"`
	Load      *egpu.GPULoad                `json:"load"`
	Processes []egpu.GPUProcess            `json:"processes"`
}

func readGPU(data []byte) (runtime.Object, error) {
	g, err := readShown[egpu.GPUSpec, shownGPUStatus](data)
	return &egpu.GPU{ObjectMeta: g.Metadata.Object(), Spec: g.Spec, Status: egpu.GPUStatus{
		State: g.Status.State, Message: g.Status.Message, Allocated: g.Status.Allocated, Load: g.Status.Load, Processes: g.Status.Processes,
	}}, err
}

type shownWorkloadSpec struct {
	PodSets                     []shownPodSet           `json:"podSets"`
	QueueName                   kueue.LocalQueueName    `json:"queueName"`
	PriorityClassRef            *kueue.PriorityClassRef `json:"priorityClassRef"`
	Priority                    *int32                  `json:"priority"`
	Active                      *bool                   `json:"active"`
	MaximumExecutionTimeSeconds *int32                  `json:"maximumExecutionTimeSeconds"`
}

type shownPodSet struct {
	Count    int32 `json:"count"`
	Template struct {
		Spec struct {
			Containers []struct {
				Resources corev1.ResourceRequirements `json:"resources"`
			} `json:"containers"`
		} `json:"spec"`
	} `json:"template"`
}

type shownWorkloadStatus struct {
	Conditions []metav1.Condition `json:"conditions"`
	Admission  *struct {
		ClusterQueue kueue.ClusterQueueReference `json:"clusterQueue"`
	} `json:"admission"`
	SchedulingStats *kueue.SchedulingStats `json:"schedulingStats"`
}

func readWorkload(data []byte) (runtime.Object, error) {
	w, err := readShown[shownWorkloadSpec, shownWorkloadStatus](data)
	wl := &kueue.Workload{ObjectMeta: w.Metadata.Object(), Spec: kueue.WorkloadSpec{
		QueueName: w.Spec.QueueName, PriorityClassRef: w.Spec.PriorityClassRef, Priority: w.Spec.Priority,
		Active: w.Spec.Active, MaximumExecutionTimeSeconds: w.Spec.MaximumExecutionTimeSeconds,
	}, Status: kueue.WorkloadStatus{Conditions: w.Status.Conditions, SchedulingStats: w.Status.SchedulingStats}}
	for i := range w.Spec.PodSets {
		set := kueue.PodSet{Count: w.Spec.PodSets[i].Count}
		for _, c := range w.Spec.PodSets[i].Template.Spec.Containers {
			set.Template.Spec.Containers = append(set.Template.Spec.Containers, corev1.Container{Resources: c.Resources})
		}
		wl.Spec.PodSets = append(wl.Spec.PodSets, set)
	}
	if w.Status.Admission != nil {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: w.Status.Admission.ClusterQueue}
	}
	return wl, err
}

func readPodMetadata(data []byte) (runtime.Object, error) {
	p, err := readShown[struct{}, struct{}](data)
	pod := podMetadata()
	pod.ObjectMeta = p.Metadata.Object()
	return pod, err
}
