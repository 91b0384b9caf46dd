package examples

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

const (
	driver   = "gpu.example.com"
	setupDRA = "site/content/en/docs/tasks/manage/setup_dra.md"
)

// setup is a section of Kueue's page on devices: what it says of the
// configuration, and the devices its driver publishes.
type setup struct {
	section string
	publish func() []*resourceapi.ResourceSlice
}

var (
	counters   = setup{"Configure counter sources", partitions}
	capacities = setup{"Configure capacity sources", shares}
)

// prepare has the queue start again as the section says, beside its devices.
func (s *setup) prepare(t *testing.T) {
	t.Helper()
	for _, slice := range s.publish() {
		cluster.Make(t, slice)
	}
	page := s.read(t)
	cluster.Reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) {
		cfg.FeatureGates, cfg.Resources.DeviceClassMappings = page.FeatureGates, page.Resources.DeviceClassMappings
	})
}

// read the configuration in the section.
func (s *setup) read(t *testing.T) *kueueconfig.Configuration {
	t.Helper()
	text, err := git("show", version+":"+setupDRA)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### 1. "+s.section+"\n")
	_, block, _ := strings.Cut(section, "```yaml\n")
	block, _, found := strings.Cut(block, "```")
	page := &kueueconfig.Configuration{}
	if err := yaml.UnmarshalStrict([]byte(block), page); err != nil || !found || page.Resources == nil {
		t.Fatalf("%q of %s has no configuration of resources: %v", s.section, setupDRA, err)
	}
	return page
}

func pool(slices ...*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	const node = "h100-80g-0"
	for i, slice := range slices {
		slice.ObjectMeta = metav1.ObjectMeta{Name: "gpus-" + string(rune('a'+i))}
		slice.Spec.Driver, slice.Spec.NodeName = driver, ptr.To(node)
		slice.Spec.Pool = resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(len(slices))}
	}
	return slices
}

// partitions of a card with 80Gi: all of it, or an eighth.
func partitions() []*resourceapi.ResourceSlice {
	memory := func(amount string) map[string]resourceapi.Counter {
		return map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(amount)}}
	}
	takes := func(name, amount string) resourceapi.Device {
		return resourceapi.Device{Name: name, ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: "shared", Counters: memory(amount)}}}
	}
	cards, devices := &resourceapi.ResourceSlice{}, &resourceapi.ResourceSlice{}
	cards.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "shared", Counters: memory("80Gi")}}
	devices.Spec.Devices = []resourceapi.Device{takes("gpu-0", "10Gi"), takes("gpu-0-whole", "80Gi")}
	return pool(cards, devices)
}

// shares of a card with 80Gi, as many as there is memory for.
func shares() []*resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{}
	slice.Spec.Devices = []resourceapi.Device{{
		Name: "gpu-0", AllowMultipleAllocations: ptr.To(true),
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
	}}
	return pool(slice)
}

// checkUse of resources by an admitted workload's pods.
func checkUse(t *testing.T, wl *kueue.Workload, want map[corev1.ResourceName]string) {
	t.Helper()
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
		t.Fatal(err)
	}
	for name, amount := range want {
		if got := wl.Status.Admission.PodSetAssignments[0].ResourceUsage[name]; got.Cmp(resource.MustParse(amount)) != 0 {
			t.Errorf("it uses %s of %s, and its page says %s", got.String(), name, amount)
		}
	}
}
