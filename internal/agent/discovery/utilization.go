//go:build cgo

package discovery

import (
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// meter stores the last look at each instance of divided cards: the driver says how busy instances were between
// two looks, and nothing about the card.
type meter struct {
	mu   sync.Mutex
	last map[instanceKey]look
}

type instanceKey struct {
	card string
	id   int
}

type look struct {
	sample nvml.GpmSample
	at     time.Time
}

// apart is how long two looks must be from one another to say something.
const apart = 100 * time.Millisecond

// busy is the part of the time, in percent, in which the card did something. Of a divided card it is that of its
// instances, each by its part of the compute.
func (n *NVML) busy(card Card, device nvml.Device) int {
	if load, ret := device.GetUtilizationRates(); ret == nvml.SUCCESS {
		return int(load.Gpu)
	}
	if now, _, ret := device.GetMigMode(); ret != nvml.SUCCESS || now != nvml.DEVICE_MIG_ENABLE || !n.has("nvmlGpmMigSampleGet") {
		return Unknown
	}
	slices := 0
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		if profile, ret := device.GetGpuInstanceProfileInfo(number); ret == nvml.SUCCESS {
			slices = max(slices, int(profile.SliceCount))
		}
	}
	n.meter.mu.Lock()
	defer n.meter.mu.Unlock()
	n.meter.forget(n.lib, card)
	sum := 0.0
	for _, instance := range card.Instances {
		percent, ok := n.meter.read(n.lib, device, instanceKey{card.UUID, instance.ID})
		if !ok {
			return Unknown
		}
		sum += percent * float64(instance.Slices)
	}
	return int(sum) / max(slices, 1)
}

// read how busy an instance was since the last look. The first time it looks twice.
func (m *meter) read(lib nvml.Interface, device nvml.Device, key instanceKey) (float64, bool) {
	before, known := m.last[key]
	if !known {
		var ok bool
		if before, ok = m.look(lib, device, key); !ok {
			return 0, false
		}
	}
	if wait := apart - time.Since(before.at); wait > 0 {
		time.Sleep(wait)
	}
	now, ok := m.look(lib, device, key)
	if !ok {
		_ = lib.GpmSampleFree(before.sample)
		delete(m.last, key)
		return 0, false
	}
	question := &nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: before.sample, Sample2: now.sample}
	question.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_GRAPHICS_UTIL)
	ret := lib.GpmMetricsGet(question)
	_ = lib.GpmSampleFree(before.sample)
	if m.last == nil {
		m.last = map[instanceKey]look{}
	}
	m.last[key] = now
	answer := question.Metrics[0]
	return answer.Value, ret == nvml.SUCCESS && nvml.Return(answer.NvmlReturn) == nvml.SUCCESS
}

func (*meter) look(lib nvml.Interface, device nvml.Device, key instanceKey) (look, bool) {
	sample, ret := lib.GpmSampleAlloc()
	if ret != nvml.SUCCESS {
		return look{}, false
	}
	if ret := lib.GpmMigSampleGet(device, key.id, sample); ret != nvml.SUCCESS {
		_ = lib.GpmSampleFree(sample)
		return look{}, false
	}
	return look{sample, time.Now()}, true
}

// forget instances that the card no longer has. Their numbers are used again.
func (m *meter) forget(lib nvml.Interface, card Card) {
	there := map[int]bool{}
	for _, i := range card.Instances {
		there[i.ID] = true
	}
	for key, l := range m.last {
		if key.card == card.UUID && !there[key.id] {
			_ = lib.GpmSampleFree(l.sample)
			delete(m.last, key)
		}
	}
}
