package queue

import (
	"fmt"
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

const deviceDriver = "driver.example.com"

// mapDevices has three classes of a driver count: by number, by a counter, and
// by capacity.
func mapDevices(cfg *v1alpha1.QueueConfiguration) {
	cfg.FeatureGates = map[string]bool{"KueueDRAIntegrationConsumableCapacity": true, "ConcurrentAdmission": true}
	all := selector("true")
	cfg.Resources.DeviceClassMappings = []kueueconfig.DeviceClassMapping{
		{Name: "example.com/gpu", DeviceClassNames: []corev1.ResourceName{"gpu.example.com"}},
		{Name: "example.com/slices", DeviceClassNames: []corev1.ResourceName{"part.example.com"}, Sources: []kueueconfig.DeviceClassSourceConfig{{
			Counter: &kueueconfig.DeviceClassCounterSource{Name: "slices", Driver: deviceDriver, DeviceSelector: all}}}},
		{Name: "example.com/memory", DeviceClassNames: []corev1.ResourceName{"share.example.com"}, Sources: []kueueconfig.DeviceClassSourceConfig{{
			Capacity: &kueueconfig.DeviceClassCapacitySource{Name: "memory", Driver: deviceDriver, DeviceSelector: all}}}},
	}
}

func selector(expression string) resourceapi.DeviceSelector {
	return resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}
}

// offer a node's devices to ResourceClaims, as a driver does, and the classes
// that select them by the attribute "type".
func offer(t *testing.T, extended string) {
	t.Helper()
	device := func(name, kind string) resourceapi.Device {
		return resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: &kind}}}
	}
	slice := func(name string) *resourceapi.ResourceSlice {
		s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "devices-" + name}}
		s.Spec.Driver, s.Spec.NodeName = deviceDriver, ptr.To("h100-80g-0")
		s.Spec.Pool = resourceapi.ResourcePool{Name: "h100-80g-0", Generation: 1, ResourceSliceCount: 2}
		return s
	}
	devices, counters := slice("0"), slice("1")
	part := device("part", "part")
	part.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "card", Counters: map[string]resourceapi.Counter{"slices": {Value: resource.MustParse("3")}}}}
	counters.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "card", Counters: map[string]resourceapi.Counter{"slices": {Value: resource.MustParse("7")}}}}
	share := device("share", "share")
	share.AllowMultipleAllocations = ptr.To(true)
	share.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi"), RequestPolicy: &resourceapi.CapacityRequestPolicy{
		Default: ptr.To(resource.MustParse("80Gi")), ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("1Gi")), Step: ptr.To(resource.MustParse("1Gi"))},
	}}}
	devices.Spec.Devices = []resourceapi.Device{device("0", "gpu"), device("1", "gpu"), part, share}
	for _, kind := range []string{"gpu", "part", "share"} {
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: kind + ".example.com"}}
		class.Spec.Selectors = []resourceapi.DeviceSelector{selector(fmt.Sprintf("device.driver == %q && device.attributes[%[1]q].type == %q", deviceDriver, kind))}
		if kind == "gpu" && extended != "" {
			class.Spec.ExtendedResourceName = &extended
		}
		cluster.Make(t, class)
	}
	cluster.Make(t, devices, counters)
}

// deviceQueue makes a namespace with a queue of so much of a resource.
func deviceQueue(t *testing.T, name corev1.ResourceName, quota string) string {
	t.Helper()
	ns := cluster.Namespace(t)
	cq := sandbox.ClusterQueue(ns, ns, "0")
	group := &cq.Spec.ResourceGroups[0]
	group.CoveredResources = []corev1.ResourceName{name}
	group.Flavors[0].Resources = []kueue.ResourceQuota{{Name: name, NominalQuota: resource.MustParse(quota)}}
	cluster.Make(t, sandbox.Flavor(ns, map[string]string{"elasticgpu.io/gpu-model": "H100-80G"}), cq, sandbox.LocalQueue(ns, "main", ns))
	return ns
}

func claimTemplate(namespace, name, class string, change func(*resourceapi.ExactDeviceRequest)) *resourceapi.ResourceClaimTemplate {
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: class}
	if change != nil {
		change(exactly)
	}
	template.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "device", Exactly: exactly}}
	return template
}

// claimingJob has pods with a claim by a template, that run until they are told to end.
func claimingJob(namespace, name, template string, pods int32) *batchv1.Job {
	job := sandbox.Job(namespace, name, "main", pods, "0")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	spec := &job.Spec.Template.Spec
	spec.Containers[0].Resources = corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "device"}}}
	spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: &template}}
	return job
}

func waitReady(t *testing.T, job *batchv1.Job) {
	t.Helper()
	waitJob(t, job, func(j *batchv1.Job) error {
		if ready := ptr.Deref(j.Status.Ready, 0); ready != *job.Spec.Parallelism {
			return fmt.Errorf("%d pods are ready", ready)
		}
		return nil
	})
}

func usageOf(t *testing.T, wl *kueue.Workload, name corev1.ResourceName) string {
	t.Helper()
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
		t.Fatal(err)
	}
	usage := wl.Status.Admission.PodSetAssignments[0].ResourceUsage[name]
	return usage.String()
}

// Two devices, two jobs for both: the first runs on what kube-scheduler
// allocates, the second waits for its quota. Before it comes, the first waits
// for its template.
func TestDeviceClaimsTakeQuota(t *testing.T) {
	offer(t, "")
	ns := deviceQueue(t, "example.com/gpu", "2")
	first, second := claimingJob(ns, "first", "one", 2), claimingJob(ns, "second", "one", 2)
	cluster.Make(t, first)
	wl := cluster.WorkloadOf(t, first)
	condition := waitCondition(t, wl, kueue.WorkloadQuotaReserved, false)
	if condition.Reason != kueue.WorkloadInadmissible || !strings.Contains(condition.Message, `ResourceClaimTemplate.resource.k8s.io "one" not found`) {
		t.Errorf("without its template it waits with %s: %s", condition.Reason, condition.Message)
	}
	cluster.Make(t, claimTemplate(ns, "one", "gpu.example.com", nil))
	if usage := usageOf(t, wl, "example.com/gpu"); usage != "2" {
		t.Errorf("it uses %s", usage)
	}
	waitReady(t, first)

	cluster.Make(t, second)
	waits := cluster.WorkloadOf(t, second)
	condition = waitCondition(t, waits, kueue.WorkloadQuotaReserved, false)
	if condition.Reason != "Pending" || !strings.Contains(condition.Message, "example.com/gpu") {
		t.Errorf("the second waits with %s: %s", condition.Reason, condition.Message)
	}
	if err := cluster.Delete(t.Context(), first, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, waits, kueue.WorkloadAdmitted, true)
	waitReady(t, second)
}

// A selector that no device meets keeps the job from its quota until a driver
// offers one.
func TestSelectorsWaitForDevices(t *testing.T) {
	ns := deviceQueue(t, "example.com/gpu", "2")
	cluster.Make(t, claimTemplate(ns, "one", "gpu.example.com", func(r *resourceapi.ExactDeviceRequest) {
		r.Selectors = []resourceapi.DeviceSelector{selector(fmt.Sprintf("device.attributes[%q].type == %q", deviceDriver, "gpu"))}
	}))
	job := claimingJob(ns, "job", "one", 1)
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	if condition := waitCondition(t, wl, kueue.WorkloadQuotaReserved, false); condition.Reason != kueue.WorkloadInadmissible {
		t.Errorf("it waits with %s: %s", condition.Reason, condition.Message)
	}
	offer(t, "")
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
	waitReady(t, job)
}

// Selectors that are too costly for the queue's loop, and that the API server
// takes, are evaluated beside it.
func TestCostlySelectors(t *testing.T) {
	offer(t, "")
	ns := deviceQueue(t, "example.com/gpu", "2")
	numbers := "[" + strings.TrimSuffix(strings.Repeat("1,", 28), ",") + "]"
	cluster.Make(t, claimTemplate(ns, "one", "gpu.example.com", func(r *resourceapi.ExactDeviceRequest) {
		r.Selectors = []resourceapi.DeviceSelector{selector(strings.ReplaceAll("N.all(a, N.all(b, N.all(c, a + b + c == 3)))", "N", numbers))}
	}))
	job := claimingJob(ns, "job", "one", 2)
	cluster.Make(t, job)
	if usage := usageOf(t, cluster.WorkloadOf(t, job), "example.com/gpu"); usage != "2" {
		t.Errorf("it uses %s", usage)
	}
	waitReady(t, job)
}

// Partitions count by what they take of their card, shares by what is asked
// for.
func TestDevicesCountByTheirSources(t *testing.T) {
	offer(t, "")
	for class, test := range map[string]struct {
		resource corev1.ResourceName
		change   func(*resourceapi.ExactDeviceRequest)
		usage    string
	}{
		"part.example.com": {"example.com/slices", nil, "3"},
		"share.example.com": {"example.com/memory", func(r *resourceapi.ExactDeviceRequest) {
			r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1500Mi")}}
		}, "2Gi"},
	} {
		t.Run(class, func(t *testing.T) {
			ns := deviceQueue(t, test.resource, "100Gi")
			job := claimingJob(ns, "job", "one", 1)
			cluster.Make(t, claimTemplate(ns, "one", class, test.change), job)
			if usage := usageOf(t, cluster.WorkloadOf(t, job), test.resource); usage != test.usage {
				t.Errorf("it uses %s, want %s", usage, test.usage)
			}
			waitReady(t, job)
		})
	}
}

// An extended resource that no node has, because a class stands behind it,
// counts as the class does.
func TestExtendedResourceOfAClassTakesQuota(t *testing.T) {
	const extended = "vendor.example.com/gpu"
	ns := deviceQueue(t, "example.com/gpu", "2")
	job := sandbox.Job(ns, "job", "main", 1, "0")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	job.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{extended: resource.MustParse("2")}
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	waitCondition(t, wl, kueue.WorkloadQuotaReserved, false) // the queue has no such resource
	offer(t, extended)
	if usage := usageOf(t, wl, "example.com/gpu"); usage != "2" {
		t.Errorf("it uses %s", usage)
	}
	waitReady(t, job)
}
