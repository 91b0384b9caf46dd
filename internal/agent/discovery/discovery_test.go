//go:build cgo

package discovery

import (
	"fmt"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestShortModel(t *testing.T) {
	// Names and memory as drivers report them.
	for _, tc := range []struct {
		name   string
		memory int64
		want   string
	}{
		{"NVIDIA H200", 143771, "H200-141G"},
		{"NVIDIA H100 80GB HBM3", 81559, "H100-80G"},
		{"NVIDIA A100-SXM4-40GB", 40960, "A100-40G"},
		{"NVIDIA A100-SXM4-80GB", 81920, "A100-80G"},
		{"Tesla V100-SXM2-16GB", 16160, "V100-16G"},
		{"Tesla T4", 15360, "T4-16G"},
		{"NVIDIA A10", 23028, "A10-24G"},
		{"NVIDIA L40S", 46068, "L40S-48G"},
		{"NVIDIA RTX 6000", 49140, "RTX-48G"}, // none we know: what the driver says
	} {
		if got := shortModel(tc.name, tc.memory); got != tc.want {
			t.Errorf("%s with %d MiB: %s, want %s", tc.name, tc.memory, got, tc.want)
		}
	}
}

// cardsOf are those of a DGX with something changed.
func cardsOf(t *testing.T, change func(*dgxa100.Server)) []Card {
	t.Helper()
	server := dgxa100.New()
	for i, device := range server.Devices {
		complete(device.(*dgxa100.Device), server, i)
	}
	change(server)
	source, err := NewNVML("here", server)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	cards, err := source.Cards(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cards
}

func TestNVMLOnADGX(t *testing.T) {
	cards := cardsOf(t, func(*dgxa100.Server) {})
	if len(cards) != 8 {
		t.Fatalf("%d cards, want 8", len(cards))
	}
	seen := map[string]bool{}
	for i, card := range cards {
		if card.Index != i || card.Problem != "" || card.Model != "A100-40G" || card.MemoryMB == 0 || seen[card.UUID] {
			t.Errorf("card %d: %+v", i, card)
		}
		seen[card.UUID] = true
		if card.UsedMB != 1000 {
			t.Errorf("card %d: %d MiB in use, want 1000: the driver's own are not counted", i, card.UsedMB)
		}
		if card.Load == nil || card.Load.Core != 10*i || card.Load.Power != 250 {
			t.Errorf("card %d: load %+v, want core %d and 250 W", i, card.Load, 10*i)
		}
		next := (i + 1) % 8
		// Two NVLinks to the next; the others of its socket over PCIe 4.0, those of the other socket not.
		for _, link := range card.Links {
			want := Link{To: link.To, Bandwidth: 64, Kind: PCIe}
			if link.To == next {
				want = Link{To: next, Bandwidth: 100, Kind: NVLink}
			}
			if link != want || link.To != next && link.To/4 != i/4 {
				t.Errorf("card %d: link %+v, want %+v", i, link, want)
			}
		}
		if want := 3 + (i%4)/3; len(card.Links) != want { // the last of a socket has its NVLinks to the other one
			t.Errorf("card %d: %d links, want %d", i, len(card.Links), want)
		}
	}
}

// complete adds what the mock leaves out: a driver's name and address for the
// card, load, and a ring of NVLinks, two to the next card.
func complete(device *dgxa100.Device, server *dgxa100.Server, i int) {
	device.GetNameFunc = func() (string, nvml.Return) { return "NVIDIA A100-SXM4-40GB", nvml.SUCCESS }
	device.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		var pci nvml.PciInfo
		for at, char := range fmt.Sprintf("00000000:%02X:00.0", 16+i) {
			pci.BusId[at] = int8(char)
		}
		return pci, nvml.SUCCESS
	}
	device.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Total: 40 << 30, Used: 1600 << 20, Free: 40<<30 - 1600<<20}, nvml.SUCCESS
	}
	device.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: 40 << 30, Reserved: 600 << 20, Used: 1000 << 20, Free: 40<<30 - 1600<<20}, nvml.SUCCESS
	}
	device.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		return nvml.Utilization{Gpu: uint32(10 * i)}, nvml.SUCCESS
	}
	device.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 250_000, nvml.SUCCESS }
	device.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		if link < 2 {
			return nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
		return nvml.FEATURE_DISABLED, nvml.ERROR_NOT_SUPPORTED
	}
	device.GetTopologyCommonAncestorFunc = func(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
		if other.(*dgxa100.Device).Index/4 != i/4 {
			return nvml.TOPOLOGY_SYSTEM, nvml.SUCCESS
		}
		return nvml.TOPOLOGY_NODE, nvml.SUCCESS
	}
	device.GetMaxPcieLinkGenerationFunc = func() (int, nvml.Return) { return 4, nvml.SUCCESS }
	device.GetMaxPcieLinkWidthFunc = func() (int, nvml.Return) { return 16, nvml.SUCCESS }
	device.GetNvLinkVersionFunc = func(int) (uint32, nvml.Return) { return 3, nvml.SUCCESS }
	device.GetNvLinkRemotePciInfoFunc = func(int) (nvml.PciInfo, nvml.Return) {
		return server.Devices[(i+1)%8].GetPciInfo()
	}
}

// A defect concerns one card, which is not used; the others are.
func TestDefectConcernsOneCard(t *testing.T) {
	cards := cardsOf(t, func(server *dgxa100.Server) {
		server.Devices[2].(*dgxa100.Device).GetNameFunc = func() (string, nvml.Return) { panic("no such thing") }
	})
	for i, card := range cards {
		if card.Index != i || (card.Problem != "") != (i == 2) {
			t.Errorf("card %d: %+v", i, card)
		}
	}
}

// A card that the driver complains of is avoided, and comes back when it has been well for a while.
func TestCardFailsAndComesBack(t *testing.T) {
	server := dgxa100.New()
	for i, device := range server.Devices {
		complete(device.(*dgxa100.Device), server, i)
	}
	source, err := NewNVML("here", server)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0)
	source.health.now = func() time.Time { return now }
	problem := func() string {
		cards, err := source.Cards(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cards {
			if c.Index != 3 && c.Problem != "" {
				t.Errorf("card %d: %s", c.Index, c.Problem)
			}
		}
		return cards[3].Problem
	}
	// The driver's events come through its own functions.
	events := make(chan nvml.EventData)
	reported := make(chan struct{})
	server.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			FreeFunc: func() nvml.Return { return nvml.SUCCESS },
			WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
				select {
				case reported <- struct{}{}: // the one before has been seen to
				case <-t.Context().Done():
				}
				select {
				case e := <-events:
					return e, nvml.SUCCESS
				case <-t.Context().Done():
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
			},
		}, nvml.SUCCESS
	}
	for _, device := range server.Devices {
		device.(*dgxa100.Device).GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return 255, nvml.SUCCESS }
		device.(*dgxa100.Device).RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	}
	go func() { _ = source.Start(t.Context()) }()
	<-reported
	events <- nvml.EventData{Device: server.Devices[3], EventType: nvml.EventTypeXidCriticalError, EventData: 79}
	<-reported
	if got := problem(); got != "the driver reports XID 79" {
		t.Fatalf("card 3: %q", got)
	}
	now = now.Add(forgiven + time.Second)
	if got := problem(); got != "" {
		t.Fatalf("card 3 after a while: %q", got)
	}
}

func TestFaultsOfProgramsAreNotTheCards(t *testing.T) {
	server := dgxa100.New()
	source, err := NewNVML("here", server)
	if err != nil {
		t.Fatal(err)
	}
	device := server.Devices[0]
	uuid, _ := device.GetUUID()
	source.onEvent(nvml.EventData{Device: device, EventType: nvml.EventTypeXidCriticalError, EventData: 31})
	if got := source.health.of(uuid); got != "" {
		t.Errorf("after a program's page fault: %q", got)
	}
	source.onEvent(nvml.EventData{Device: device, EventType: nvml.EventTypeDoubleBitEccError})
	if got := source.health.of(uuid); got == "" {
		t.Error("memory that cannot be corrected is no problem")
	}
}

func TestNoDriverIsSaid(t *testing.T) {
	broken := dgxa100.New()
	broken.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	if _, err := NewNVML("here", broken); err == nil {
		t.Fatal("without a driver there must be an error")
	}
}

func TestSimulatedNode(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        "h100-80g-0",
		Annotations: map[string]string{SimulatedAnnotation: "fake", ProblemAnnotation: "1=fell off the bus", LoadAnnotation: "0=70; 1=0"},
		Labels: map[string]string{
			"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "81920", "elasticgpu.io/gpu-model": "H100-80G",
		},
	}}
	cards, err := Simulated{}.Cards(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	if len(cards) != 2 || cards[0].Problem != "" || cards[1].Problem != "fell off the bus" || cards[1].MemoryMB != 81920 {
		t.Errorf("cards %+v", cards)
	}
	if cards[0].Load == nil || cards[0].Load.Core != 70 || cards[1].Load == nil || cards[1].Load.Core != 0 {
		t.Errorf("loads %+v, %+v", cards[0].Load, cards[1].Load)
	}
	for _, bad := range []string{"x=1", "1=", "1=101", "1=-1", "1=much"} {
		node.Annotations[LoadAnnotation] = bad
		if _, err := (Simulated{}).Cards(t.Context(), node); err == nil {
			t.Errorf("load %q must be refused", bad)
		}
	}
	delete(node.Annotations, LoadAnnotation)
	if cards, err := (Simulated{}).Cards(t.Context(), node); err != nil || cards[0].Load != nil {
		t.Errorf("without the annotation: %+v, %v", cards, err)
	}
	for _, bad := range []string{"x=1", "1", "1="} {
		node.Annotations[ProblemAnnotation] = bad
		if _, err := (Simulated{}).Cards(t.Context(), node); err == nil {
			t.Errorf("problem %q must be refused", bad)
		}
	}
}

// Of a divided card the driver says how busy its instances are, and nothing about the card: it is as busy as they
// are together.
func TestLoadOfADividedCard(t *testing.T) {
	server := dgxa100.New()
	for i, device := range server.Devices {
		complete(device.(*dgxa100.Device), server, i)
	}
	device := server.Devices[0].(*dgxa100.Device)
	device.MigMode = nvml.DEVICE_MIG_ENABLE
	device.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED }
	var ids []int
	for _, number := range []int{nvml.GPU_INSTANCE_PROFILE_3_SLICE, nvml.GPU_INSTANCE_PROFILE_1_SLICE} {
		info, _ := device.GetGpuInstanceProfileInfo(number)
		gpu, ret := device.CreateGpuInstance(&info)
		if ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		about, _ := gpu.GetInfo()
		ids = append(ids, int(about.Id))
	}
	device.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return len(ids), nvml.SUCCESS }
	device.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		return &mock.Device{
			GetUUIDFunc:          func() (string, nvml.Return) { return fmt.Sprint("MIG-", i), nvml.SUCCESS },
			GetGpuInstanceIdFunc: func() (int, nvml.Return) { return ids[i], nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	// The larger one, three of seven slices, was busy for 70 percent of the time.
	samples, of := 0, map[nvml.GpmSample]int{}
	server.GpmSampleAllocFunc = func() (nvml.GpmSample, nvml.Return) {
		samples++
		return &mock.GpmSample{}, nvml.SUCCESS
	}
	server.GpmSampleFreeFunc = func(nvml.GpmSample) nvml.Return { samples--; return nvml.SUCCESS }
	server.GpmMigSampleGetFunc = func(_ nvml.Device, id int, s nvml.GpmSample) nvml.Return { of[s] = id; return nvml.SUCCESS }
	server.GpmMetricsGetFunc = func(m *nvml.GpmMetricsGetType) nvml.Return {
		if of[m.Sample1] != of[m.Sample2] {
			t.Error("two instances were compared")
		}
		if of[m.Sample2] == ids[0] {
			m.Metrics[0].Value = 70
		}
		return nvml.SUCCESS
	}
	source, err := NewNVML("here", server)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cards, err := source.Cards(t.Context(), nil)
		if err != nil || cards[0].Load == nil || cards[0].Load.Core != 30 || cards[0].Load.Power != 250 {
			t.Fatalf("load %+v, want 30 percent: %v", cards[0].Load, err)
		}
	}
	if samples != 2 {
		t.Errorf("%d samples are stored, want one of each instance", samples)
	}
	server.LookupSymbolFunc = func(string) error { return fmt.Errorf("an old driver") }
	if cards, _ := source.Cards(t.Context(), nil); cards[0].Load.Core != Unknown || len(cards[0].Links) != 1 {
		t.Errorf("an old driver: load %+v, links %v", cards[0].Load, cards[0].Links)
	}
}
