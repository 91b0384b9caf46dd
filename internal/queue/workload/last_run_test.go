package workload

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/budget"
)

var (
	began = time.Date(2026, 11, 17, 1, 0, 0, 0, time.UTC)
	ended = began.Add(90 * time.Minute)
)

// metered is a workload that uses a budget, with 8 cards in two pod sets since began.
func metered() *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "job", UID: "1", Finalizers: []string{kueue.ResourceInUseFinalizerName, BudgetFinalizer}}}
	wl.Spec.QueueName = "main"
	Admit(wl, &admission.Admission{Queue: "cq"}, nil, began)
	for _, name := range []kueue.PodSetReference{"driver", "workers"} {
		wl.Status.Admission.PodSetAssignments = append(wl.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{
			Name: name, Count: ptr.To[int32](1),
			Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "h100", "cpu": "h100"},
			ResourceUsage: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4"), "cpu": resource.MustParse("500m")},
		})
	}
	return wl
}

func meteredRun(end time.Time) *budget.Run {
	return &budget.Run{UID: "1", Start: began, End: end, Queue: "cq", Amounts: []budget.Amount{{Flavor: "h100", Resource: "cpu", Units: 1000}, {Flavor: "h100", Resource: "nvidia.com/gpu", Units: 8}}}
}

// Whatever ends a run, the object tells of it: from when to when, and what of which flavors.
func TestLastRun(t *testing.T) {
	for name, test := range map[string]struct {
		change func(wl *kueue.Workload)
		end    time.Time
		none   bool
	}{
		"it goes on":     {change: func(*kueue.Workload) {}},
		"it finishes":    {change: func(wl *kueue.Workload) { Finish(wl, "Succeeded", "", ended) }, end: ended},
		"it was evicted": {change: func(wl *kueue.Workload) { Evict(wl, "Preempted", "", "", began.Add(time.Hour)) }},
		"it is released": {change: func(wl *kueue.Workload) {
			Evict(wl, "Preempted", "", "", began.Add(time.Hour))
			Release(wl, "", ended)
		}, end: ended},
		"it is put on hold": {change: func(wl *kueue.Workload) { Hold(wl, "", ended) }, end: ended},
		"it is released, and goes to another queue": {change: func(wl *kueue.Workload) {
			Release(wl, "", ended)
			SetPending(wl, admission.Pending{Reason: admission.ReasonWaitingForBudget, Message: "waits"}, true, ended.Add(time.Hour))
			wl.Spec.QueueName = "other"
		}, end: ended},
		"deleted, its job stops": {change: func(wl *kueue.Workload) { wl.DeletionTimestamp = ptr.To(metav1.NewTime(ended)) }},
		"deleted, its job is no more": {change: func(wl *kueue.Workload) {
			wl.DeletionTimestamp, wl.Finalizers = ptr.To(metav1.NewTime(ended)), []string{BudgetFinalizer}
		}, end: ended},
		"released without a budget": {change: func(wl *kueue.Workload) {
			wl.Finalizers = wl.Finalizers[:1]
			Release(wl, "", ended)
		}, none: true},
		"nobody can read it": {change: func(wl *kueue.Workload) {
			Release(wl, "", ended)
			condition(wl, lastRunCondition).Message = "since Monday"
		}, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			wl := metered()
			test.change(wl)
			run, queue := LastRun(wl)
			if test.none {
				if run != nil {
					t.Fatalf("%+v", run)
				}
				return
			}
			if want := meteredRun(test.end); !reflect.DeepEqual(run, want) || queue != "main" {
				t.Errorf("%+v of %s, want %+v", run, queue, want)
			}
		})
	}
}

// The condition goes with the write that takes the quota away, and stays with every write after it; the run that follows
// takes its place.
func TestLastRunIsWritten(t *testing.T) {
	wl := metered()
	Release(wl, "", ended)
	patch, err := AdmissionPatch(wl)
	if err != nil || !strings.Contains(string(patch), lastRunCondition) {
		t.Fatalf("%s %v", patch, err)
	}
	again := ended.Add(time.Hour)
	Admit(wl, &admission.Admission{Queue: "cq"}, nil, again)
	if run, _ := LastRun(wl); run == nil || !run.Start.Equal(again) || !run.End.IsZero() {
		t.Errorf("admitted again: %+v", run)
	}
	Release(wl, "", again.Add(time.Minute))
	if run, _ := LastRun(wl); run == nil || !run.Start.Equal(again) || !run.End.Equal(again.Add(time.Minute)) {
		t.Errorf("released again: %+v", run)
	}
}

// A deleted workload whose job took its time to stop uses its budget until then, and the patch that lets it go says so.
func TestRunOfDeletedWorkloadLastsUntilItsJobStopped(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, annotations := range []map[string]string{nil, {"a/b": "c"}} {
		wl := metered()
		wl.Annotations, wl.DeletionTimestamp = annotations, ptr.To(metav1.NewTime(ended))
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(wl).WithStatusSubresource(wl).Build()
		before := time.Now().Truncate(time.Second)
		if err := RemoveFinalizer(t.Context(), c, wl); err != nil {
			t.Fatal(err)
		}
		now := &kueue.Workload{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(wl), now); err != nil {
			t.Fatal(err)
		}
		run, _ := LastRun(now)
		if HasFinalizer(now) || run == nil || run.End.Before(before) || now.Annotations["a/b"] != annotations["a/b"] {
			t.Errorf("%+v of %v %v", run, now.Finalizers, now.Annotations)
		}
	}
}

// What bought nodes cost is told with the run, from the admission on, also when an eviction had the check begin anew. Two pod
// sets share a purchase. What is no price is none.
func TestLastRunTellsWhatNodesCost(t *testing.T) {
	admitted := began.Add(20 * time.Minute)
	bought := func(price string) *kueue.Workload {
		wl := metered()
		condition(wl, kueue.WorkloadAdmitted).LastTransitionTime = metav1.NewTime(admitted)
		state := kueue.AdmissionCheckState{Name: "nodes", State: kueue.CheckStateReady}
		for _, name := range []kueue.PodSetReference{"driver", "workers"} {
			state.PodSetUpdates = append(state.PodSetUpdates, kueue.PodSetUpdate{
				Name: name, NodeSelector: map[string]string{cloudv1.PurchaseLabel: "1-1"}, Annotations: map[string]string{cloudv1.PriceAnnotation: price},
			})
		}
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{state}
		return wl
	}
	cost := func(wl *kueue.Workload) (list []budget.Amount) {
		run, _ := LastRun(wl)
		for _, a := range run.Amounts {
			if a.Resource == budget.Money {
				list = append(list, a)
			}
		}
		return list
	}
	want := []budget.Amount{{Flavor: "h100", Resource: budget.Money, Units: 41_200_000, Since: admitted}}
	wl := bought("41.20")
	if got := cost(wl); !reflect.DeepEqual(got, want) {
		t.Errorf("it runs: %+v", got)
	}
	Evict(wl, "MachineLost", "", "", ended)
	if got := cost(wl); len(wl.Status.AdmissionChecks[0].PodSetUpdates) > 0 || len(got) != 1 || got[0].Units != want[0].Units || !got[0].Since.Equal(admitted) {
		t.Errorf("evicted: %+v", got)
	}
	if patch, err := AdmissionPatch(wl); err != nil || !strings.Contains(string(patch), boughtCondition) {
		t.Errorf("what is written of an eviction: %s, %v", patch, err)
	}
	Release(wl, "", ended)
	if got := cost(wl); len(got) != 1 || got[0].Units != want[0].Units || !got[0].Since.Equal(admitted) {
		t.Errorf("released: %+v", got)
	}
	Admit(wl, &admission.Admission{Queue: "cq"}, nil, ended.Add(time.Hour))
	if got := cost(wl); len(got) > 0 {
		t.Errorf("the next run, which has no nodes yet: %+v", got)
	}
	finished := bought("41.20")
	Finish(finished, "Succeeded", "", ended)
	if got := cost(finished); !reflect.DeepEqual(got, want) {
		t.Errorf("finished: %+v", got)
	}
	for text, since := range map[string]time.Time{
		"2026-01-01T00:00:00Z": time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), began.Add(5 * time.Minute).Format(time.RFC3339): began.Add(5 * time.Minute),
		"soon": admitted, "9999-12-31T00:00:00Z": admitted,
	} {
		wl := bought("41.20")
		for i := range wl.Status.AdmissionChecks[0].PodSetUpdates {
			wl.Status.AdmissionChecks[0].PodSetUpdates[i].Annotations[cloudv1.BoughtAtAnnotation] = text
		}
		if got := cost(wl); len(got) != 1 || !got[0].Since.Equal(since) {
			t.Errorf("ordered at %s: %+v", text, got)
		}
	}
	for _, price := range []string{"", "-1", "NaN", "Inf", "1e300", "much"} {
		if got := cost(bought(price)); len(got) > 0 {
			t.Errorf("%q: %+v", price, got)
		}
	}
}
