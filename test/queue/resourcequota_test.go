package queue

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/checks/resourcequota"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// A queue in a namespace that still has a ResourceQuota: what the quota would
// refuse is not started, and is admitted when the ResourceQuota allows it.
func TestResourceQuotaCheck(t *testing.T) {
	ns := queueFor(t, "8")
	cluster.Make(t,
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cards"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{"requests." + sandbox.GPU: resource.MustParse("3")},
		}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: kueue.AdmissionCheckSpec{ControllerName: resourcequota.ControllerName}},
	)
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	patch(t, cq, fmt.Sprintf(`{"spec":{"admissionChecksStrategy":{"admissionChecks":[{"name":%q}]}}}`, ns))
	first := sandbox.Job(ns, "first", "main", 2, "1")
	first.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, first)
	waitCondition(t, cluster.WorkloadOf(t, first), kueue.WorkloadPodsReady, true)

	second := sandbox.Job(ns, "second", "main", 2, "1")
	cluster.Make(t, second)
	wl := cluster.WorkloadOf(t, second)
	evicted := waitCondition(t, wl, kueue.WorkloadEvicted, true)
	if !strings.Contains(evicted.Message, "ResourceQuota cards does not have 2 of requests.nvidia.com/gpu free: 2 of 3 are used") {
		t.Errorf("the message is %q", evicted.Message)
	}
	waitUsage(t, ns, "2") // the quota it does not need is others' to use
	if err := cluster.Delete(t.Context(), first, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, wl, kueue.WorkloadFinished, true)
}
