package devices

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
)

func TestMappingsAreValidated(t *testing.T) {
	many := func(n int, make func(i int) kueueconfig.DeviceClassMapping) (all []kueueconfig.DeviceClassMapping) {
		for i := range n {
			all = append(all, make(i))
		}
		return all
	}
	with := func(change func(*kueueconfig.DeviceClassMapping)) []kueueconfig.DeviceClassMapping {
		m := byCounter("gpu.memory", "memory")
		change(&m)
		return []kueueconfig.DeviceClassMapping{m}
	}
	for want, mappings := range map[string][]kueueconfig.DeviceClassMapping{
		"resources.deviceClassMappings: Too many: 17: must have at most 16 items": many(17, func(i int) kueueconfig.DeviceClassMapping {
			return counts(fmt.Sprint("r", i), corev1.ResourceName(fmt.Sprint("c", i)))
		}),
		`resources.deviceClassMappings[0].name: Invalid value: "not a name"`:          {counts("not a name", "c")},
		`resources.deviceClassMappings[1].name: Duplicate value: "r"`:                 {counts("r", "a"), counts("r", "b")},
		"resources.deviceClassMappings[0].deviceClassNames: Required value: at least": {counts("r")},
		"resources.deviceClassMappings[0].deviceClassNames: Too many: 9: must have at most 8 items": {
			counts("r", "a", "b", "c", "d", "e", "f", "g", "h", "i"),
		},
		`resources.deviceClassMappings[0].deviceClassNames[0]: Invalid value: "no class"`: {counts("r", "no class")},
		`resources.deviceClassMappings[0].deviceClassNames[1]: Duplicate value: "a"`:      {counts("r", "a", "a")},
		`resources.deviceClassMappings[1].deviceClassNames[0]: Invalid value: "a": device class already mapped to resource r`: {
			counts("r", "a"), counts("s", "a"),
		},
		`deviceClassNames[0]: Invalid value: "gpu.example.com": device class already has a counter source for counter "memory"`: {
			byCounter("r", "memory"), byCounter("s", "memory"),
		},
		"resources.deviceClassMappings[0].sources[0]: Required value: exactly one source type must be set per entry": with(func(m *kueueconfig.DeviceClassMapping) {
			m.Sources[0].Counter = nil
		}),
		"sources[0]: Invalid value: \"counter+capacity\": exactly one source type must be set per entry": with(func(m *kueueconfig.DeviceClassMapping) {
			m.Sources[0].Capacity = byCapacity("r", "memory").Sources[0].Capacity
		}),
		"sources: Invalid value: 2: cannot mix counter and capacity sources in the same mapping": with(func(m *kueueconfig.DeviceClassMapping) {
			m.Sources = append(m.Sources, byCapacity("r", "memory").Sources...)
		}),
		"sources[0].counter.name: Required value":                      with(func(m *kueueconfig.DeviceClassMapping) { m.Sources[0].Counter.Name = "" }),
		"sources[0].counter.name: Invalid value: \"No\"":               with(func(m *kueueconfig.DeviceClassMapping) { m.Sources[0].Counter.Name = "No" }),
		"sources[0].counter.driver: Required value":                    with(func(m *kueueconfig.DeviceClassMapping) { m.Sources[0].Counter.Driver = "" }),
		"sources[0].counter.driver: Invalid value: \"No\"":             with(func(m *kueueconfig.DeviceClassMapping) { m.Sources[0].Counter.Driver = "No" }),
		"must not exceed 63 characters":                                with(func(m *kueueconfig.DeviceClassMapping) { m.Sources[0].Counter.Driver = strings.Repeat("a", 64) }),
		"counter.deviceSelector.cel.expression: Required value":        with(func(m *kueueconfig.DeviceClassMapping) { m.Sources[0].Counter.DeviceSelector.CEL = nil }),
		`cel.expression: Invalid value: "1 +": CEL compilation failed`: with(func(m *kueueconfig.DeviceClassMapping) { m.Sources[0].Counter.DeviceSelector = cel("1 +") }),
		"capacity.name: Invalid value: \"\": the domain must not":      {byCapacity("r", "/memory")},
		"capacity.name: Invalid value: \"\": the name must not":        {byCapacity("r", "example.com/")},
		"capacity.name: Invalid value: \"a-b\"":                        {byCapacity("r", "a-b")},
		"capacity.name: Invalid value: \"A_\"":                         {byCapacity("r", resourceapi.QualifiedName("A_/b"))},
	} {
		if _, err := New(mappings, gates(t, "ConsumableCapacity")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want\n%s", err, want)
		}
	}
}

func TestSourcesNeedTheirGates(t *testing.T) {
	for want, test := range map[string]struct {
		mapping kueueconfig.DeviceClassMapping
		gates   []string
	}{
		"resources.deviceClassMappings[0].sources[0].counter: Invalid value: true: counter sources require KueueDRAIntegrationPartitionableDevices to be enabled": {
			byCounter("r", "memory"), []string{"-PartitionableDevices"},
		},
		"resources.deviceClassMappings[0].sources[0].capacity: Invalid value: true: capacity sources require KueueDRAIntegrationConsumableCapacity to be enabled": {
			byCapacity("r", "memory"), nil,
		},
	} {
		if _, err := New([]kueueconfig.DeviceClassMapping{test.mapping}, gates(t, test.gates...)); err == nil || err.Error() != want {
			t.Errorf("error %v, want\n%s", err, want)
		}
	}
}
