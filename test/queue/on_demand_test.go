package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/checks/machines"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// Spot and on demand are two flavors. A job that has no time for a loss is handed over to the one on demand, though spot can be had and costs
// less. With spot sold out, one that says nothing goes on demand, and one that has time waits.
func handedOver(t *testing.T) {
	ns, spot, onDemand := twoFlavors(t)
	buying(t, ns, spot, onDemand)
	patch(t, &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: onDemand}}, `{"spec":{"match":{"capacityType":"OnDemand"}}}`)
	waitPriced(t, onDemand, cloud.ReasonPriced, "12")
	start := func(name string, due time.Duration) *kueue.Workload {
		job := sandbox.Job(ns, name, "main", 8, "1")
		job.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "3600"
		job.Annotations = map[string]string{cloud.CheckpointAnnotation: "10m"}
		if due > 0 {
			job.Annotations[cloud.DeadlineAnnotation] = time.Now().Add(due).UTC().Format(time.RFC3339)
		}
		cluster.Make(t, job)
		return cluster.WorkloadOf(t, job)
	}
	late := start("late", 70*time.Minute)
	waitEvent(t, late, "EvictedDueToOnDemand", "to wait for spot nodes of flavor "+spot+" does not pay any longer")
	bought := claimsOf(t, late, 1, 1)
	if !slices.ContainsFunc(bought[0].Spec.Requirements, func(r machines.Requirement) bool { return slices.Contains(r.Values, "on-demand") }) {
		t.Errorf("NodeClaim %+v", bought[0].Spec.Requirements)
	}
	registers(t, bought...)
	waitState(t, late, kueue.CheckStateReady, "1 node: aws/us-east-2/a p5.48xlarge on demand")

	silent := start("says-nothing", 0)
	for attempt := range 2 {
		claims := claimsOf(t, silent, attempt+1, 1)
		deletes(t, &claims[0])
	}
	sandbox.Eventually(t, "it is on the flavor on demand", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(silent), silent); err != nil {
			return err
		}
		if a := silent.Status.Admission; a == nil || string(a.PodSetAssignments[0].Flavors[sandbox.GPU]) != onDemand {
			return fmt.Errorf("its admission is %+v", a)
		}
		return nil
	})
	waits := start("waits", 40*time.Hour)
	sandbox.Eventually(t, "it waits for spot", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(waits), waits); err != nil {
			return err
		}
		checks := waits.Status.AdmissionChecks
		if len(checks) != 1 || checks[0].State != kueue.CheckStatePending || !strings.HasPrefix(checks[0].Message, "waits for spot nodes of flavor "+spot+" until 2") {
			return fmt.Errorf("checks are %+v", checks)
		}
		return nil
	})
	claimsOf(t, waits, 0, 0)
}
