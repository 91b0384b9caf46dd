package dra

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/elastic-ai/elastic/internal/agent/backend/mig"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Driver is the name that device classes select by.
const Driver = "gpu.elasticgpu.io"

// Names of capacities and attributes, in the driver's domain.
const (
	core, memory = "core", "memory"

	kindShare, kindMIG = "gpu", "mig"
)

// Card that is offered to ResourceClaims.
type Card struct {
	discovery.Card
	// Closed says why no more of it is given out; what was stays.
	Closed string
}

// target is what stands behind a device: a card, or an instance of it.
type target struct {
	card     discovery.Card
	instance *share.Instance
	percent  float64
	memoryMB int64
}

// catalog of a node's devices.
type catalog struct {
	devices  []resourceapi.Device
	counters []resourceapi.CounterSet
	targets  map[string]target // by device
}

// partitions says what a card can be divided into, and whether it has nothing else.
type partitions func(uuid string) ([]mig.Partition, bool)

// Devices that cards are to ResourceClaims.
func Devices(cards []Card, parts func(uuid string) ([]mig.Partition, bool)) []resourceapi.Device {
	return newCatalog(cards, parts).devices
}

func newCatalog(cards []Card, parts partitions) *catalog {
	c := &catalog{targets: map[string]target{}}
	for _, card := range cards {
		c.add(card, parts)
	}
	return c
}

// add a card: as a device that can be shared, and one for each partition.
func (c *catalog) add(card Card, parts partitions) {
	name := fmt.Sprintf("gpu-%d", card.Index)
	var divisions []mig.Partition
	always := false
	if parts != nil {
		divisions, always = parts(card.UUID)
	}
	all := map[string]resourceapi.Counter{}
	var slices uint32
	for _, d := range divisions {
		slices = max(slices, d.Slices)
		for at := d.Start; at < d.Start+d.Size; at++ {
			all[memorySlice(at)] = counter(1)
		}
	}
	if len(divisions) > 0 {
		all["compute"] = counter(int64(slices))
		c.counters = append(c.counters, resourceapi.CounterSet{Name: name, Counters: all})
	}
	if !always {
		device := c.device(card, name, kindShare)
		device.AllowMultipleAllocations = ptr.To(true)
		device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			core:   consumable(100, 1, resource.DecimalSI),
			memory: consumable(card.MemoryMB<<20, 1<<20, resource.BinarySI),
		}
		if len(divisions) > 0 {
			device.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: name, Counters: all}}
		}
		c.devices = append(c.devices, device)
		c.targets[name] = target{card: card.Card, percent: 100, memoryMB: card.MemoryMB}
	}
	for _, d := range divisions {
		part := fmt.Sprintf("%s-%s-%d", name, strings.NewReplacer(".", "-", "+", "-").Replace(d.Profile), d.Start)
		percent := 100 * float64(d.Slices) / float64(slices)
		device := c.device(card, part, kindMIG)
		device.Attributes["profile"] = text(d.Profile)
		device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			core:   {Value: *resource.NewQuantity(int64(percent), resource.DecimalSI)},
			memory: {Value: *resource.NewQuantity(d.MemoryMB<<20, resource.BinarySI)},
		}
		uses := map[string]resourceapi.Counter{"compute": counter(int64(d.Slices))}
		for at := d.Start; at < d.Start+d.Size; at++ {
			uses[memorySlice(at)] = counter(1)
		}
		device.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: name, Counters: uses}}
		c.devices = append(c.devices, device)
		c.targets[part] = target{card: card.Card, instance: &share.Instance{Profile: d.Profile, Start: d.Start}, percent: percent, memoryMB: d.MemoryMB}
	}
}

// device of a card. One that must not be used is tainted: what runs there stays, as it does with the scheduler.
func (*catalog) device(card Card, name, kind string) resourceapi.Device {
	device := resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type": text(kind), "uuid": text(card.UUID), "model": text(card.Model), "index": {IntValue: ptr.To(int64(card.Index))},
	}}
	if card.NUMA >= 0 {
		device.Attributes["numa"] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(card.NUMA))}
	}
	for key, why := range map[string]string{"unhealthy": card.Problem, "closed": card.Closed} {
		if why != "" {
			device.Taints = append(device.Taints, resourceapi.DeviceTaint{Key: Driver + "/" + key, Effect: resourceapi.DeviceTaintEffectNoSchedule})
		}
	}
	return device
}

// The API server takes so many of each in one ResourceSlice.
const (
	sliceDevices  = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
	sliceCounters = resourceapi.ResourceSliceMaxCounterSets
)

// resources as the ResourceSlices of the node's pool. A pool without devices says that the driver is there.
func (c *catalog) resources(node string) resourceslice.DriverResources {
	pool := resourceslice.Pool{}
	for at := 0; at == 0 || at < len(c.devices); at += sliceDevices {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: c.devices[at:min(at+sliceDevices, len(c.devices))]})
	}
	for at := 0; at < len(c.counters); at += sliceCounters {
		pool.Slices = append(pool.Slices, resourceslice.Slice{SharedCounters: c.counters[at:min(at+sliceCounters, len(c.counters))]})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
}

// consumable capacity, in whole steps. A request that does not say takes all of it: nothing is given out twice.
func consumable(all, step int64, format resource.Format) resourceapi.DeviceCapacity {
	quantity := func(n int64) *resource.Quantity { return resource.NewQuantity(n, format) }
	return resourceapi.DeviceCapacity{Value: *quantity(all), RequestPolicy: &resourceapi.CapacityRequestPolicy{
		Default: quantity(all), ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: quantity(step), Max: quantity(all), Step: quantity(step)},
	}}
}

func memorySlice(at uint32) string { return fmt.Sprintf("memory-slice-%d", at) }

func counter(n int64) resourceapi.Counter {
	return resourceapi.Counter{Value: *resource.NewQuantity(n, resource.DecimalSI)}
}

func text(s string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: ptr.To(s[:min(len(s), 64)])}
}
