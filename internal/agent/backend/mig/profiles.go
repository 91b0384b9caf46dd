//go:build cgo

package mig

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// numbers of the profiles that differ in compute and memory alone. The others differ in what they have
// for video and graphics, and are never chosen here.
var numbers = []int{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2, nvml.GPU_INSTANCE_PROFILE_2_SLICE, nvml.GPU_INSTANCE_PROFILE_3_SLICE,
	nvml.GPU_INSTANCE_PROFILE_4_SLICE, nvml.GPU_INSTANCE_PROFILE_6_SLICE, nvml.GPU_INSTANCE_PROFILE_7_SLICE, nvml.GPU_INSTANCE_PROFILE_8_SLICE,
}

// profile is a size of instance that a card can be divided into.
type profile struct {
	number int
	name   string
	info   nvml.GpuInstanceProfileInfo
}

// profiles of a card, the smallest first.
func profiles(device nvml.Device) ([]profile, error) {
	memory, ret := device.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("its memory: %w", ret)
	}
	var all []profile
	for _, number := range numbers {
		info, ret := device.GetGpuInstanceProfileInfo(number)
		if ret != nvml.SUCCESS {
			continue // this card has none of that size
		}
		all = append(all, profile{number, discovery.ProfileName(info, memory.Total), info})
	}
	if len(all) == 0 {
		return nil, errors.New("it has no MIG profiles")
	}
	sort.SliceStable(all, func(i, j int) bool {
		a, b := all[i].info, all[j].info
		if a.SliceCount != b.SliceCount {
			return a.SliceCount < b.SliceCount
		}
		return a.MemorySizeMB < b.MemorySizeMB
	})
	return all, nil
}

// wanted is the smallest profile that has what the share has, or the one that its class names or that was
// chosen for it.
func wanted(device nvml.Device, card share.Card, name string) (profile, error) {
	if card.Instance != nil {
		name = card.Instance.Profile
	}
	all, err := profiles(device)
	if err != nil {
		return profile{}, err
	}
	slices := all[len(all)-1].info.SliceCount
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.name
		if name != "" {
			if p.name == name {
				return p, nil
			}
			continue
		}
		// A seventh is 14 percent where whole percents are asked for.
		enoughCore := math.Ceil(100*float64(p.info.SliceCount)/float64(slices)) >= card.Percent
		enoughMemory := card.MemoryMB >= card.Card.MemoryMB || int64(p.info.MemorySizeMB) >= card.MemoryMB
		if card.Percent >= 100 && card.MemoryMB < card.Card.MemoryMB {
			enoughCore = true // memory alone was asked for
		}
		if enoughCore && enoughMemory {
			return p, nil
		}
	}
	if name != "" {
		return profile{}, fmt.Errorf("there is no profile %q: it has %s", name, strings.Join(names, ", "))
	}
	return all[len(all)-1], nil
}

// placed is an instance that is there.
type placed struct {
	gpu  nvml.GpuInstance
	info nvml.GpuInstanceInfo
}

// instances of a card, of whatever profile.
func instances(device nvml.Device) ([]placed, error) {
	var all []placed
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		profile, ret := device.GetGpuInstanceProfileInfo(number)
		if ret != nvml.SUCCESS {
			continue
		}
		list, ret := device.GetGpuInstances(&profile)
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("listing instances: %w", ret)
		}
		for _, gpu := range list {
			info, ret := gpu.GetInfo()
			if ret != nvml.SUCCESS {
				return nil, fmt.Errorf("an instance: %w", ret)
			}
			all = append(all, placed{gpu, info})
		}
	}
	return all, nil
}

// find the instance that is at that place, nil if none is.
func find(device nvml.Device, i instance) (nvml.GpuInstance, error) {
	profile, ret := device.GetGpuInstanceProfileInfo(i.Profile)
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return nil, nil // MIG is off
	}
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("profile %s: %w", i.Name, ret)
	}
	there, err := instances(device)
	if err != nil {
		return nil, err
	}
	for _, p := range there {
		if p.info.ProfileId == profile.Id && p.info.Placement.Start == i.Start {
			return p.gpu, nil
		}
	}
	return nil, nil
}

func overlap(a, b nvml.GpuInstancePlacement) bool {
	return a.Start < b.Start+b.Size && b.Start < a.Start+a.Size
}

// placeFor an instance: the one that was chosen, or of the places that are free the one that leaves most
// places for others, the larger the better.
func placeFor(device nvml.Device, p profile, chosen *share.Instance) (nvml.GpuInstancePlacement, error) {
	there, err := instances(device)
	if err != nil {
		return nvml.GpuInstancePlacement{}, err
	}
	var taken []nvml.GpuInstancePlacement
	for _, i := range there {
		taken = append(taken, i.info.Placement)
	}
	all, err := profiles(device)
	if err != nil {
		return nvml.GpuInstancePlacement{}, err
	}
	places := make([][]nvml.GpuInstancePlacement, len(all))
	for i := range all {
		var ret nvml.Return
		if places[i], ret = device.GetGpuInstancePossiblePlacements(&all[i].info); ret != nvml.SUCCESS {
			return nvml.GpuInstancePlacement{}, fmt.Errorf("places of %s: %w", all[i].name, ret)
		}
	}
	best, most := nvml.GpuInstancePlacement{}, -1
	for i := range all {
		if all[i].number != p.number {
			continue
		}
		for _, place := range places[i] {
			if free(place, taken) && (chosen == nil || chosen.Start == place.Start) {
				if left := spaceLeft(all, places, append(taken[:len(taken):len(taken)], place)); left > most {
					best, most = place, left
				}
			}
		}
	}
	if most < 0 && chosen != nil {
		return best, fmt.Errorf("it has no free place for %s at %d", p.name, chosen.Start)
	}
	if most < 0 {
		return best, fmt.Errorf("it has no free place for %s", p.name)
	}
	return best, nil
}

func free(place nvml.GpuInstancePlacement, taken []nvml.GpuInstancePlacement) bool {
	for _, t := range taken {
		if overlap(place, t) {
			return false
		}
	}
	return true
}

// spaceLeft adds up the places that are free, each by its size.
func spaceLeft(all []profile, places [][]nvml.GpuInstancePlacement, taken []nvml.GpuInstancePlacement) int {
	sum := 0
	for i := range all {
		for _, place := range places[i] {
			if free(place, taken) {
				sum += int(all[i].info.SliceCount)
			}
		}
	}
	return sum
}

// computeOf is the number of the compute instance that has all of a GPU instance; it is made if it is
// not there.
func computeOf(gpu nvml.GpuInstance) (int, error) {
	var largest *nvml.ComputeInstanceProfileInfo
	for number := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gpu.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != nvml.SUCCESS {
			continue
		}
		if largest == nil || info.SliceCount > largest.SliceCount {
			largest = &info
		}
	}
	if largest == nil {
		return 0, errors.New("it has no compute profiles")
	}
	there, ret := gpu.GetComputeInstances(largest)
	if ret != nvml.SUCCESS {
		return 0, fmt.Errorf("listing compute instances: %w", ret)
	}
	if len(there) == 0 {
		made, ret := gpu.CreateComputeInstance(largest)
		if ret != nvml.SUCCESS {
			return 0, fmt.Errorf("making a compute instance: %w", ret)
		}
		there = append(there, made)
	}
	info, ret := there[0].GetInfo()
	if ret != nvml.SUCCESS {
		return 0, fmt.Errorf("a compute instance: %w", ret)
	}
	return int(info.Id), nil
}

// deviceOf is the UUID by which programs name an instance.
func deviceOf(device nvml.Device, gpu, compute int) (string, error) {
	count, ret := device.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return "", fmt.Errorf("counting MIG devices: %w", ret)
	}
	for i := range count {
		mig, ret := device.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // fewer than there could be
		}
		g, ret := mig.GetGpuInstanceId()
		if ret != nvml.SUCCESS || g != gpu {
			continue
		}
		if c, ret := mig.GetComputeInstanceId(); ret != nvml.SUCCESS || c != compute {
			continue
		}
		uuid, ret := mig.GetUUID()
		if ret != nvml.SUCCESS {
			return "", fmt.Errorf("its UUID: %w", ret)
		}
		return uuid, nil
	}
	return "", errors.New("the driver does not show it")
}

// destroy an instance with what is in it.
func destroy(gpu nvml.GpuInstance) error {
	for number := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gpu.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != nvml.SUCCESS {
			continue
		}
		list, ret := gpu.GetComputeInstances(&info)
		if ret != nvml.SUCCESS {
			continue
		}
		for _, compute := range list {
			if ret := compute.Destroy(); ret != nvml.SUCCESS {
				return fmt.Errorf("destroying its compute instance: %w", ret)
			}
		}
	}
	if ret := gpu.Destroy(); ret != nvml.SUCCESS {
		return fmt.Errorf("destroying it: %w", ret)
	}
	return nil
}
