package sandbox

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// GPU is the resource a whole card is asked for by.
const GPU corev1.ResourceName = "nvidia.com/gpu"

// RunFor and ExitCode are the annotations by which a simulated pod's life is
// chosen.
const (
	RunFor   = "sandbox.elasticai.io/run-for"
	ExitCode = "sandbox.elasticai.io/exit-code"
)

// Job is a batch Job of pods that each ask for cards, in a queue.
func Job(namespace, name, queue string, pods int32, cards string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{"kueue.x-k8s.io/queue-name": queue},
		},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To(pods), Completions: ptr.To(pods),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers: []corev1.Container{{
						Name: "main", Image: "example.com/train:1",
						Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{GPU: resource.MustParse(cards)}},
					}},
				},
			},
		},
	}
}

// Flavor is a ResourceFlavor that stands for nodes with these labels.
func Flavor(name string, labels map[string]string) *kueue.ResourceFlavor {
	return &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: labels}}
}

// ClusterQueue is a queue for every namespace with a quota of cards of one
// flavor.
func ClusterQueue(name, flavor, cards string) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{GPU},
				Flavors: []kueue.FlavorQuotas{{
					Name:      kueue.ResourceFlavorReference(flavor),
					Resources: []kueue.ResourceQuota{{Name: GPU, NominalQuota: resource.MustParse(cards)}},
				}},
			}},
		},
	}
}

// LocalQueue of a namespace, for a ClusterQueue.
func LocalQueue(namespace, name, clusterQueue string) *kueue.LocalQueue {
	return &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)},
	}
}
