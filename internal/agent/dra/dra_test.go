package dra

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/mig"
)

const node = "here"

// halves of a card: two instances that exclude each other with the whole one.
func halves(string) ([]mig.Partition, bool) {
	return []mig.Partition{
		{Profile: "1g.20gb", Start: 0, Size: 2, Slices: 1, MemoryMB: 20000},
		{Profile: "1g.20gb", Start: 2, Size: 2, Slices: 1, MemoryMB: 20000},
		{Profile: "2g.40gb", Start: 0, Size: 4, Slices: 2, MemoryMB: 40000},
	}, false
}

func cards(n int) []Card {
	var list []Card
	for i := range n {
		list = append(list, Card{Card: conformance.Card(i)})
	}
	return list
}

// claim with what was allocated to its requests, each as "request device percent memoryMi".
func claim(results ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "mine", UID: "claim-uid"}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, text := range results {
		var request, device string
		var percent, memoryMB int
		if n, _ := fmt.Sscan(text, &request, &device, &percent, &memoryMB); n < 2 {
			panic(text)
		}
		result := resourceapi.DeviceRequestAllocationResult{Request: request, Driver: Driver, Pool: node, Device: device}
		if percent > 0 {
			result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
				core: *resource.NewQuantity(int64(percent), resource.DecimalSI), memory: resource.MustParse(fmt.Sprintf("%dMi", memoryMB)),
			}
		}
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, result)
	}
	return c
}

func user(containers ...string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "user", UID: "pod-uid"}}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "card", ResourceClaimName: ptr.To("mine")}}
	for _, name := range containers {
		name, request, _ := strings.Cut(name, ":")
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Resources: corev1.ResourceRequirements{
			Claims: []corev1.ResourceClaim{{Name: "card", Request: request}},
		}})
	}
	return p
}

// A card is one device that can be shared; its partitions consume the same counters, so that they exclude it and
// each other where they overlap.
func TestDevicesOfACard(t *testing.T) {
	c := newCatalog(cards(1), halves)
	names := []string{}
	for _, d := range c.devices {
		names = append(names, d.Name)
	}
	if want := []string{"gpu-0", "gpu-0-1g-20gb-0", "gpu-0-1g-20gb-2", "gpu-0-2g-40gb-0"}; !slices.Equal(names, want) {
		t.Fatalf("devices %v, want %v", names, want)
	}
	shared := c.devices[0]
	if shared.AllowMultipleAllocations == nil || !*shared.AllowMultipleAllocations {
		t.Error("the card is for one claim alone")
	}
	for name, step := range map[resourceapi.QualifiedName]string{core: "1", memory: "1Mi"} {
		if policy := shared.Capacity[name].RequestPolicy; policy.ValidRange.Step.String() != step || policy.Default.Cmp(shared.Capacity[name].Value) != 0 {
			t.Errorf("%s: %+v, want steps of %s and all of it where nothing is said", name, policy, step)
		}
	}
	available := c.counters[0].Counters
	for i, fits := range map[int][]int{0: {}, 1: {2}, 2: {1}, 3: {}} {
		for j := range c.devices {
			if i == j {
				continue
			}
			both := true
			for name, all := range available {
				sum := c.devices[i].ConsumesCounters[0].Counters[name].Value.DeepCopy()
				sum.Add(c.devices[j].ConsumesCounters[0].Counters[name].Value)
				both = both && sum.Cmp(all.Value) <= 0
			}
			if both != slices.Contains(fits, j) {
				t.Errorf("%s beside %s: %v", names[i], names[j], both)
			}
		}
	}
}

// Many cards with many partitions stay within what one ResourceSlice may hold.
func TestSlicesStaySmall(t *testing.T) {
	many := func(string) ([]mig.Partition, bool) {
		var list []mig.Partition
		for i := range uint32(19) {
			list = append(list, mig.Partition{Profile: "1g.5gb", Start: i, Size: 1, Slices: 1, MemoryMB: 1000})
		}
		return list, true
	}
	c := newCatalog(cards(16), many)
	devices, counters := 0, 0
	for _, s := range c.resources(node).Pools[node].Slices {
		if len(s.Devices) > 64 || len(s.SharedCounters) > 8 || len(s.Devices) > 0 && len(s.SharedCounters) > 0 {
			t.Errorf("a slice of %d devices and %d counters", len(s.Devices), len(s.SharedCounters))
		}
		devices, counters = devices+len(s.Devices), counters+len(s.SharedCounters)
	}
	if devices != 16*19 || counters != 16 {
		t.Errorf("%d devices and %d counters: a card that is divided for good has partitions alone", devices, counters)
	}
	if empty := newCatalog(nil, nil).resources(node).Pools[node].Slices; len(empty) != 1 {
		t.Errorf("%d slices for no cards, want one that says so", len(empty))
	}
}

func TestCardThatIsIllIsTainted(t *testing.T) {
	ill := cards(1)
	ill[0].Problem = "fell off the bus"
	if taints := newCatalog(ill, halves).devices[1].Taints; len(taints) != 1 || taints[0].Effect != resourceapi.DeviceTaintEffectNoSchedule {
		t.Errorf("taints %v", taints)
	}
}

func TestClaimBecomesShares(t *testing.T) {
	class := func(source resourceapi.AllocationConfigSource, request, parameters string) resourceapi.DeviceAllocationConfiguration {
		c := resourceapi.DeviceAllocationConfiguration{Source: source}
		if request != "" {
			c.Requests = []string{request}
		}
		c.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: Driver, Parameters: runtime.RawExtension{Raw: []byte(parameters)}}
		return c
	}
	const fromClass, fromClaim = resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim
	for name, tc := range map[string]struct {
		results []string
		configs []resourceapi.DeviceAllocationConfiguration
		pod     corev1.Pod
		want    string // of each share its cards, its container and its parameters
		err     string
	}{
		"a part of a card":      {results: []string{"a gpu-1 30 1000"}, pod: user("main"), want: "1:30%:1000 main map[]"},
		"two of one card":       {results: []string{"a gpu-1 30 1000", "a gpu-1 20 500"}, pod: user("main"), want: "1:50%:1500 main map[]"},
		"two cards":             {results: []string{"a gpu-0 30 1000", "a gpu-1 30 1000"}, pod: user("main"), want: "0:30%:1000,1:30%:1000 main map[]"},
		"two requests":          {results: []string{"a gpu-0 30 1000", "b gpu-1 40 2000"}, pod: user("x:a", "y:b"), want: "0:30%:1000 x map[]; 1:40%:2000 y map[]"},
		"one of several":        {results: []string{"a/small gpu-0 30 1000"}, pod: user("x:a"), want: "0:30%:1000 x map[]"},
		"a class's parameters":  {results: []string{"a gpu-0 30 1000"}, configs: []resourceapi.DeviceAllocationConfiguration{class(fromClass, "a", `{"swap":"on"}`)}, pod: user("main"), want: "0:30%:1000 main map[swap:on]"},
		"another's parameters":  {results: []string{"a gpu-0 30 1000"}, configs: []resourceapi.DeviceAllocationConfiguration{class(fromClass, "b", `{"swap":"on"}`)}, pod: user("main"), want: "0:30%:1000 main map[]"},
		"a claim's parameters":  {results: []string{"a gpu-0 30 1000"}, configs: []resourceapi.DeviceAllocationConfiguration{class(fromClaim, "", `{"backend":"mps"}`)}, pod: user("main"), err: "write them in the device class"},
		"parameters, not words": {results: []string{"a gpu-0 30 1000"}, configs: []resourceapi.DeviceAllocationConfiguration{class(fromClass, "", `{"swap":1}`)}, pod: user("main"), err: "parameters of the device class"},
		"a partition":           {results: []string{"a gpu-0-1g-20gb-2"}, pod: user("main"), want: "0:50%:20000:1g.20gb@2 main map[backend:mig]"},
		"a mixture":             {results: []string{"a gpu-0-1g-20gb-2", "a gpu-1 30 1000"}, pod: user("main"), err: "ask for them apart"},
		"two containers":        {results: []string{"a gpu-0 30 1000"}, pod: user("x", "y"), err: "used by user/x, user/y"},
		"two with a whole card": {results: []string{"a gpu-0 100 40960"}, pod: user("x", "y"), want: "0:100%:40960 x map[]"},
		"two with an instance":  {results: []string{"a gpu-0-1g-20gb-2"}, pod: user("x", "y"), want: "0:50%:20000:1g.20gb@2 x map[backend:mig]"},
		"no such device":        {results: []string{"a gpu-7 30 1000"}, pod: user("main"), err: "no device gpu-7"},
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(tc.results...)
			c.Status.Allocation.Devices.Config = tc.configs
			list, err := newCatalog(cards(2), halves).shares(c, node, []corev1.Pod{tc.pod})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("%v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, p := range list {
				var parts []string
				for _, card := range p.share.Cards {
					part := fmt.Sprintf("%d:%g%%:%d", card.Index, card.Percent, card.MemoryMB)
					if card.Instance != nil {
						part += fmt.Sprintf(":%s@%d", card.Instance.Profile, card.Instance.Start)
					}
					parts = append(parts, part)
				}
				all = append(all, fmt.Sprint(strings.Join(parts, ","), " ", p.share.Container, " ", p.share.Parameters))
				if p.share.UID != "pod-uid" || p.share.Claim == nil || p.share.Claim.UID != "claim-uid" {
					t.Errorf("which container: %+v", p.share)
				}
			}
			if got := strings.Join(all, "; "); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Each request of each claim has a slot of its own, by a name that is the same each time.
func TestSlotsOfClaims(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		for _, uid := range []types.UID{"one", "two"} {
			c := claim("a gpu-0 30 1000", "b gpu-1 30 1000")
			c.UID = uid
			list, err := newCatalog(cards(2), nil).shares(c, node, nil)
			if err != nil {
				t.Fatal(err)
			}
			seen[list[0].share.ID], seen[list[1].share.ID] = true, true
		}
	}
	if len(seen) != 4 {
		t.Errorf("slots %v, want four", seen)
	}
}

// The kubelet gets a report which devices are unhealthy, and why.
func TestHealthOfDevices(t *testing.T) {
	p := &Plugin{Node: node}
	all := cards(2)
	all[1].Problem = "fell off the bus"
	if err := p.Offer(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	reports, ended := make(chan kubeletplugin.DeviceHealthReport), make(chan error)
	go func() { ended <- p.WatchHealthStatus(ctx, reports) }()
	found := map[string]string{}
	for _, d := range (<-reports).Devices {
		found[d.DeviceName] = string(d.Health) + d.Message
	}
	if len(found) != 2 || found["gpu-0"] != "Healthy" || found["gpu-1"] != "Unhealthyfell off the bus" {
		t.Errorf("reported %v", found)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
