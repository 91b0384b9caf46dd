package workload_test

import (
	"reflect"
	"testing"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// An assignment is read as far as it is one: a status may be anyone's who may write statuses.
func TestDomainsOfAnAssignment(t *testing.T) {
	each := func(roots ...string) kueue.TopologyAssignmentSliceLevelValues {
		return kueue.TopologyAssignmentSliceLevelValues{Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{Prefix: ptr.To("n-"), Roots: roots}}
	}
	all := func(value string) kueue.TopologyAssignmentSliceLevelValues {
		return kueue.TopologyAssignmentSliceLevelValues{Universal: ptr.To(value)}
	}
	part := func(count int32, pods []int32, values ...kueue.TopologyAssignmentSliceLevelValues) kueue.TopologyAssignmentSlice {
		s := kueue.TopologyAssignmentSlice{DomainCount: count, ValuesPerLevel: values}
		if len(pods) == 1 {
			s.PodCounts.Universal = &pods[0]
		} else {
			s.PodCounts.Individual = pods
		}
		return s
	}
	good := part(2, []int32{3, 4}, all("rack"), each("1", "2"))
	want := []workload.Domain{{Values: []string{"rack", "n-1"}, Count: 3}, {Values: []string{"rack", "n-2"}, Count: 4}}
	for name, bad := range map[string]kueue.TopologyAssignmentSlice{
		"no domains":              part(0, nil, all("rack"), all("host")),
		"fewer than none":         part(-1, []int32{1}, all("rack"), each("1")),
		"fewer values":            part(2, []int32{1}, all("rack"), each("1")),
		"more values":             part(2, []int32{1}, all("rack"), each("1", "2", "3")),
		"fewer counts":            part(2, []int32{}, all("rack"), each("1", "2")),
		"a level is missing":      part(2, []int32{1}, each("1", "2")),
		"a level too many":        part(2, []int32{1}, all("a"), all("b"), each("1", "2")),
		"a negative count":        part(2, []int32{-1}, all("rack"), each("1", "2")),
		"two billion of one":      part(2_000_000_000, []int32{1}, all("rack"), all("host")),
		"two billion with values": part(2_000_000_000, []int32{1}, all("rack"), each("1")),
	} {
		a := &kueue.TopologyAssignment{Levels: []string{"rack", "host"}, Slices: []kueue.TopologyAssignmentSlice{bad, good}}
		if got := workload.Domains(a); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	one := &kueue.TopologyAssignment{Levels: []string{"host"}, Slices: []kueue.TopologyAssignmentSlice{part(1, []int32{5}, all("h"))}}
	if got := workload.Domains(one); !reflect.DeepEqual(got, []workload.Domain{{Values: []string{"h"}, Count: 5}}) {
		t.Errorf("one domain: %+v", got)
	}
}
