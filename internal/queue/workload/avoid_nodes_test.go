package workload

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

// What a pod asks of nodes itself stays, in each of its terms; one that matches no node does not come to match some.
func TestExcludeNodes(t *testing.T) {
	in := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}
	for want, terms := range map[string][]corev1.NodeSelectorTerm{
		"[0+2]":         nil,
		"[1+2]":         {{MatchExpressions: []corev1.NodeSelectorRequirement{in}}},
		"[1+2 0+3]":     {{MatchExpressions: []corev1.NodeSelectorRequirement{in}}, {MatchFields: []corev1.NodeSelectorRequirement{in}}},
		"[0+0 1+2]":     {{}, {MatchExpressions: []corev1.NodeSelectorRequirement{in}}},
		"[1+2 1+2 1+2]": {{MatchExpressions: []corev1.NodeSelectorRequirement{in}}, {MatchExpressions: []corev1.NodeSelectorRequirement{in}}, {MatchExpressions: []corev1.NodeSelectorRequirement{in}}},
	} {
		spec := &corev1.PodSpec{}
		if terms != nil {
			spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
		}
		for _, nodes := range [][]string{{"n1", "n2"}, {"n2"}} { // once is enough
			if err := ExcludeNodes(spec, nodes); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			got = append(got, fmt.Sprint(len(term.MatchExpressions), "+", len(term.MatchFields)))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%v, not %s", got, want)
		}
	}
	untouched := &corev1.PodSpec{}
	if err := ExcludeNodes(untouched, nil); err != nil || untouched.Affinity != nil {
		t.Error("an affinity for nothing", err)
	}
}

// A pod's author says how many terms there are, and can write the annotation: neither makes much of little.
func TestExcludingNodesIsBounded(t *testing.T) {
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpExists}}}
	spec := &corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: slices.Repeat([]corev1.NodeSelectorTerm{term}, 1000),
	}}}}
	var nodes []string
	for i := range 1000 {
		nodes = append(nodes, fmt.Sprint("node-", i))
	}
	if err := ExcludeNodes(spec, nodes); err == nil || !strings.Contains(err.Error(), "1000 terms") {
		t.Error(err)
	}
	if n := len(spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields); n != 0 {
		t.Error("it was begun", n)
	}
	if _, err := ReadAvoidNodes(strings.Repeat("n,", 20_000)); err == nil || !strings.Contains(err.Error(), "40000 bytes") {
		t.Error(err)
	}
	if got, err := ReadAvoidNodes("n2,n1,n2"); err != nil || fmt.Sprint(got) != "[n1 n2]" {
		t.Error(got, err)
	}
}

// The nodes to avoid come with the admission and go with it, and a restart knows them.
func TestAvoidNodesOfAnAdmission(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	wl := &kueue.Workload{}
	a := &admission.Admission{Queue: "cq", AvoidNodes: []string{"n1", "n2"}}
	Admit(wl, a, nil, now)
	if got := ForEngine(wl, nil).Admission.AvoidNodes; fmt.Sprint(got) != "[n1 n2]" {
		t.Error(got)
	}
	Release(wl, "", now)
	if len(AvoidNodes(wl)) > 0 {
		t.Error("still there")
	}
	Admit(wl, a, nil, now)
	Release(wl, "", now)
	Admit(wl, &admission.Admission{Queue: "cq"}, nil, now)
	if got := ForEngine(wl, nil).Admission.AvoidNodes; len(got) > 0 {
		t.Error(got)
	}
}
