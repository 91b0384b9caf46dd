//go:build cgo

package discovery

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Processes on a card, of whichever kind, by pid.
func (n *NVML) Processes(_ context.Context, uuid string) ([]Process, error) {
	device, ret := n.lib.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("card %s: %w", uuid, ret)
	}
	memory := map[int]int64{} // one of several kinds is listed more than once
	for function, list := range map[string]func() ([]nvml.ProcessInfo, nvml.Return){
		"nvmlDeviceGetComputeRunningProcesses":    device.GetComputeRunningProcesses,
		"nvmlDeviceGetGraphicsRunningProcesses":   device.GetGraphicsRunningProcesses,
		"nvmlDeviceGetMPSComputeRunningProcesses": device.GetMPSComputeRunningProcesses,
	} {
		if !n.has(function) {
			continue
		}
		found, ret := list()
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("the processes on card %s: %w", uuid, ret)
		}
		for _, p := range found {
			if p.UsedGpuMemory == math.MaxUint64 {
				return nil, fmt.Errorf("the driver does not say what process %d has on card %s", p.Pid, uuid)
			}
			memory[int(p.Pid)] = max(memory[int(p.Pid)], int64(p.UsedGpuMemory>>20))
		}
	}
	all := make([]Process, 0, len(memory))
	for _, pid := range slices.Sorted(maps.Keys(memory)) {
		all = append(all, Process{pid, memory[pid]})
	}
	return all, nil
}
