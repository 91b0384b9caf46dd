package devices

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

const (
	class  = "gpu.example.com"
	driver = "driver.example.com"
	path   = "spec.podSets[0].template.spec.resourceClaims[0]"
)

func gates(t *testing.T, given ...string) features.Set {
	t.Helper()
	all := map[string]bool{}
	for _, name := range given {
		name, off := strings.CutPrefix(name, "-")
		all["KueueDRAIntegration"+name] = !off
	}
	set, err := features.New(all)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func counts(resource string, classes ...corev1.ResourceName) kueueconfig.DeviceClassMapping {
	return kueueconfig.DeviceClassMapping{Name: corev1.ResourceName(resource), DeviceClassNames: classes}
}

func cel(expression string) resourceapi.DeviceSelector {
	return resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}
}

func byCounter(resource, counter string) kueueconfig.DeviceClassMapping {
	m := counts(resource, class)
	m.Sources = []kueueconfig.DeviceClassSourceConfig{{Counter: &kueueconfig.DeviceClassCounterSource{Name: counter, Driver: driver, DeviceSelector: cel("true")}}}
	return m
}

func byCapacity(resource string, name resourceapi.QualifiedName) kueueconfig.DeviceClassMapping {
	m := counts(resource, class)
	m.Sources = []kueueconfig.DeviceClassSourceConfig{{Capacity: &kueueconfig.DeviceClassCapacitySource{Name: name, Driver: driver, DeviceSelector: cel("true")}}}
	return m
}

// request for so many devices of the class, and what else is said of them.
func request(class string, count int64, more ...func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
	r := &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
	for _, change := range more {
		change(r)
	}
	return resourceapi.DeviceRequest{Name: "r", Exactly: r}
}

func selecting(expression string) func(*resourceapi.ExactDeviceRequest) {
	return func(r *resourceapi.ExactDeviceRequest) {
		r.Selectors = append(r.Selectors, cel(expression))
	}
}

func asking(capacity resourceapi.QualifiedName, amount string) func(*resourceapi.ExactDeviceRequest) {
	return func(r *resourceapi.ExactDeviceRequest) {
		r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{capacity: resource.MustParse(amount)}}
	}
}

func template(name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaimTemplate {
	t := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	t.Spec.Spec.Devices.Requests = requests
	return t
}

func deviceClass(name, extended string, age time.Duration) *resourceapi.DeviceClass {
	c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))}}
	c.Spec.Selectors = []resourceapi.DeviceSelector{cel(`device.driver == "` + driver + `"`)}
	if extended != "" {
		c.Spec.ExtendedResourceName = &extended
	}
	return c
}

// slice of a node's pool, of which there are so many, with devices.
func slice(name string, of int64, devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Driver, s.Spec.Devices = driver, devices
	s.Spec.Pool = resourceapi.ResourcePool{Name: "node", Generation: 1, ResourceSliceCount: of}
	return s
}

// card is a device of a model, with counters in pairs.
func card(name, model string, counters ...string) resourceapi.Device {
	d := resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}}}
	for i := 0; i < len(counters); i += 2 {
		d.ConsumesCounters = append(d.ConsumesCounters, resourceapi.DeviceCounterConsumption{
			CounterSet: name, Counters: map[string]resourceapi.Counter{counters[i]: {Value: resource.MustParse(counters[i+1])}},
		})
	}
	return d
}

func shared(name, all string, policy *resourceapi.CapacityRequestPolicy) resourceapi.Device {
	d := card(name, "a")
	d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse(all), RequestPolicy: policy}}
	return d
}

func quantity(text string) *resource.Quantity { return ptr.To(resource.MustParse(text)) }

// using is a workload of pods that have claims by these templates.
func using(templates ...string) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl"}}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2}}
	spec := &wl.Spec.PodSets[0].Template.Spec
	spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b"}}
	for i, name := range templates {
		claim := fmt.Sprint("claim", i)
		spec.ResourceClaims = append(spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimTemplateName: &name})
		for c := range spec.Containers { // both use it
			spec.Containers[c].Resources.Claims = append(spec.Containers[c].Resources.Claims, corev1.ResourceClaim{Name: claim})
		}
	}
	return wl
}

// limited asks for resources in pairs, in the first container.
func limited(wl *kueue.Workload, pairs ...string) *kueue.Workload {
	limits := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		limits[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits = limits
	return wl
}

func TestCount(t *testing.T) {
	whole := []kueueconfig.DeviceClassMapping{counts("example.com/gpu", class, "other.example.com")}
	half := &resourceapi.CapacityRequestPolicy{Default: quantity("10Gi"), ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: quantity("1Gi"), Max: quantity("20Gi"), Step: quantity("2Gi")}}
	for name, test := range map[string]struct {
		mappings []kueueconfig.DeviceClassMapping
		gates    []string
		seen     []client.Object
		workload *kueue.Workload
		quota    admission.Requests
		node     admission.Requests // nil: nothing
		refused  string
	}{
		"nothing": {mappings: whole, workload: limited(using(), "cpu", "1"), quota: admission.Requests{"cpu": 1000}, node: admission.Requests{"cpu": 1000}},
		"a claim counts once for each pod, whoever of its containers uses it": {
			mappings: whole, seen: []client.Object{template("one", request(class, 2))},
			workload: limited(using("one"), "cpu", "1"), quota: admission.Requests{"cpu": 1000, "example.com/gpu": 2}, node: admission.Requests{"cpu": 1000},
		},
		"requests and claims add up": {
			mappings: whole, seen: []client.Object{template("one", request(class, 2), request("other.example.com", 1)), template("two", request(class, 4))},
			workload: using("one", "two"), quota: admission.Requests{"example.com/gpu": 7},
		},
		"a template of another namespace is none": {
			mappings: whole, seen: []client.Object{func() client.Object { t := template("one", request(class, 2)); t.Namespace = "other"; return t }()},
			workload: using("one"),
			refused:  path + `: Internal error: failed to get claim spec for ResourceClaimTemplate one in podset main: ResourceClaimTemplate.resource.k8s.io "one" not found`,
		},
		"a claim of its own": {
			mappings: whole, workload: func() *kueue.Workload {
				wl := using("one")
				wl.Spec.PodSets[0].Template.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "c", ResourceClaimName: ptr.To("mine")}
				return wl
			}(),
			refused: "KueueDRAIntegration feature does not support use of resource claims",
		},
		"a class that is not mapped": {
			mappings: whole, seen: []client.Object{template("one", request("third.example.com", 1))}, workload: using("one"),
			refused: path + `.resourceClaimTemplateName: Not found: "DeviceClass third.example.com is not mapped in DRA configuration for podset main"`,
		},
		"no class is mapped": {
			workload: using("one"),
			refused:  path + `.resourceClaimTemplateName: Not found: "DeviceClass of ResourceClaimTemplate one is not mapped in DRA configuration for podset main"`,
		},
		"the first available": {
			mappings: whole, workload: using("one"),
			seen:    []client.Object{template("one", resourceapi.DeviceRequest{FirstAvailable: []resourceapi.DeviceSubRequest{{DeviceClassName: class}}})},
			refused: path + ".devices.requests[0]: Invalid value: null: ResourceClaimTemplate one: FirstAvailable device selection is not supported",
		},
		"all": {
			mappings: whole, workload: using("one"),
			seen:    []client.Object{template("one", request(class, 0, func(r *resourceapi.ExactDeviceRequest) { r.AllocationMode = resourceapi.DeviceAllocationModeAll }))},
			refused: path + `.devices.requests[0].exactly.allocationMode: Invalid value: "All": ResourceClaimTemplate one: AllocationMode 'All' is not supported`,
		},
		"as an administrator": {
			mappings: whole, workload: using("one"),
			seen:    []client.Object{template("one", request(class, 1, func(r *resourceapi.ExactDeviceRequest) { r.AdminAccess = ptr.To(true) }))},
			refused: path + ".devices.requests[0].exactly.adminAccess: Invalid value: null: ResourceClaimTemplate one: AdminAccess is not supported",
		},

		"selected devices that there are": {
			mappings: whole, workload: using("one"), quota: admission.Requests{"example.com/gpu": 2},
			seen: []client.Object{
				deviceClass(class, "", 0), slice("s", 1, card("0", "a"), card("1", "b"), card("2", "a")),
				template("one", request(class, 2, selecting(`device.attributes["`+driver+`"].model == "a"`))),
			},
		},
		"the first request leaves the second what only that can use": {
			mappings: whole, workload: using("one"), quota: admission.Requests{"example.com/gpu": 3},
			seen: []client.Object{
				deviceClass(class, "", 0), slice("s", 1, card("0", "a"), card("1", "b"), card("2", "a")),
				template("one", request(class, 1, selecting("true")), request(class, 2, selecting(`device.attributes["`+driver+`"].model == "a"`))),
			},
		},
		"more selected devices than there are": {
			mappings: whole, workload: using("one"),
			seen: []client.Object{
				deviceClass(class, "", 0), slice("s", 1, card("0", "a"), card("1", "b"), card("2", "a")),
				template("one", request(class, 2, selecting("true")), request(class, 2, selecting(`device.attributes["`+driver+`"].model == "a"`))),
			},
			refused: path + ".devices.requests[1].exactly.selectors: Internal error: ResourceClaimTemplate one: insufficient matching devices for CEL selector in DeviceClass gpu.example.com: " +
				"1 device(s) match in the cluster but 2 requested",
		},
		"selected of a class that there is not": {
			mappings: whole, workload: using("one"), seen: []client.Object{template("one", request(class, 1, selecting("true")))},
			refused: path + `.devices.requests[0]: Internal error: ResourceClaimTemplate one: failed to get DeviceClass gpu.example.com: DeviceClass.resource.k8s.io "gpu.example.com" not found`,
		},
		"selected by what devices do not have": {
			mappings: whole, workload: using("one"),
			seen:    []client.Object{deviceClass(class, "", 0), slice("s", 1, card("0", "a")), template("one", request(class, 1, selecting(`device.attributes["`+driver+`"].size > 3`)))},
			refused: path + ".devices.requests[0].exactly.selectors: Invalid value: null: ResourceClaimTemplate one: CEL evaluation failed for DeviceClass gpu.example.com: device 0: no such key: size",
		},
		"devices of a pool that is not complete are none": {
			mappings: whole, workload: using("one"),
			seen: []client.Object{deviceClass(class, "", 0), slice("s", 2, card("0", "a")), template("one", request(class, 1, selecting("true")))},
			refused: path + ".devices.requests[0].exactly.selectors: Internal error: ResourceClaimTemplate one: insufficient matching devices for CEL selector in DeviceClass gpu.example.com: " +
				"0 device(s) match in the cluster but 1 requested",
		},

		"an extended resource counts as its class does, not twice": {
			mappings: whole, seen: []client.Object{deviceClass(class, "vendor.com/gpu", 0), template("one", request(class, 1))},
			workload: limited(using("one"), "vendor.com/gpu", "2", "cpu", "1"),
			quota:    admission.Requests{"cpu": 1000, "example.com/gpu": 3}, node: admission.Requests{"cpu": 1000},
		},
		"an extended resource whose class is not mapped keeps its name, and asks nothing of the node": {
			seen: []client.Object{deviceClass(class, "vendor.com/gpu", 0)}, workload: limited(using(), "vendor.com/gpu", "2"),
			quota: admission.Requests{"vendor.com/gpu": 2}, node: admission.Requests{},
		},
		"of two classes the younger": {
			mappings: []kueueconfig.DeviceClassMapping{counts("old", "old"), counts("new", "new")},
			seen:     []client.Object{deviceClass("new", "vendor.com/gpu", 0), deviceClass("old", "vendor.com/gpu", time.Hour)},
			workload: limited(using(), "vendor.com/gpu", "2"), quota: admission.Requests{"new": 2},
		},
		"of two classes of one age the first by name": {
			mappings: []kueueconfig.DeviceClassMapping{counts("a", "a"), counts("b", "b")},
			seen:     []client.Object{deviceClass("b", "vendor.com/gpu", 0), deviceClass("a", "vendor.com/gpu", 0)},
			workload: limited(using(), "vendor.com/gpu", "2"), quota: admission.Requests{"a": 2},
		},
		"the name Kubernetes gives every class": {
			mappings: whole, seen: []client.Object{deviceClass(class, "", 0)},
			workload: limited(using(), resourceapi.ResourceDeviceClassPrefix+class, "2"), quota: admission.Requests{"example.com/gpu": 2},
		},
		"extended resources are as any where the gate is off": {
			mappings: whole, gates: []string{"-ExtendedResource"}, seen: []client.Object{deviceClass(class, "vendor.com/gpu", 0)},
			workload: limited(using(), "vendor.com/gpu", "2"), quota: admission.Requests{"vendor.com/gpu": 2}, node: admission.Requests{"vendor.com/gpu": 2},
		},
		"half an extended resource": {
			mappings: whole, seen: []client.Object{deviceClass(class, "vendor.com/gpu", 0)}, workload: limited(using(), "vendor.com/gpu", "500m"),
			refused: `spec.podSets[0].template.spec.containers[0].resources.requests.vendor.com/gpu: Invalid value: "500m": extended resource quantity must be an integer`,
		},
		"an extended resource whose class counts by a counter": {
			mappings: []kueueconfig.DeviceClassMapping{byCounter("gpu.memory", "memory")}, seen: []client.Object{deviceClass(class, "vendor.com/gpu", 0)},
			workload: limited(using(), "vendor.com/gpu", "1"),
			refused: `spec.podSets[0].template.spec.containers[0]: Invalid value: "vendor.com/gpu": extended resource vendor.com/gpu resolves to DeviceClass gpu.example.com with counters configured;` +
				" use ResourceClaimTemplates with CEL selectors for counter-based quota",
		},

		"by counters, as the device that takes most": {
			mappings: []kueueconfig.DeviceClassMapping{byCounter("gpu.memory", "memory"), byCounter("gpu.slices", "slices")},
			seen: []client.Object{
				deviceClass(class, "", 0), slice("s", 1, card("0", "a", "memory", "5Gi", "slices", "1"), card("1", "a", "memory", "10Gi", "slices", "2"), card("2", "b", "memory", "80Gi", "slices", "7")),
				template("one", request(class, 2, selecting(`device.attributes["`+driver+`"].model == "a"`))),
			},
			workload: using("one"), quota: admission.Requests{"gpu.memory": 20 << 30, "gpu.slices": 4},
		},
		"by a counter that no device has": {
			mappings: []kueueconfig.DeviceClassMapping{byCounter("gpu.memory", "memory")},
			seen:     []client.Object{deviceClass(class, "", 0), slice("s", 1, card("0", "a")), template("one", request(class, 1))}, workload: using("one"),
			refused: path + `.devices.requests[0]: Internal error: matched devices have no consumesCounters entry for counter "memory"`,
		},
		"by a counter of more devices than there are": {
			mappings: []kueueconfig.DeviceClassMapping{byCounter("gpu.memory", "memory")},
			seen:     []client.Object{deviceClass(class, "", 0), slice("s", 1, card("0", "a", "memory", "1Gi")), template("one", request(class, 2))}, workload: using("one"),
			refused: path + ".devices.requests[0]: Internal error: insufficient matching devices for counter driver: 1 device(s) match but 2 requested",
		},

		"by capacity, rounded up to what is given out": {
			mappings: []kueueconfig.DeviceClassMapping{byCapacity("gpu.memory", "memory")}, gates: []string{"ConsumableCapacity"},
			seen: []client.Object{deviceClass(class, "", 0), slice("s", 1, shared("0", "80Gi", half)), template("one", request(class, 1, asking("memory", "3500Mi")))}, workload: using("one"),
			quota: admission.Requests{"gpu.memory": 5 << 30},
		},
		"by capacity, named with the driver's domain": {
			mappings: []kueueconfig.DeviceClassMapping{byCapacity("gpu.memory", driver+"/memory")}, gates: []string{"ConsumableCapacity"},
			seen: []client.Object{deviceClass(class, "", 0), slice("s", 1, shared("0", "80Gi", nil)), template("one", request(class, 1, asking("memory", "3Gi")))}, workload: using("one"),
			quota: admission.Requests{"gpu.memory": 3 << 30},
		},
		"by capacity, as it is by default": {
			mappings: []kueueconfig.DeviceClassMapping{byCapacity("gpu.memory", "memory")}, gates: []string{"ConsumableCapacity"},
			seen: []client.Object{deviceClass(class, "", 0), slice("s", 1, shared("0", "80Gi", half), shared("1", "80Gi", half)), template("one", request(class, 2))}, workload: using("one"),
			quota: admission.Requests{"gpu.memory": 22 << 30},
		},
		"by capacity, all of it": {
			mappings: []kueueconfig.DeviceClassMapping{byCapacity("gpu.memory", "memory")}, gates: []string{"ConsumableCapacity"},
			seen: []client.Object{deviceClass(class, "", 0), slice("s", 1, shared("0", "80Gi", nil)), template("one", request(class, 1))}, workload: using("one"),
			quota: admission.Requests{"gpu.memory": 80 << 30},
		},
		"by capacity, of values": {
			mappings: []kueueconfig.DeviceClassMapping{byCapacity("gpu.memory", "memory")}, gates: []string{"ConsumableCapacity"},
			seen: []client.Object{deviceClass(class, "", 0), slice("s", 1, shared("0", "80Gi", &resourceapi.CapacityRequestPolicy{ValidValues: []resource.Quantity{*quantity("4Gi"), *quantity("8Gi")}})),
				template("one", request(class, 1, asking("memory", "5Gi")))}, workload: using("one"),
			quota: admission.Requests{"gpu.memory": 8 << 30},
		},
		"by more capacity than is given out": {
			mappings: []kueueconfig.DeviceClassMapping{byCapacity("gpu.memory", "memory")}, gates: []string{"ConsumableCapacity"},
			seen: []client.Object{deviceClass(class, "", 0), slice("s", 1, shared("0", "80Gi", half)), template("one", request(class, 1, asking("memory", "30Gi")))}, workload: using("one"),
			refused: path + `.devices.requests[0]: Invalid value: null: capacity request cannot be satisfied by any matched device's RequestPolicy for dimension "memory"`,
		},
		"more devices in all than a claim is ever given, which is kube-scheduler's to say": {
			mappings: whole, workload: using("one"), quota: admission.Requests{"example.com/gpu": 40},
			seen: append(hall(3), template("one", request(class, 20, selecting("true")), request(class, 20, selecting("true")))),
		},
		"more than can be counted": {
			mappings: whole, seen: []client.Object{template("one", request(class, 1<<62), request(class, 1<<62))}, workload: using("one"),
			quota: admission.Requests{"example.com/gpu": 1<<60 - 1}, // for two pods; there is no such quota
		},
	} {
		t.Run(name, func(t *testing.T) {
			counter, err := New(test.mappings, gates(t, test.gates...))
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range test.seen {
				counter.ObjectChanged(object, false)
			}
			w := counted(counter, test.workload)
			if w.Refused != test.refused {
				t.Fatalf("it is refused with\n%s, want\n%s", w.Refused, test.refused)
			}
			if slow := searchedElsewhere(t, test.mappings, gates(t, test.gates...), test.seen, test.workload); !reflect.DeepEqual(slow, w) {
				t.Errorf("it counts as\n%+v, and when its devices are searched for elsewhere as\n%+v", w, slow)
			}
			if test.refused != "" {
				if counted := counter.Explain(test.workload); counted != nil {
					t.Errorf("what is refused counts as %v", counted)
				}
				return
			}
			if !maps.Equal(w.PodSets[0].Requests, test.quota) {
				t.Errorf("quota counts %v, want %v", w.PodSets[0].Requests, test.quota)
			}
			if !maps.Equal(w.PodSets[0].OnNode(), test.node) {
				t.Errorf("the node is asked for %v, want %v", w.PodSets[0].OnNode(), test.node)
			}
		})
	}
}

// The devices of a workload with quota reserved are counted as they were, though its template is gone.
func TestCountLeavesReservedQuotaAlone(t *testing.T) {
	counter, err := New([]kueueconfig.DeviceClassMapping{counts("example.com/gpu", class)}, features.Set{})
	if err != nil {
		t.Fatal(err)
	}
	w := admission.Workload{PodSets: make([]admission.PodSet, 1), Admission: &admission.Admission{}}
	if counter.Count(&w, using("gone")); w.Refused != "" {
		t.Errorf("it is refused: %s", w.Refused)
	}
}

func TestNoBookWhereTheGateIsOff(t *testing.T) {
	if counter, err := New([]kueueconfig.DeviceClassMapping{counts("example.com/gpu", class)}, gates(t, "-")); counter != nil || err != nil {
		t.Errorf("%v, %v", counter, err)
	}
}

func TestExplainNamesWhatAsks(t *testing.T) {
	counter, err := New([]kueueconfig.DeviceClassMapping{counts("example.com/gpu", class)}, features.Set{})
	if err != nil {
		t.Fatal(err)
	}
	counter.ObjectChanged(template("one", request(class, 2)), false)
	counter.ObjectChanged(deviceClass(class, "vendor.com/gpu", 0), false)
	var explained []string
	for _, c := range counter.Explain(limited(using("one"), "vendor.com/gpu", "1")) {
		explained = append(explained, fmt.Sprintf("%s %s %s: %s", c.PodSet, c.Amount.String(), c.Resource, c.From))
	}
	want := []string{
		"main 2 example.com/gpu: ResourceClaimTemplate one, DeviceClass gpu.example.com",
		"main 1 example.com/gpu: resource vendor.com/gpu, DeviceClass gpu.example.com",
	}
	if !slices.Equal(explained, want) {
		t.Errorf("%q", explained)
	}
}

// Which workloads a change affects.
func TestNews(t *testing.T) {
	plain, selected, other, extended := using("plain"), using("selected"), using("other"), limited(using(), "vendor.com/gpu", "1")
	all := map[string]*kueue.Workload{"plain": plain, "selected": selected, "other": other, "extended": extended, "none": limited(using(), "cpu", "1")}
	counter, err := New([]kueueconfig.DeviceClassMapping{counts("example.com/gpu", class)}, features.Set{})
	if err != nil {
		t.Fatal(err)
	}
	concerned := func() string {
		concerns := counter.Changed()
		if concerns == nil {
			return "none"
		}
		var names []string
		for name, wl := range all {
			if concerns(wl) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	newer := deviceClass(class, "vendor.com/gpu", 0)
	newer.Labels = map[string]string{"says": "nothing"}
	for _, step := range []struct {
		what client.Object
		gone bool
		want string
	}{
		{template("plain", request(class, 1)), false, "plain"},
		{template("plain", request(class, 1)), false, "none"},
		{template("selected", request(class, 1, selecting("true"))), false, "selected"},
		{deviceClass(class, "vendor.com/gpu", 0), false, "extended other plain selected"},
		{newer, false, "none"},
		{slice("s", 1, card("0", "a")), false, "selected"},
		{slice("s", 1, card("0", "a")), false, "none"},
		{slice("s", 1), true, "selected"},
		{template("plain"), true, "plain"},
		{template("unknown"), true, "none"},
		{newer, true, "extended other plain selected"},
	} {
		counter.ObjectChanged(step.what, step.gone)
		if got := concerned(); got != step.want {
			t.Errorf("%T %s (gone: %t) concerns %s, want %s", step.what, step.what.GetName(), step.gone, got, step.want)
		}
	}
}

// What selectors choose is forgotten when classes or devices change.
func TestChoicesFollowDevices(t *testing.T) {
	counter, err := New([]kueueconfig.DeviceClassMapping{counts("example.com/gpu", class)}, features.Set{})
	if err != nil {
		t.Fatal(err)
	}
	wl := using("one")
	refused := func() bool {
		w := workload.ForEngine(wl, nil)
		counter.Count(&w, wl)
		return w.Refused != ""
	}
	counter.ObjectChanged(template("one", request(class, 1, selecting("true"))), false)
	for i, step := range []struct {
		what    client.Object
		gone    bool
		refused bool
	}{
		{deviceClass(class, "", 0), false, true},
		{slice("s", 1, card("0", "a")), false, false},
		{slice("s", 1), true, true},
		{slice("s", 1, card("0", "a")), false, false},
		{deviceClass(class, "", 0), true, true},
	} {
		if counter.ObjectChanged(step.what, step.gone); refused() != step.refused {
			t.Errorf("step %d: refused is %t", i, !step.refused)
		}
	}
}
