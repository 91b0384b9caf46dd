package queue

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// hours is a budget of GPU-hours.
func hours(period v1alpha1.BudgetPeriod, amount string) v1alpha1.Budget {
	return v1alpha1.Budget{Period: period, Amount: resource.MustParse(amount)}
}

// What workloads used of a budget is in its account to the second, though the queue is killed in between, and those that
// used it are deleted while nobody leads.
func TestBudgetIsExactThroughARestart(t *testing.T) {
	ns := queueFor(t, "3")
	policy := sandbox.QueuePolicy(ns, sandbox.ClusterQueueTarget(ns))
	policy.Spec.Budgets = []v1alpha1.Budget{hours(v1alpha1.PeriodMonth, "5")}
	cluster.Make(t, policy)
	cluster.WaitAccepted(t, ns, v1alpha1.ReasonAccepted)
	a, b, large := bare(ns, "a", 2, 0), bare(ns, "b", 1, 0), bare(ns, "large", 3, 0)
	large.Spec.MaximumExecutionTimeSeconds = ptr.To[int32](1 << 30)
	cluster.Make(t, a, b, large)
	began := waitCondition(t, a, kueue.WorkloadQuotaReserved, true).LastTransitionTime.Time
	beganB := waitCondition(t, b, kueue.WorkloadQuotaReserved, true).LastTransitionTime.Time
	waitRefusal(t, large, "for the budget of ClusterQueue/"+ns)
	awaitSecond(t, began)

	if err := syscall.Kill(cluster.Queue(t).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// a stops, as if it had been evicted, and b finishes and is deleted.
	stopped := writeWhenTaken(t, a, func(wl *kueue.Workload, now time.Time) { workload.Release(wl, "its pods are gone", now) })
	finished := writeWhenTaken(t, b, func(wl *kueue.Workload, now time.Time) { workload.Finish(wl, "Succeeded", "it is done", now) })
	if err := client.IgnoreNotFound(cluster.Delete(t.Context(), b)); err != nil {
		t.Fatal(err)
	}
	cluster.WaitGone(t, b)
	want := 2*(stopped.Unix()-began.Unix()) + finished.Unix() - beganB.Unix()
	waitUsed(t, ns, want)

	again := waitCondition(t, a, kueue.WorkloadQuotaReserved, true).LastTransitionTime.Time
	awaitSecond(t, again)
	ended := writeWhenTaken(t, a, func(wl *kueue.Workload, now time.Time) { workload.Finish(wl, "Succeeded", "it is done", now) })
	want += 2 * (ended.Unix() - again.Unix())
	waitUsed(t, ns, want)
	if err := cluster.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	cluster.WaitGone(t, a)
	waitUsed(t, ns, want)

	if err := cluster.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, large, kueue.WorkloadQuotaReserved, true)
}

// An account that nobody needs any more is deleted.
func TestAccountExpires(t *testing.T) {
	ns := queueFor(t, "1")
	account := &v1alpha1.BudgetAccount{Spec: v1alpha1.BudgetAccountSpec{Namespace: ns, LocalQueue: "gone"}}
	account.Name = ns + ".gone"
	day := time.Now().Add(-20 * 24 * time.Hour).Truncate(24 * time.Hour) // days stay for two weeks
	account.Status.Sums = []v1alpha1.BudgetSum{{
		Period: v1alpha1.PeriodDay, TimeZone: "UTC", From: metav1.NewTime(day), Until: metav1.NewTime(day.Add(24 * time.Hour)),
		Used: []v1alpha1.BudgetUsed{{ClusterQueue: ns, Flavor: ns, Resource: "nvidia.com/gpu", UnitSeconds: 1}},
	}}
	if err := cluster.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	cluster.WaitGone(t, account)
}

// Accounts are nobody's to write but the queue's.
func TestWhoMayWriteAccounts(t *testing.T) {
	ns := queueFor(t, "1")
	for _, role := range []string{"kueue-batch-user-role", "admin"} {
		account := &v1alpha1.BudgetAccount{Spec: v1alpha1.BudgetAccountSpec{Namespace: ns, LocalQueue: "main"}}
		account.Name = ns + ".main"
		if err := as(t, ns+"-"+role, role, ns).Create(t.Context(), account, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("creating an account as %s: %v", role, err)
		}
	}
}

// awaitSecond waits until a second has passed, so that there is something to count.
func awaitSecond(t *testing.T, since time.Time) {
	t.Helper()
	sandbox.Eventually(t, "a second passes", func(context.Context) error {
		if time.Since(since) < 2*time.Second {
			return fmt.Errorf("it began at %s", since)
		}
		return nil
	})
}

// writeWhenTaken writes a workload's status as a job's controller does, once a queue is there to take it, and returns when.
func writeWhenTaken(t *testing.T, wl *kueue.Workload, edit func(*kueue.Workload, time.Time)) (at time.Time) {
	t.Helper()
	sandbox.Eventually(t, "the status of "+wl.Name+" is written", func(ctx context.Context) error {
		current := &kueue.Workload{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), current); err != nil {
			return err
		}
		at = time.Now().Truncate(time.Second)
		edit(current, at)
		return cluster.Status().Update(ctx, current)
	})
	return at
}

// waitUsed waits until the account of a namespace's LocalQueue has so many card-seconds.
func waitUsed(t *testing.T, ns string, want int64) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("%d card-seconds are in the account", want), func(ctx context.Context) error {
		account := &v1alpha1.BudgetAccount{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: ns + ".main"}, account); err != nil {
			return err
		}
		got := int64(0)
		for _, sum := range account.Status.Sums {
			for _, used := range sum.Used {
				if used.Resource == "nvidia.com/gpu" && used.ClusterQueue == ns {
					got += used.UnitSeconds
				}
			}
		}
		if got != want {
			return fmt.Errorf("%d: %+v", got, account.Status)
		}
		return nil
	})
}
