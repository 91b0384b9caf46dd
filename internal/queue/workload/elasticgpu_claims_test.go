package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
)

func usage(sets []admission.PodSetAssignment) string {
	var out []string
	for _, set := range sets {
		text := fmt.Sprintf("%s×%d", set.Name, set.Count)
		for _, name := range slices.Sorted(maps.Keys(set.Usage)) {
			text += fmt.Sprintf(" %s=%d/%s", name, set.Usage[name], set.Flavors[name])
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// TestClaimsCountOnce: a claim counts once, whatever the number of pods that
// use it, and whoever else does.
func TestClaimsCountOnce(t *testing.T) {
	wl := sized("a", 3)
	for i := range wl.Spec.PodSets { // both name it
		wl.Spec.PodSets[i].Template.Annotations = map[string]string{egpu.ClaimPrefix + "gpu": "shared"}
		delete(wl.Spec.PodSets[i].Template.Spec.Containers[0].Resources.Requests, "gpu")
	}
	claim := &egpu.ElasticGPUClaim{}
	claim.Spec.Resources.Requests = corev1.ResourceList{
		"gpushare.provisioner.elasticgpu.io/gpu-core": resource.MustParse("50"), "elasticgpu.io/gpu-memory": resource.MustParse("1024"),
	}
	lookup := func(found *egpu.ElasticGPUClaim, paid bool) func(string) GPUClaim {
		return func(string) GPUClaim {
			return GPUClaim{Object: found, ChargedElsewhere: paid, Flavors: map[string]string{"elasticgpu.io/gpu-core": "f"}}
		}
	}
	if names := GPUClaims(wl); !slices.Equal(names, []string{"shared"}) {
		t.Fatalf("its claims are %v", names)
	}

	// It asks for it beside its pods, on their flavor.
	w := ForEngine(wl, nil)
	CountGPUClaims(&w, wl, nil, lookup(claim, false))
	if len(w.PodSets) != 3 || w.PodSets[2].Count != 1 || w.PodSets[2].Group != w.PodSets[0].Group ||
		!maps.Equal(w.PodSets[2].Requests, admission.Requests{"elasticgpu.io/gpu-core": 50, "elasticgpu.io/gpu-memory": 1024}) {
		t.Fatalf("it asks for %+v", w.PodSets)
	}

	// The status tells it as part of the first pod set.
	given := &admission.Admission{PodSets: []admission.PodSetAssignment{
		{Name: "head", Count: 1, Flavors: map[string]string{"cpu": "f"}, Usage: admission.Requests{"cpu": 1000}},
		{Name: "workers", Count: 3, Flavors: map[string]string{"cpu": "f"}, Usage: admission.Requests{"cpu": 3000}},
		{Name: "head/claims", Count: 1, Flavors: map[string]string{"elasticgpu.io/gpu-core": "f", "elasticgpu.io/gpu-memory": "f"},
			Usage: admission.Requests{"elasticgpu.io/gpu-core": 50, "elasticgpu.io/gpu-memory": 1024}},
	}}
	folded := MergeGPUClaims(given)
	const status = "head×1 cpu=1000/f elasticgpu.io/gpu-core=50/f elasticgpu.io/gpu-memory=1024/f, workers×3 cpu=3000/f"
	if got := usage(folded.PodSets); got != status {
		t.Fatalf("the status says %s", got)
	}

	// And is read back as it was given, or without it where another pays.
	admitted := func() admission.Workload {
		w := ForEngine(wl, nil)
		w.Admission = &admission.Admission{}
		for _, set := range folded.PodSets {
			set.Usage = maps.Clone(set.Usage)
			w.Admission.PodSets = append(w.Admission.PodSets, set)
		}
		return w
	}
	w = admitted()
	CountGPUClaims(&w, wl, nil, lookup(claim, false))
	const pods = "head×1 cpu=1000/f elasticgpu.io/gpu-core=0/f elasticgpu.io/gpu-memory=0/f, workers×3 cpu=3000/f"
	if got, want := usage(w.Admission.PodSets), pods+", head/claims×1 elasticgpu.io/gpu-core=50/f elasticgpu.io/gpu-memory=1024/f"; got != want {
		t.Fatalf("it holds\n  %s\nwant\n  %s", got, want)
	}
	w = admitted()
	CountGPUClaims(&w, wl, nil, lookup(claim, true))
	if got := usage(w.Admission.PodSets); got != pods+", head/claims×1" {
		t.Fatalf("beside the one that pays it holds %s", got)
	}

	// One that another paid for until now counts on the flavor it had.
	w = admitted()
	w.Admission.PodSets = w.Admission.PodSets[1:2]
	w.PodSets = w.PodSets[1:]
	wl.Spec.PodSets = wl.Spec.PodSets[1:]
	CountGPUClaims(&w, wl, nil, lookup(claim, false))
	if got, want := usage(w.Admission.PodSets), "workers×3 cpu=3000/f, workers/claims×1 elasticgpu.io/gpu-core=50/f elasticgpu.io/gpu-memory=1024/"; got != want {
		t.Fatalf("when the other is over it holds\n  %s\nwant\n  %s", got, want)
	}

	// Without the claim it waits.
	w = ForEngine(wl, nil)
	CountGPUClaims(&w, wl, nil, lookup(nil, false))
	if w.Unready != "ElasticGPUClaim shared, which its pods use, does not exist" {
		t.Fatalf("it lacks %q", w.Unready)
	}
}
