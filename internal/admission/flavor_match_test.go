package admission

import "testing"

// An affinity term about labels the flavor does not name leaves the flavor open.
func TestFlavorLooksAtItsOwnLabelsOnly(t *testing.T) {
	f := &flavor{exists: true, spec: Flavor{Name: "spot", NodeLabels: map[string]string{"kind": "spot"}}}
	in := func(key, value string) Requirement {
		return Requirement{Key: key, Operator: "In", Values: []string{value}}
	}
	for _, c := range []struct {
		ps   PodSet
		want string
	}{
		{PodSet{NodeSelector: map[string]string{"zone": "a"}}, ""},
		{PodSet{NodeSelector: map[string]string{"kind": "spot"}}, ""},
		{PodSet{NodeSelector: map[string]string{"kind": "other"}}, "flavor spot doesn't match node affinity"},
		{PodSet{Affinity: []Term{{in("zone", "a")}}}, ""},
		{PodSet{Affinity: []Term{{in("kind", "x")}, {in("kind", "spot")}}}, ""},
		{PodSet{Affinity: []Term{{in("kind", "x"), in("zone", "a")}}}, "flavor spot doesn't match node affinity"},
		{PodSet{Topology: &TopologyRequest{}}, "flavor spot does not support TopologyAwareScheduling"},
	} {
		if got := f.accepts(&c.ps, false); got != c.want {
			t.Errorf("%+v: %q", c.ps, got)
		}
	}
	if got := f.accepts(&PodSet{Topology: &TopologyRequest{}}, true); got != "" {
		t.Errorf("quota for what no node has needs no topology: %q", got)
	}
}

func TestFormatAmount(t *testing.T) {
	for _, c := range []struct {
		res  string
		v    int64
		want string
	}{
		{CPU, 1500, "1500m"}, {CPU, 2000, "2"}, {CPU, 0, "0"}, {CPU, 4_000_000, "4k"},
		{"memory", 1 << 30, "1Gi"}, {"memory", 1500, "1500"}, {"nvidia.com/gpu", 8, "8"}, {Pods, 2000, "2k"},
	} {
		if got := formatAmount(c.res, c.v); got != c.want {
			t.Errorf("%d %s: %s", c.v, c.res, got)
		}
	}
}
