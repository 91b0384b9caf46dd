//go:build cgo

package discovery

import (
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// instances of a card, in the driver's order.
func instances(device nvml.Device, total uint64) []Instance {
	if now, _, ret := device.GetMigMode(); ret != nvml.SUCCESS || now != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	places := map[int]Instance{}
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		profile, ret := device.GetGpuInstanceProfileInfo(number)
		if ret != nvml.SUCCESS {
			continue
		}
		list, ret := device.GetGpuInstances(&profile)
		if ret != nvml.SUCCESS {
			continue
		}
		for _, gpu := range list {
			if info, ret := gpu.GetInfo(); ret == nvml.SUCCESS {
				places[int(info.Id)] = Instance{
					Profile: ProfileName(profile, total), Start: int(info.Placement.Start), ID: int(info.Id), Slices: int(profile.SliceCount),
				}
			}
		}
	}
	count, ret := device.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	var all []Instance
	for i := range count {
		mig, ret := device.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // fewer than there could be
		}
		uuid, ret := mig.GetUUID()
		id, known := mig.GetGpuInstanceId()
		if ret != nvml.SUCCESS || known != nvml.SUCCESS {
			continue
		}
		instance := places[id]
		instance.UUID = uuid
		all = append(all, instance)
	}
	return all
}

// ProfileName of a size of instance as NVIDIA's tools write it: the memory in eighths of the card's,
// rounded up.
func ProfileName(info nvml.GpuInstanceProfileInfo, total uint64) string {
	eighths := math.Ceil(float64(info.MemorySizeMB<<20)/float64(total)*8) / 8
	gigabytes := math.Ceil(float64(total) / (1 << 30))
	return fmt.Sprintf("%dg.%.0fgb", info.SliceCount, math.Round(eighths*gigabytes))
}
