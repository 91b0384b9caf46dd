package queue

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// What makes no sense is refused in Kueue's words, whichever version it is
// written in.
func TestRefused(t *testing.T) {
	ns := queueFor(t, "1")
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one that says %s", err, want)
		}
	}
	limited := sandbox.ClusterQueue(ns+"-limited", ns, "1")
	limited.Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = ptr.To(resource.MustParse("1"))
	refused(cluster.Create(t.Context(), limited), `admission webhook "vclusterqueue.kb.io" denied the request: `+
		`spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: "1": must be nil when cohort is empty`)

	old := &kueuev1beta1.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns + "-old"}}
	old.Spec.Preemption = &kueuev1beta1.ClusterQueuePreemption{
		ReclaimWithinCohort: kueuev1beta1.PreemptionPolicyNever,
		BorrowWithinCohort:  &kueuev1beta1.BorrowWithinCohort{Policy: kueuev1beta1.BorrowWithinCohortPolicyLowerPriority},
	}
	refused(cluster.Create(t.Context(), old), "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never")

	cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: kueue.CohortSpec{FairSharing: &kueue.FairSharing{Weight: ptr.To(resource.MustParse("-1"))}}}
	refused(cluster.Create(t.Context(), cohort), "spec.fairSharing: Invalid value")

	refused(cluster.Create(t.Context(), sandbox.Flavor(ns+"-bad", map[string]string{"@": "x"})), "spec.nodeLabels: Invalid value")

	job := sandbox.Job(ns, "one", "main", 1, "1")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
	refused(change(t, wl, cluster.Update, func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 5 }), "spec.podSets.0: Invalid value")
	refused(change(t, wl, statusUpdate, func(wl *kueue.Workload) { wl.Status.Admission.ClusterQueue = "another" }), "status.admission: Invalid value")
}

func statusUpdate(ctx context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return cluster.Status().Update(ctx, obj)
}

// change writes a workload as it is now with a change, and returns what the API
// server said to that.
func change(t *testing.T, wl *kueue.Workload, write func(context.Context, client.Object, ...client.UpdateOption) error, edit func(*kueue.Workload)) (answer error) {
	t.Helper()
	sandbox.Eventually(t, "an update that meets no other", func(ctx context.Context) error {
		current := &kueue.Workload{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), current); err != nil {
			return err
		}
		edit(current)
		if answer = write(ctx, current); apierrors.IsConflict(answer) {
			return answer
		}
		return nil
	})
	return answer
}

// Deleting what is in use waits until it is no longer used; what is unused goes
// at once.
func TestWhatIsUsedStays(t *testing.T) {
	ns := cluster.Namespace(t)
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "kubernetes.io/hostname"}}}}
	flavor := sandbox.Flavor(ns, map[string]string{"elasticgpu.io/gpu-model": "H100-80G"})
	flavor.Spec.TopologyName = ptr.To(kueue.TopologyReference(ns))
	check := activeCheck(t, ns)
	queue := sandbox.ClusterQueue(ns, ns, "4")
	queue.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
		AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(ns)}},
	}
	cluster.Make(t, topology, flavor, queue, sandbox.LocalQueue(ns, "main", ns))
	job := sandbox.Job(ns, "one", "main", 1, "1")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	setCheck(t, wl, kueue.CheckStateReady)
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)

	used := []client.Object{topology, flavor, check, queue}
	for _, obj := range used {
		sandbox.Eventually(t, fmt.Sprintf("%T is held", obj), func(ctx context.Context) error {
			if err := cluster.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
				return err
			}
			if len(obj.GetFinalizers()) != 1 {
				return fmt.Errorf("finalizers are %v", obj.GetFinalizers())
			}
			return nil
		})
		if err := cluster.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	waitActive(t, ns, kueue.ClusterQueueActiveReasonTerminating)
	for _, obj := range used {
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			t.Errorf("%T is used and went: %v", obj, err)
		}
	}
	if err := cluster.Delete(t.Context(), job, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	for _, obj := range used {
		cluster.WaitGone(t, obj)
	}
}

// activeCheck makes an admission check whose controller is at work.
func activeCheck(t *testing.T, name string) *kueue.AdmissionCheck {
	t.Helper()
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/test"}}
	cluster.Make(t, check)
	sandbox.Eventually(t, "the check is active", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(check), check); err != nil {
			return err
		}
		apimeta.SetStatusCondition(&check.Status.Conditions, metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Test"})
		return cluster.Status().Update(ctx, check)
	})
	return check
}

// waitActive waits until the queue's condition Active has that reason.
func waitActive(t *testing.T, queue, reason string) {
	t.Helper()
	sandbox.Eventually(t, "queue "+queue+" is "+reason, func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: queue}, cq); err != nil {
			return err
		}
		active := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive)
		if active == nil || active.Reason != reason {
			return fmt.Errorf("it is %v", active)
		}
		return nil
	})
}
