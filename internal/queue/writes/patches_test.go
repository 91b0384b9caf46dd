package writes

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The last admission check of a workload is removed before the rest is applied, on the version that leaves behind.
func TestStatusWithoutChecks(t *testing.T) {
	var sent []string
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			data, err := patch.Data(obj)
			sent = append(sent, string(patch.Type())+" "+string(data))
			obj.SetResourceVersion("8")
			return err
		},
	}).Build()
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl", ResourceVersion: "7"}}
	if _, err := StatusWithoutChecks(t.Context(), c, wl); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 2 || !strings.Contains(sent[0], "merge-patch") || !strings.Contains(sent[0], `"admissionChecks":null`) || !strings.Contains(sent[0], `"resourceVersion":"7"`) ||
		!strings.Contains(sent[1], "apply-patch") || strings.Contains(sent[1], "admissionChecks") || !strings.Contains(sent[1], `"resourceVersion":"8"`) {
		t.Errorf("sent %q", sent)
	}
}
