package status

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

// A workload that ends before its object showed that it has quota changes the engine's usage alone: the status is
// written again all the same.
func TestUsageOfAWorkloadThatWasNeverShownGoes(t *testing.T) {
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"}}
	engine, s, written := shared(t, lq)
	key := admission.Key{Namespace: "ns", Name: "wl"}
	engine.Apply(admission.WorkloadChanged{Workload: admission.Workload{
		Key: key, LocalQueue: "main", PodSets: []admission.PodSet{{Name: "main", Count: 4, Requests: admission.Requests{"nvidia.com/gpu": 1}}},
	}})
	if plan := engine.Decide(when); len(plan.Admit) != 1 {
		t.Fatalf("the workload must borrow: %+v", plan)
	}
	at := when
	reserved := func() string {
		t.Helper()
		*written = nil
		at = at.Add(time.Minute)
		s.Publish(engine, at)
		for _, obj := range *written {
			s.Written(obj, nil)
			if cq, ok := obj.(*kueue.ClusterQueue); ok {
				return cq.Status.FlavorsReservation[0].Resources[0].Total.String()
			}
		}
		return "as it was"
	}
	if got := reserved(); got != "4" {
		t.Fatalf("reserved: %s", got)
	}
	engine.Apply(admission.WorkloadGone{Key: key})
	engine.Decide(at)
	if got := reserved(); got != "0" {
		t.Errorf("the workload is gone, and reserved is %s", got)
	}
	if got := reserved(); got != "as it was" {
		t.Errorf("nothing happened, and reserved is %s", got)
	}
}
