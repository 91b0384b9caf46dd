//go:build cgo

package mig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/mig"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// mockNode has eight A100 with NVIDIA's mock of the driver, and what of /proc the backend reads.
type mockNode struct {
	*dgxa100.Server
	dir string
}

func newMockNode(t *testing.T) *mockNode {
	t.Helper()
	m := &mockNode{Server: dgxa100.New(), dir: t.TempDir()}
	for i, d := range m.Devices {
		m.complete(d.(*dgxa100.Device), i)
	}
	// Of four cards, the first few instances.
	for at := range 4 * 6 {
		dir := filepath.Join(m.dir, fmt.Sprintf("proc/driver/nvidia/capabilities/gpu%d/mig/gi%d", at/6, at%6))
		for k, sub := range []string{".", "ci0", "ci1"} {
			if err := os.MkdirAll(filepath.Join(dir, sub), 0o750); err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: 292\n", 1000*(at/6)+10*(at%6)+k)
			if err := os.WriteFile(filepath.Join(dir, sub, "access"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m
}

// complete adds what the mock leaves out: the devices that instances are to programs.
func (m *mockNode) complete(d *dgxa100.Device, i int) {
	d.UUID = conformance.Card(i).UUID
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
		var all []*dgxa100.GpuInstance
		for gi := range d.GpuInstances {
			if len(gi.ComputeInstances) > 0 {
				all = append(all, gi)
			}
		}
		sort.Slice(all, func(a, b int) bool { return all[a].Info.Id < all[b].Info.Id })
		if index >= len(all) {
			return nil, nvml.ERROR_NOT_FOUND
		}
		id, compute := int(all[index].Info.Id), 0
		for ci := range all[index].ComputeInstances {
			compute = int(ci.Info.Id)
		}
		return &mock.Device{
			GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return id, nvml.SUCCESS },
			GetComputeInstanceIdFunc: func() (int, nvml.Return) { return compute, nvml.SUCCESS },
			GetUUIDFunc:              func() (string, nvml.Return) { return fmt.Sprintf("MIG-%d-%d", i, id), nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	profileOf := d.GetGpuInstanceProfileInfoFunc
	d.GetGpuInstanceProfileInfoFunc = func(number int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
		if d.MigMode == nvml.DEVICE_MIG_DISABLE {
			return nvml.GpuInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
		}
		return profileOf(number)
	}
}

func (m *mockNode) backend() *mig.Backend {
	return &mig.Backend{Driver: &backend.NodeDriver{Root: m.dir}, Lib: m.Server, Dir: filepath.Join(m.dir, "state"), Root: m.dir}
}

// there lists a card's instances as START+SIZE.
func (m *mockNode) there(card int) []string {
	var all []string
	for gi := range m.Devices[card].(*dgxa100.Device).GpuInstances {
		all = append(all, fmt.Sprintf("%d+%d", gi.Info.Placement.Start, gi.Info.Placement.Size))
	}
	slices.Sort(all)
	return all
}

func (m *mockNode) on(card int) bool {
	return m.Devices[card].(*dgxa100.Device).MigMode == nvml.DEVICE_MIG_ENABLE
}

func TestConformance(t *testing.T) {
	nodes := map[string]*mockNode{}
	conformance.Run(t, conformance.Subject{
		Leaves: true,
		New: func(t *testing.T, dir string) backend.Backend {
			if nodes[dir] == nil {
				nodes[dir] = newMockNode(t)
			}
			return nodes[dir].backend()
		},
	})
}

// An instance is made for a share, is all that the container can use, and goes with it.
func TestInstanceComesAndGoes(t *testing.T) {
	m := newMockNode(t)
	b := m.backend()
	s := conformance.Subject{}.Share("7", 2)
	s.Cards[0].Percent, s.Cards[0].MemoryMB = 14, 4000
	edits, err := b.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if !m.on(2) || m.on(1) || len(m.there(2)) != 1 {
		t.Fatalf("MIG is on: %v, others: %v, instances %v", m.on(2), m.on(1), m.there(2))
	}
	if !slices.Contains(edits.Env, "CUDA_VISIBLE_DEVICES=MIG-2-0") {
		t.Errorf("env %v", edits.Env)
	}
	var nodes []string
	for _, n := range edits.DeviceNodes {
		nodes = append(nodes, n.Path)
	}
	if got := strings.Join(nodes, " "); got != "/dev/nvidia2 /dev/nvidia-caps/nvidia-cap2000 /dev/nvidia-caps/nvidia-cap2001" {
		t.Errorf("device nodes %s", got)
	}
	if err := b.Release(t.Context(), "7"); err != nil {
		t.Fatal(err)
	}
	if len(m.there(2)) != 0 || m.on(2) {
		t.Errorf("instances %v are left; MIG is on: %v", m.there(2), m.on(2))
	}
}

func TestProfileIsTheSmallestThatSuffices(t *testing.T) {
	for name, tc := range map[string]struct {
		percent float64
		memory  int64
		profile string
		want    int // slices of memory
	}{
		"a seventh":               {14, 4000, "", 1},
		"memory alone":            {100, 9000, "", 2}, // 1g with twice the memory, or 2g: both take two
		"core alone":              {40, 40960, "", 4},
		"more core than memory":   {50, 1000, "", 4},
		"all of it":               {100, 40960, "", 8},
		"the one its class names": {14, 4000, "3g.20gb", 4},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMockNode(t)
			s := conformance.Subject{}.Share("1", 0)
			s.Cards[0].Percent, s.Cards[0].MemoryMB = tc.percent, tc.memory
			s.Parameters = map[string]string{"profile": tc.profile}
			if _, err := m.backend().Prepare(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if there := m.there(0); len(there) != 1 || !strings.HasSuffix(there[0], fmt.Sprintf("+%d", tc.want)) {
				t.Fatalf("instances %v, want one of %d slices", there, tc.want)
			}
		})
	}
	m := newMockNode(t)
	s := conformance.Subject{}.Share("1", 0)
	s.Parameters = map[string]string{"profile": "5g.99gb"}
	if _, err := m.backend().Prepare(t.Context(), s); err == nil || !strings.Contains(err.Error(), "1g.5gb, 1g.10gb, 2g.10gb, 3g.20gb") {
		t.Fatalf("a profile that no card has: %v", err)
	}
}

// Small ones are put where they leave space for large ones: after three of one slice, half a card is free.
func TestPlacesLeaveSpace(t *testing.T) {
	m := newMockNode(t)
	b := m.backend()
	for i := range 3 {
		s := conformance.Subject{}.Share(fmt.Sprint(i), 0)
		s.Cards[0].Percent, s.Cards[0].MemoryMB = 14, 4000
		if _, err := b.Prepare(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	large := conformance.Subject{}.Share("large", 0)
	large.Parameters = map[string]string{"profile": "4g.20gb"}
	if _, err := b.Prepare(t.Context(), large); err != nil {
		t.Fatalf("with %v: %v", m.there(0), err)
	}
	again := conformance.Subject{}.Share("more", 0)
	again.Parameters = map[string]string{"profile": "4g.20gb"}
	if _, err := b.Prepare(t.Context(), again); err == nil || !strings.Contains(err.Error(), "no free place for 4g.20gb") {
		t.Fatalf("with %v: %v", m.there(0), err)
	}
	if ids, err := b.Held(t.Context()); err != nil || slices.Contains(ids, "more") {
		t.Fatalf("%v %v: what could not be made is held", ids, err)
	}
}

// The agent dies after it wrote down what it would make, before or after it was made.
func TestHalfMadeInstancesAreFound(t *testing.T) {
	m := newMockNode(t)
	s := conformance.Subject{}.Share("1", 0)
	if _, err := m.backend().Prepare(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	was := m.there(0)
	// Without its compute instance it is half made.
	for gi := range m.Devices[0].(*dgxa100.Device).GpuInstances {
		clear(gi.ComputeInstances)
	}
	if _, err := m.backend().Prepare(t.Context(), s); err != nil || !slices.Equal(m.there(0), was) {
		t.Fatalf("%v: instances %v, were %v", err, m.there(0), was)
	}
	// A reboot takes instances away, and the record stays.
	clear(m.Devices[0].(*dgxa100.Device).GpuInstances)
	if err := m.backend().Release(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if ids, err := m.backend().Held(t.Context()); err != nil || len(ids) != 0 {
		t.Fatalf("%v %v", ids, err)
	}
}

// A card that others use is not switched, and instances that others made stay.
func TestOthersAreLeftAlone(t *testing.T) {
	m := newMockNode(t)
	d := m.Devices[0].(*dgxa100.Device)
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return make([]nvml.ProcessInfo, 1), nvml.SUCCESS }
	if _, err := m.backend().Prepare(t.Context(), conformance.Subject{}.Share("1", 0)); err == nil || m.on(0) {
		t.Fatalf("%v: MIG is on: %v", err, m.on(0))
	}
	if _, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	info, _ := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_2_SLICE)
	if _, ret := d.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: 0, Size: 2}); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	if _, err := m.backend().Prepare(t.Context(), conformance.Subject{}.Share("1", 0)); err != nil {
		t.Fatal(err)
	}
	if err := m.backend().Release(t.Context(), "1"); err != nil || !slices.Equal(m.there(0), []string{"0+2"}) || !m.on(0) {
		t.Fatalf("%v: instances %v", err, m.there(0))
	}
}

// An instance whose place was chosen already, as by a ResourceClaim, is made there or not at all.
func TestInstanceAtItsPlace(t *testing.T) {
	m := newMockNode(t)
	b := m.backend()
	if list, _ := b.Partitions(conformance.Card(1).UUID); len(list) != 0 {
		t.Fatalf("partitions %v of a card that does not list them while MIG is off", list)
	}
	at := func(id string, start uint32) error {
		s := conformance.Subject{}.Share(id, 1)
		s.Cards[0].Instance = &share.Instance{Profile: "1g.5gb", Start: start}
		_, err := b.Prepare(t.Context(), s)
		return err
	}
	if err := at("1", 3); err != nil || !slices.Equal(m.there(1), []string{"3+1"}) {
		t.Fatalf("%v: instances %v", err, m.there(1))
	}
	if err := at("2", 3); err == nil || !strings.Contains(err.Error(), "no free place for 1g.5gb at 3") {
		t.Fatalf("a place that is taken: %v", err)
	}
	list, always := b.Partitions(conformance.Card(1).UUID)
	if always || !slices.Contains(list, mig.Partition{Profile: "1g.5gb", Start: 3, Size: 1, Slices: 1, MemoryMB: 4864}) || !slices.ContainsFunc(list, func(p mig.Partition) bool { return p.Slices == 7 && p.Size == 8 }) {
		t.Fatalf("partitions %v, for good %v", list, always)
	}
	if err := b.Release(t.Context(), "1"); err != nil || m.on(1) {
		t.Fatalf("%v: MIG is on after the last instance", err)
	}
	m.Devices[2].(*dgxa100.Device).MigMode = nvml.DEVICE_MIG_ENABLE
	if _, always := b.Partitions(conformance.Card(2).UUID); !always {
		t.Error("MIG was switched on for good, and the card is offered as a whole")
	}
}
