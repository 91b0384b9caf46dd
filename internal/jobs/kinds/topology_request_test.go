package kinds

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Slices of slices that no topology can provide are refused with Kueue's messages.
func TestSliceLayers(t *testing.T) {
	const at = "podSets[main].template.metadata.annotations[kueue.x-k8s.io/podset-slice-required-topology-constraints]"
	for name, test := range map[string]struct {
		layers    string
		also      string // another annotation
		forbidden bool
		want      string
	}{
		"two layers":      {layers: `[{"topology":"block","size":8},{"topology":"rack","size":4}]`},
		"none is asked":   {},
		"switched off":    {layers: `[{"topology":"block","size":8}]`, forbidden: true, want: at + ": Forbidden: the TASMultiLayerTopology feature gate must be enabled to use this annotation"},
		"not a list":      {layers: `{}`, want: at + `: Invalid value: "{}": must be a valid JSON array: json: cannot unmarshal object into Go value of type []v1beta2.PodsetSliceRequiredTopologyConstraint`},
		"an empty list":   {layers: `[]`, want: at + `: Invalid value: "[]": topology constraints must contain between 1 and 3 entries`},
		"no level":        {layers: `[{"topology":"-rack","size":8}]`, want: at + `[0].topology: Invalid value: "-rack": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		"no pods":         {layers: `[{"topology":"rack","size":0}]`, want: at + "[0].size: Invalid value: 0: must be greater than or equal to 1"},
		"too many pods":   {layers: `[{"topology":"rack","size":17}]`, want: at + "[0].size: Invalid value: 17: must not be greater than pod set count 16"},
		"uneven":          {layers: `[{"topology":"block","size":8},{"topology":"rack","size":3}]`, want: at + "[1].size: Invalid value: 3: must evenly divide the parent layer size 8"},
		"one level twice": {layers: `[{"topology":"rack","size":8},{"topology":"rack","size":4}]`, want: at + `[1].topology: Duplicate value: "rack"`},
		"slices besides":  {layers: `[{"topology":"rack","size":8}]`, also: kueue.PodSetSliceSizeAnnotation, want: at + ": Forbidden: may not be set when 'kueue.x-k8s.io/podset-slice-size' is specified"},
		"a group besides": {layers: `[{"topology":"rack","size":8}]`, also: kueue.PodSetGroupName, want: "podSets[main].template.metadata.annotations[kueue.x-k8s.io/podset-group-name]: Forbidden: may not be set when 'kueue.x-k8s.io/podset-slice-required-topology-constraints' is specified"},
	} {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Annotations: map[string]string{}}
			if test.layers != "" {
				meta.Annotations[kueue.PodSetSliceRequiredTopologyConstraintsAnnotation] = test.layers
			}
			if test.also != "" {
				meta.Annotations[test.also] = "1"
			}
			sets := []kueue.PodSet{{Name: "main", Count: 16, Template: corev1.PodTemplateSpec{ObjectMeta: meta}}}
			got := ""
			if errs := ValidateSliceLayers(sets, test.forbidden); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// Pods that are numbered say so without any annotation, as Kueue's do: where all flavors have a topology, they are placed
// by their numbers. It is nothing that two descriptions differ by.
func TestNumberedPodsAskForNothing(t *testing.T) {
	sets, err := jobIn(t, numberedJobSet).PodSets(t.Context(), nil)
	if err != nil || len(sets) != 2 {
		t.Fatalf("%+v, %v", sets, err)
	}
	for i, groups := range []int32{2, 1} {
		want := &kueue.PodSetTopologyRequest{PodIndexLabel: ptr.To("batch.kubernetes.io/job-completion-index"), SubGroupIndexLabel: ptr.To("jobset.sigs.k8s.io/job-index"), SubGroupCount: &groups}
		if !reflect.DeepEqual(sets[i].TopologyRequest, want) {
			t.Errorf("%s: %+v", sets[i].Name, sets[i].TopologyRequest)
		}
	}
	older := []kueue.PodSet{*sets[0].DeepCopy(), *sets[1].DeepCopy()}
	older[0].TopologyRequest, older[1].TopologyRequest = nil, &kueue.PodSetTopologyRequest{}
	if !SamePodSets(sets, older) {
		t.Error("a workload from before pods were numbered is not its job's any more")
	}
	older[0].TopologyRequest = &kueue.PodSetTopologyRequest{Required: ptr.To("rack")}
	if SamePodSets(sets, older) {
		t.Error("another place is the same")
	}
}

const numberedJobSet = `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {namespace: ns, name: set}
spec:
  suspend: true
  replicatedJobs:
  - {name: some, replicas: 2, template: {spec: {parallelism: 2, completions: 2, template: {spec: {containers: [{name: main}]}}}}}
  - {name: none, replicas: 1, template: {spec: {parallelism: 0, completions: 0, template: {spec: {containers: [{name: main}]}}}}}
`
