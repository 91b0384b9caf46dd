package kinds

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
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

// What an admission added to an AppWrapper goes when it is stopped: it is not in the templates, where it would be
// noticed.
func TestStoppedAppWrapperHasNoPodSetInfos(t *testing.T) {
	job := jobIn(t, strings.Replace(declaringAppWrapper, "    template: {api", "    podSetInfos: [{nodeSelector: {pool: a}}]\n    template: {api", 1))
	c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(job.Unstructured).Build()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(job.Unstructured), job.Unstructured); err != nil {
		t.Fatal(err)
	}
	if _, err := job.Stop(t.Context(), c, Stop{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(job.Unstructured), job.Unstructured); err != nil {
		t.Fatal(err)
	}
	components, _, _ := unstructured.NestedSlice(job.Object, "spec", "components")
	if infos, found := components[0].(map[string]any)["podSetInfos"]; found || !job.IsSuspended() {
		t.Errorf("suspended %t, %v", job.IsSuspended(), infos)
	}
}
