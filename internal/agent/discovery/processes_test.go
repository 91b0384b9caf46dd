//go:build cgo

package discovery

import (
	"math"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

// Every process on a card counts, and one whose memory the driver does not say is not taken for one without any.
func TestProcessesOnACard(t *testing.T) {
	server := dgxa100.New()
	server.ExtensionsFunc = func() nvml.ExtendedInterface {
		return &mock.ExtendedInterface{LookupSymbolFunc: func(string) error { return nil }}
	}
	device := server.Devices[1].(*dgxa100.Device)
	is := func(all ...nvml.ProcessInfo) func() ([]nvml.ProcessInfo, nvml.Return) {
		return func() ([]nvml.ProcessInfo, nvml.Return) { return all, nvml.SUCCESS }
	}
	device.GetComputeRunningProcessesFunc = is(nvml.ProcessInfo{Pid: 7, UsedGpuMemory: 600 << 20})
	device.GetGraphicsRunningProcessesFunc = is(nvml.ProcessInfo{Pid: 8, UsedGpuMemory: 1 << 20}, nvml.ProcessInfo{Pid: 7, UsedGpuMemory: 600 << 20})
	device.GetMPSComputeRunningProcessesFunc = is(nvml.ProcessInfo{Pid: 9, UsedGpuMemory: 2 << 20})
	source, err := NewNVML("here", server)
	if err != nil {
		t.Fatal(err)
	}
	all, err := source.Processes(t.Context(), device.UUID)
	if err != nil || !slices.Equal(all, []Process{{7, 600}, {8, 1}, {9, 2}}) {
		t.Fatalf("%v %v", all, err)
	}
	device.GetComputeRunningProcessesFunc = is(nvml.ProcessInfo{Pid: 7, UsedGpuMemory: math.MaxUint64})
	if all, err := source.Processes(t.Context(), device.UUID); err == nil {
		t.Errorf("%v", all)
	}
	if all, err := source.Processes(t.Context(), "GPU-of-another-node"); err == nil {
		t.Errorf("%v", all)
	}
}
