package cli

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// A job and a pod that run in no queue are brought into one: they go on running,
// count in its quota, and are looked after like any other from then on.
func TestImport(t *testing.T) {
	ns := cluster.Namespace(t)
	train := sandbox.Job(ns, "train", "", 2, "2")
	train.Labels = map[string]string{"team": "nlp"}
	train.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	train.Spec.Template.Spec.NodeSelector = map[string]string{"elasticgpu.io/gpu-model": "H100-80G"}
	notebook := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "notebook", Labels: map[string]string{"team": "nlp"}, Annotations: train.Spec.Template.Annotations}, Spec: *train.Spec.Template.Spec.DeepCopy()}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other", Annotations: train.Spec.Template.Annotations}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x:1"}}}}
	cluster.Make(t, train, notebook, other)
	waitRunning(t, ns, 4)
	before := uids(t, ns)
	session(t, ns, "import-check.txt") // without a queue
	queues(t, ns, ns, "4")             // of fewer cards than are in use
	session(t, ns, "import.txt")

	waitUsage(t, ns, 2, 6)
	// A job that comes now waits, and starts when an imported one has gone.
	late := sandbox.Job(ns, "late", "main", 1, "1")
	cluster.Make(t, late)
	eventually(t, ns, "elastic explain late", "WaitingForQuota")
	for name, uid := range before {
		if now := uids(t, ns)[name]; now != uid {
			t.Errorf("pod %s was replaced: it must go on running", name)
		}
	}
	job := &batchv1.Job{}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(train), job); err != nil || *job.Spec.Suspend {
		t.Errorf("the job must not be suspended: %v", err)
	}
	must(t, ns, "elastic delete train")
	must(t, ns, "elastic wait late --for running")
}

const deviceClass = "gpu.example.com"

// mapDevices has the devices of a class count.
func mapDevices(cfg *v1alpha1.QueueConfiguration) {
	cfg.Resources.DeviceClassMappings = []kueueconfig.DeviceClassMapping{{Name: "example.com/gpu", DeviceClassNames: []corev1.ResourceName{deviceClass}}}
}

// claimer is a job with a pod that has devices by a ResourceClaimTemplate.
func claimer(namespace, name, template string) *batchv1.Job {
	job := sandbox.Job(namespace, name, "", 1, "0")
	job.Labels = nil
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	spec := &job.Spec.Template.Spec
	spec.Containers[0].Resources = corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "cards"}}}
	spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "cards", ResourceClaimTemplateName: &template}}
	return job
}

// Jobs that have devices by ResourceClaims, or by a resource that a class stands
// behind, are brought in with as many as the queue counts.
func TestImportCountsDevices(t *testing.T) {
	const driver, node, vendors = "driver.example.com", "h100-80g-0", "vendor.example.com/gpu"
	ns := cluster.Namespace(t)
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: deviceClass}}
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + driver + `"`}}}
	class.Spec.ExtendedResourceName = ptr.To(vendors)
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "cards"}}
	slice.Spec.Driver, slice.Spec.NodeName, slice.Spec.Pool = driver, ptr.To(node), resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}
	for _, name := range []string{"a", "b", "c", "d"} {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: name})
	}
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "two"}}
	template.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "cards", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: deviceClass, Count: 2}}}
	extended := claimer(ns, "extended", "")
	extended.Spec.Template.Spec.ResourceClaims = nil
	extended.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{vendors: resource.MustParse("1")}}
	cluster.Make(t, class, slice, template, claimer(ns, "claims", "two"), extended)
	waitRunning(t, ns, 2)
	before := uids(t, ns)

	queues(t, ns, ns, "0")
	sandbox.Eventually(t, "the queue counts devices that it does not give out", func(context.Context) error {
		out, err := shell(t, ns, "elastic import jobs --queue main")
		if err == nil || strings.Count(out, "it asks for example.com/gpu, which ClusterQueue "+ns+" does not give out") != 2 {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	cluster.Change(t, cq, func() {
		group := &cq.Spec.ResourceGroups[0]
		group.CoveredResources = []corev1.ResourceName{"example.com/gpu"}
		group.Flavors[0].Resources = []kueue.ResourceQuota{{Name: "example.com/gpu", NominalQuota: resource.MustParse("3")}}
	})
	session(t, ns, "import-devices.txt")
	waitUsage(t, ns, 2, 3)
	if now := uids(t, ns); !maps.Equal(now, before) {
		t.Errorf("the pods were %v and are %v: they must go on running", before, now)
	}
}

// waitRunning waits until there are so many pods, and all run.
func waitRunning(t *testing.T, namespace string, n int) {
	t.Helper()
	sandbox.Eventually(t, "all run", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := cluster.List(ctx, pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range pods.Items {
			if pods.Items[i].Status.Phase != corev1.PodRunning {
				return fmt.Errorf("%s is %s", pods.Items[i].Name, pods.Items[i].Status.Phase)
			}
		}
		if len(pods.Items) != n {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		return nil
	})
}

// waitUsage waits until a queue has admitted so many workloads, which use so
// much of its first resource.
func waitUsage(t *testing.T, queue string, workloads int32, usage int64) {
	t.Helper()
	sandbox.Eventually(t, "the queue counts them", func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: queue}, cq); err != nil {
			return err
		}
		if n := cq.Status.AdmittedWorkloads; n != workloads || len(cq.Status.FlavorsUsage) == 0 || cq.Status.FlavorsUsage[0].Resources[0].Total.Value() != usage {
			return fmt.Errorf("%d admitted, usage %v", n, cq.Status.FlavorsUsage)
		}
		return nil
	})
}

func uids(t *testing.T, namespace string) map[string]string {
	t.Helper()
	pods := &corev1.PodList{}
	if err := cluster.List(t.Context(), pods, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i := range pods.Items {
		out[pods.Items[i].Name] = string(pods.Items[i].UID)
	}
	return out
}
