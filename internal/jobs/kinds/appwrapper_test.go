package kinds

import (
	"strings"
	"testing"
)

const declaringAppWrapper = `
apiVersion: workload.codeflare.dev/v1beta2
kind: AppWrapper
metadata: {namespace: ns, name: wrap}
spec:
  components:
  - podSets: [{path: template.spec.template, replicas: 4, annotations: {workload.codeflare.dev.appwrapper/tas-pod-index-label: rank,
      workload.codeflare.dev.appwrapper/tas-sub-group-index-label: part, workload.codeflare.dev.appwrapper/tas-sub-group-count: "2"}}]
    template: {apiVersion: example.com/v1, kind: Any, spec: {template: {metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: rack}}, spec: {containers: [{name: main}]}}}}
`

// How the pods of a declared pod set are numbered is said in its annotations.
func TestTopologyOfADeclaredPodSet(t *testing.T) {
	sets, err := jobIn(t, declaringAppWrapper).PodSets(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := sets[0].TopologyRequest; r == nil || *r.PodIndexLabel != "rank" || *r.SubGroupIndexLabel != "part" || *r.SubGroupCount != 2 {
		t.Errorf("%+v", r)
	}
	sets, err = jobIn(t, strings.Replace(declaringAppWrapper, `"2"`, "many", 1)).PodSets(t.Context(), nil)
	if err != nil || sets[0].TopologyRequest.SubGroupCount != nil {
		t.Errorf("a count that is none: %v, %v", sets, err)
	}
}
