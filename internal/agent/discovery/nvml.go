//go:build cgo

package discovery

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/elastic-ai/elastic/internal/panics"
)

// NVML knows the cards of the node it runs on.
type NVML struct {
	node   string
	lib    nvml.Interface
	health health
	meter  meter
}

// OpenNVML is for the node that this runs on.
func OpenNVML(node string) (*NVML, error) { return NewNVML(node, nvml.New()) }

// NewNVML loads the driver's library. The error says that there is none.
func NewNVML(node string, lib nvml.Interface) (*NVML, error) {
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("no NVIDIA driver answers: %w", ret)
	}
	return &NVML{node: node, lib: lib, health: health{problems: map[string]problem{}, now: time.Now}}, nil
}

// Lib is the driver's library.
func (n *NVML) Lib() nvml.Interface { return n.lib }

// Close gives the library back.
func (n *NVML) Close() { _ = n.lib.Shutdown() }

// Serves the node it runs on.
func (n *NVML) Serves(node *corev1.Node) bool { return node.Name == n.node }

// Cards asks the driver.
func (n *NVML) Cards(ctx context.Context, _ *corev1.Node) ([]Card, error) {
	count, ret := n.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("counting cards: %w", ret)
	}
	devices := make([]nvml.Device, count)
	cards := make([]Card, count)
	for i := range cards {
		device, ret := n.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			cards[i] = Card{Index: i, Problem: "the driver gives no handle: " + ret.Error()}
			continue
		}
		devices[i] = device
		if err := panics.Contain(logr.FromContextOrDiscard(ctx), "discover", fmt.Sprintf("card %d", i), func() error {
			cards[i] = n.describe(i, device)
			return nil
		}); err != nil {
			cards[i] = Card{Index: i, Problem: err.Error()}
		}
		cards[i].Problem = cmp.Or(cards[i].Problem, n.health.of(cards[i].UUID))
	}
	n.link(cards, devices)
	return cards, nil
}

// has says whether the driver knows a function; to call one that it does not know ends the process.
func (n *NVML) has(function string) bool { return n.lib.Extensions().LookupSymbol(function) == nil }

// describe reads one card. What the driver cannot say makes a card unusable
// only where it is needed to use it.
func (n *NVML) describe(index int, device nvml.Device) Card {
	card := Card{Index: index, NUMA: -1}
	var ret nvml.Return
	if card.UUID, ret = device.GetUUID(); ret != nvml.SUCCESS {
		card.Problem = "it has no identity: " + ret.Error()
	}
	memory, ret := device.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		card.Problem = "its memory cannot be read: " + ret.Error()
	}
	// The newer answer leaves out what the driver uses itself, as nvidia-smi does.
	if apart, ret := device.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
		memory.Used = apart.Used
	}
	card.MemoryMB, card.UsedMB = int64(memory.Total>>20), int64(memory.Used>>20)
	if name, ret := device.GetName(); ret == nvml.SUCCESS {
		card.Model = shortModel(name, card.MemoryMB)
	}
	card.Path = fmt.Sprintf("/dev/nvidia%d", index)
	if minor, ret := device.GetMinorNumber(); ret == nvml.SUCCESS {
		card.Path = fmt.Sprintf("/dev/nvidia%d", minor)
	}
	if pci, ret := device.GetPciInfo(); ret == nvml.SUCCESS {
		card.NUMA = numaOf(pci)
	}
	card.Instances = instances(device, memory.Total)
	if memory.Total > 0 {
		card.Load = &Load{Core: n.busy(card, device), Memory: int(memory.Used * 100 / memory.Total)}
		if milliwatts, ret := device.GetPowerUsage(); ret == nvml.SUCCESS {
			card.Load.Power = int(milliwatts / 1000)
		}
	}
	return card
}

// nvlinkBandwidth is what one NVLink carries in GB/s, both ways, by version.
var nvlinkBandwidth = map[uint32]int64{1: 40, 2: 50, 3: 50, 4: 50, 5: 100}

const maxLinks = 18

// link fills in the NVLinks between the cards, and where there are none the PCIe between those of one socket.
func (n *NVML) link(cards []Card, devices []nvml.Device) {
	byBus := map[string]int{}
	for i, device := range devices {
		if device == nil {
			continue
		}
		if pci, ret := device.GetPciInfo(); ret == nvml.SUCCESS {
			byBus[busID(pci.BusId[:])] = i
		}
	}
	for i, device := range devices {
		if device == nil {
			continue
		}
		bandwidth := map[int]int64{}
		for l := range maxLinks {
			if state, ret := device.GetNvLinkState(l); ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
				continue
			}
			remote, ret := device.GetNvLinkRemotePciInfo(l)
			if ret != nvml.SUCCESS {
				continue
			}
			version, _ := device.GetNvLinkVersion(l)
			if to, ours := byBus[busID(remote.BusId[:])]; ours && to != i {
				bandwidth[to] += nvlinkBandwidth[version]
			}
		}
		for to := range cards {
			if bandwidth[to] > 0 {
				cards[i].Links = append(cards[i].Links, Link{To: to, Bandwidth: bandwidth[to], Kind: NVLink})
			} else if width := n.pcie(device, devices[to]); to != i && width > 0 {
				cards[i].Links = append(cards[i].Links, Link{To: to, Bandwidth: width, Kind: PCIe})
			}
		}
	}
}

// laneBandwidth is what a PCIe lane carries in GB/s, one way, in quarters, by generation.
var laneBandwidth = map[int]int64{1: 1, 2: 2, 3: 4, 4: 8, 5: 16, 6: 32}

// pcie is what two cards can exchange over PCIe in GB/s, both ways: what the narrower of the two carries by its
// generation and width. It is 0 between sockets, and where the driver does not say.
func (n *NVML) pcie(a, b nvml.Device) int64 {
	for _, function := range []string{"nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth"} {
		if !n.has(function) {
			return 0
		}
	}
	if a == nil || b == nil {
		return 0
	}
	if level, ret := a.GetTopologyCommonAncestor(b); ret != nvml.SUCCESS || level >= nvml.TOPOLOGY_SYSTEM {
		return 0
	}
	var narrow int64
	for i, device := range []nvml.Device{a, b} {
		generation, ret := device.GetMaxPcieLinkGeneration()
		lanes, too := device.GetMaxPcieLinkWidth()
		if ret != nvml.SUCCESS || too != nvml.SUCCESS {
			return 0
		}
		if width := 2 * laneBandwidth[generation] * int64(lanes) / 4; i == 0 || width < narrow {
			narrow = width
		}
	}
	return narrow
}

// numaOf asks the kernel which NUMA node a PCI device is attached to; -1 when
// it does not say.
func numaOf(pci nvml.PciInfo) int {
	address := strings.ToLower(busID(pci.BusId[:]))
	if len(address) > 12 {
		address = address[len(address)-12:] // the kernel writes a domain of four digits
	}
	data, err := os.ReadFile(filepath.Join("/sys/bus/pci/devices", address, "numa_node"))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return -1
	}
	return n
}

// busID is a PCI address from the driver's fixed array of characters.
func busID[C int8 | uint8](chars []C) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}
