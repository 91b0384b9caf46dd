package workload

import (
	"fmt"
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
		ExcludeNodes(spec, []string{"n1", "n2"})
		ExcludeNodes(spec, []string{"n2"}) // once is enough
		var got []string
		for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			got = append(got, fmt.Sprint(len(term.MatchExpressions), "+", len(term.MatchFields)))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%v, not %s", got, want)
		}
	}
	untouched := &corev1.PodSpec{}
	if ExcludeNodes(untouched, nil); untouched.Affinity != nil {
		t.Error("an affinity for nothing")
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
