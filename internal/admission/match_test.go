package admission

import "testing"

func TestRequirementMatches(t *testing.T) {
	labels := map[string]string{"zone": "a", "cores": "16"}
	for _, c := range []struct {
		r    Requirement
		want bool
	}{
		{Requirement{"zone", "In", []string{"a", "b"}}, true},
		{Requirement{"zone", "In", []string{"b"}}, false},
		{Requirement{"rack", "In", []string{"b"}}, false},
		{Requirement{"zone", "NotIn", []string{"b"}}, true},
		{Requirement{"zone", "NotIn", []string{"a"}}, false},
		{Requirement{"rack", "NotIn", []string{"a"}}, true},
		{Requirement{"zone", "Exists", nil}, true},
		{Requirement{"rack", "Exists", nil}, false},
		{Requirement{"rack", "DoesNotExist", nil}, true},
		{Requirement{"zone", "DoesNotExist", nil}, false},
		{Requirement{"cores", "Gt", []string{"8"}}, true},
		{Requirement{"cores", "Gt", []string{"16"}}, false},
		{Requirement{"cores", "Lt", []string{"17"}}, true},
		{Requirement{"zone", "Gt", []string{"1"}}, false},
		{Requirement{"zone", "Is", []string{"a"}}, false},
	} {
		if got := c.r.matches(labels); got != c.want {
			t.Errorf("%v on %v: %v", c.r, labels, got)
		}
	}
}

func TestTolerated(t *testing.T) {
	taint := Taint{"gpu", "a100", "NoSchedule"}
	for _, c := range []struct {
		o    Toleration
		want bool
	}{
		{Toleration{Key: "gpu", Value: "a100"}, true},
		{Toleration{Key: "gpu", Operator: "Equal", Value: "a100", Effect: "NoSchedule"}, true},
		{Toleration{Key: "gpu", Value: "t4"}, false},
		{Toleration{Key: "gpu", Operator: "Exists"}, true},
		{Toleration{Operator: "Exists"}, true},
		{Toleration{Key: "gpu", Operator: "Exists", Effect: "NoExecute"}, false},
		{Toleration{Key: "other", Operator: "Exists"}, false},
	} {
		if got := tolerated(&taint, []Toleration{c.o}); got != c.want {
			t.Errorf("%+v: %v", c.o, got)
		}
	}
}

// An affinity term about labels the flavor does not name leaves the flavor open.
func TestFlavorLooksAtItsOwnLabelsOnly(t *testing.T) {
	f := &flavor{exists: true, spec: Flavor{Name: "spot", NodeLabels: map[string]string{"kind": "spot"}}}
	for _, c := range []struct {
		ps   PodSet
		want string
	}{
		{PodSet{NodeSelector: map[string]string{"zone": "a"}}, ""},
		{PodSet{NodeSelector: map[string]string{"kind": "spot"}}, ""},
		{PodSet{NodeSelector: map[string]string{"kind": "other"}}, "flavor spot doesn't match node affinity"},
		{PodSet{Affinity: []Term{{{"zone", "In", []string{"a"}}}}}, ""},
		{PodSet{Affinity: []Term{{{"kind", "In", []string{"x"}}}, {{"kind", "In", []string{"spot"}}}}}, ""},
		{PodSet{Affinity: []Term{{{"kind", "In", []string{"x"}}, {"zone", "In", []string{"a"}}}}}, "flavor spot doesn't match node affinity"},
		{PodSet{Topology: &TopologyRequest{}}, "flavor spot does not support TopologyAwareScheduling"},
	} {
		if got := f.accepts(&c.ps); got != c.want {
			t.Errorf("%+v: %q", c.ps, got)
		}
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
