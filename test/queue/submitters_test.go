package queue

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	config "github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// Who made a job is in its annotation and its Workload's, though the job says somebody else and somebody else changes it, and what
// the job used is in the account by that name.
func TestSpendingByUser(t *testing.T) {
	cluster.Reconfigure(t, func(cfg *config.QueueConfiguration) { cfg.Controllers.RecordSubmitters = true })
	t.Cleanup(func() {
		cluster.Reconfigure(t, func(cfg *config.QueueConfiguration) { cfg.Controllers.RecordSubmitters = false })
	})
	ns := queueFor(t, "3")
	policy := sandbox.QueuePolicy(ns, sandbox.ClusterQueueTarget(ns))
	policy.Spec.Budgets = []v1alpha1.Budget{hours(v1alpha1.PeriodMonth, "500")}
	cluster.Make(t, policy)
	cluster.WaitAccepted(t, ns, v1alpha1.ReasonAccepted)

	as := rest.CopyConfig(cluster.REST)
	as.Impersonate = rest.ImpersonationConfig{UserName: "ann@example.com", Groups: []string{"system:masters"}}
	ann, err := client.New(as, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	job := sandbox.Job(ns, "train", "main", 1, "2")
	job.Annotations = map[string]string{v1alpha1.SubmittedByAnnotation: "carol@example.com"}
	job.Spec.Template.Annotations["sandbox.elasticai.io/run-for"] = "forever"
	if err := ann.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if got := job.Annotations[v1alpha1.SubmittedByAnnotation]; got != "ann@example.com" {
		t.Fatalf("it was made by %q", got)
	}
	patch(t, job, `{"metadata":{"annotations":{"elasticai.io/submitted-by":"carol@example.com"}}}`)
	patch(t, job, `{"metadata":{"annotations":{"elasticai.io/submitted-by":null}}}`)
	if got := job.Annotations[v1alpha1.SubmittedByAnnotation]; got != "ann@example.com" {
		t.Errorf("after changes it was made by %q", got)
	}
	wl := cluster.WorkloadOf(t, job)
	began := waitCondition(t, wl, kueue.WorkloadQuotaReserved, true).LastTransitionTime.Time
	if got := wl.Annotations[v1alpha1.SubmittedByAnnotation]; got != "ann@example.com" {
		t.Errorf("its Workload says %q", got)
	}
	awaitSecond(t, began)
	if err := cluster.Delete(t.Context(), job, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "what it used is ann's", func(ctx context.Context) error {
		account := &v1alpha1.BudgetAccount{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: ns + ".main"}, account); err != nil {
			return err
		}
		for _, sum := range account.Status.Sums {
			used := int64(0)
			for _, u := range sum.Used {
				if u.Resource == "nvidia.com/gpu" {
					used += u.UnitSeconds
				}
			}
			if used > 0 && slices.Contains(sum.Users, v1alpha1.BudgetUser{User: "ann@example.com", Resource: "nvidia.com/gpu", UnitSeconds: used}) {
				return nil
			}
		}
		return fmt.Errorf("%+v", account.Status)
	})
}
