package kinds

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A job that is seen suspended has the templates that its user wrote: both are one write. Templates of a Job can change
// only once it is suspended, and so does every kind whose operator refuses it.
func TestStopRestoresTemplates(t *testing.T) {
	for _, tc := range []struct {
		kind             string
		refuses          bool
		writes, stillHas int
	}{
		{kind: "jaxjob", writes: 1},
		{kind: "jobset", writes: 1},
		{kind: "job", writes: 1, stillHas: 1},
		{kind: "jaxjob", refuses: true, writes: 2, stillHas: 1},
	} {
		j, _ := sample(t, tc.kind)
		j.SetNamespace("ns")
		sets, err := j.PodSets(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: sets}}
		infos := make([]PodSetInfo, len(sets))
		infos[0] = PodSetInfo{Count: sets[0].Count, NodeSelector: map[string]string{"added-selector": "x"}}
		for i := range infos[1:] {
			infos[i+1].Count = sets[i+1].Count
		}
		writes := 0
		c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(j.Unstructured).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if writes++; tc.refuses && writes == 2 { // the first starts it
					return apierrors.NewInvalid(schema.GroupKind{Kind: "JAXJob"}, obj.GetName(), nil)
				}
				return c.Patch(ctx, obj, patch, opts...)
			},
		}).Build()
		read := func() {
			t.Helper()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(j.Unstructured), j.Unstructured); err != nil {
				t.Fatal(err)
			}
		}
		read()
		if err := j.Start(t.Context(), c, wl, infos); err != nil {
			t.Fatal(err)
		}
		read()
		if _, err := j.Stop(t.Context(), c, Stop{Workload: wl}); err != nil {
			t.Fatal(err)
		}
		read()
		if has := strings.Count(fmt.Sprint(j.Object), "added-selector"); !j.IsSuspended() || has != tc.stillHas || writes-1 != tc.writes {
			t.Errorf("%s, refused %t: suspended %t, what was added is there %d times, after %d writes", tc.kind, tc.refuses, j.IsSuspended(), has, writes-1)
		}
	}
}

// Pods of a kind that cannot have gates are kept off nodes by their affinity, beside what their author wrote there, and only
// while they are admitted so.
func TestNodesAreAvoidedByAffinity(t *testing.T) {
	j, _ := sample(t, "sparkapplication")
	j.SetNamespace("ns")
	sets, err := j.PodSets(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: sets}}
	infos := make([]PodSetInfo, len(sets))
	for i := range infos {
		infos[i] = PodSetInfo{Count: sets[i].Count, Annotations: map[string]string{}}
		infos[i].AvoidNodes([]string{"n1", "n2"})
	}
	if err := j.setPodSetInfos(wl, infos); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"driver", "executor"} {
		terms, _, _ := unstructured.NestedSlice(j.Object, "spec", part, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
		if text := fmt.Sprint(terms); len(terms) != 1 || !strings.Contains(text, "metadata.name") || !strings.Contains(text, "n1") || !strings.Contains(text, "n2") {
			t.Errorf("%s: %v", part, terms)
		}
	}
	if err := j.setPodSetInfos(wl, nil); err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(j.Object); strings.Contains(text, "metadata.name") || strings.Contains(text, "avoid-nodes") {
		t.Errorf("it is there still: %s", text)
	}
}
