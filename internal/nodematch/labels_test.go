package nodematch

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
		{Requirement{"cores", "Gt", []string{"eight"}}, false},
		{Requirement{"cores", "Gt", []string{"8", "9"}}, false},
		{Requirement{"cores", "Lt", []string{"17"}}, true},
		{Requirement{"cores", "Lt", []string{"16"}}, false},
		{Requirement{"rack", "Lt", []string{"17"}}, false},
		{Requirement{"zone", "Gt", []string{"1"}}, false},
		{Requirement{"zone", "Is", []string{"a"}}, false},
	} {
		if got := c.r.Matches(labels); got != c.want {
			t.Errorf("%v on %v: %v", c.r, labels, got)
		}
	}
}

// A selector, a flavor's labels and node affinity read the same term differently.
func TestTermMatches(t *testing.T) {
	labels := map[string]string{"kind": "spot"}
	for _, c := range []struct {
		name                  string
		term                  Term
		selector, known, node bool
	}{
		{"empty", nil, true, true, false},
		{"one holds", Term{{"kind", "In", []string{"spot"}}}, true, true, true},
		{"one differs", Term{{"kind", "In", []string{"x"}}}, false, false, false},
		{"unknown key", Term{{"zone", "In", []string{"a"}}}, false, true, false},
		{"all must hold", Term{{"kind", "In", []string{"x"}}, {"zone", "Exists", nil}}, false, false, false},
		{"node's name", Term{{"metadata.name", "In", []string{"n1"}}}, false, true, true},
		{"another name", Term{{"metadata.name", "In", []string{"n2"}}}, false, true, false},
	} {
		if got := c.term.Matches(labels); got != c.selector {
			t.Errorf("%s: as a selector %v", c.name, got)
		}
		if got := c.term.MatchesKnown(labels); got != c.known {
			t.Errorf("%s: by known labels %v", c.name, got)
		}
		if got := c.term.MatchesNode("n1", labels); got != c.node {
			t.Errorf("%s: on the node %v", c.name, got)
		}
	}
}
