//go:build cgo

package mig

import (
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Partitions that a card can be divided into, the smallest first; none of one that cannot, or that does not
// say because MIG is off. always says that MIG was switched on for good: the card has nothing but partitions.
func (b *Backend) Partitions(uuid string) (list []Partition, always bool) {
	device, ret := b.Lib.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return nil, false
	}
	now, _, ret := device.GetMigMode()
	if ret != nvml.SUCCESS {
		return nil, false
	}
	all, err := profiles(device)
	if err != nil {
		return nil, false
	}
	_, err = os.Stat(b.path("cards", uuid))
	always = now == nvml.DEVICE_MIG_ENABLE && err != nil
	for i := range all {
		places, ret := device.GetGpuInstancePossiblePlacements(&all[i].info)
		if ret != nvml.SUCCESS {
			continue
		}
		for _, place := range places {
			list = append(list, Partition{
				Profile: all[i].name, Start: place.Start, Size: place.Size, Slices: all[i].info.SliceCount, MemoryMB: int64(all[i].info.MemorySizeMB),
			})
		}
	}
	return list, always
}
