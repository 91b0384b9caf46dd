package reconcile

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

var elasticJob = strings.NewReplacer("kueue.x-k8s.io/job-min-parallelism: \"1\"", "kueue.x-k8s.io/elastic-job: \"true\"",
	"uid: job,", "uid: job, generation: 1,", "parallelism: 5", "parallelism: 3").Replace(queuedJob)

func (w *world) resizeJob(pods, generation int64) *unstructured.Unstructured {
	w.t.Helper()
	job := w.settle("job")
	if err := unstructured.SetNestedField(job.Object, pods, "spec", "parallelism"); err != nil {
		w.t.Fatal(err)
	}
	job.SetGeneration(generation)
	if err := w.client.Update(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
	return w.settle("job")
}

func (w *world) slices() (live, finished []*kueue.Workload) {
	w.t.Helper()
	list := &kueue.WorkloadList{}
	if err := w.client.List(w.t.Context(), list); err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		if wl := &list.Items[i]; workload.IsFinished(wl) {
			finished = append(finished, wl)
		} else {
			live = append(live, wl)
		}
	}
	slices.SortFunc(live, func(a, b *kueue.Workload) int { return int(a.Spec.PodSets[0].Count - b.Spec.PodSets[0].Count) })
	return live, finished
}

// A job that is admitted again after some of its pods have ended has quota for the others. It still has its size.
func TestJobAdmittedForItsLastPodsRuns(t *testing.T) {
	w := newWorld(t, parse(t, strings.Replace(queuedJob, `kueue.x-k8s.io/job-min-parallelism: "1"`, `example.com/note: "1"`, 1)))
	w.admit(w.workloadOf(w.settle("job")), oneOf("cq", 3))
	job := w.settle("job")
	for range 3 {
		if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); suspended {
			t.Fatal("it is stopped")
		}
		job = w.settle("job")
	}
	if pods, _, _ := unstructured.NestedInt64(job.Object, "spec", "parallelism"); pods != 5 {
		t.Errorf("it has %d pods", pods)
	}
}

// An elastic job that becomes smaller keeps its workload, which becomes smaller with it.
func TestElasticJobShrinks(t *testing.T) {
	w := newWorld(t, parse(t, elasticJob))
	first := w.workloadOf(w.settle("job"))
	if first.Annotations[kueue.WorkloadSliceNameAnnotation] != first.Name {
		t.Errorf("its annotations: %v", first.Annotations)
	}
	w.admit(first, oneOf("cq", 3))
	job := w.resizeJob(1, 2)
	wl := w.workloadOf(job)
	if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); suspended || wl.UID != first.UID || wl.Spec.PodSets[0].Count != 1 || !workload.IsAdmitted(wl) {
		t.Errorf("suspended %t, %s with %d pods", suspended, wl.Name, wl.Spec.PodSets[0].Count)
	}
}

// One that becomes larger has a second slice, whose pods belong to the first. It follows the job's size while
// it waits, takes over when it is admitted, and goes if it is no longer needed.
func TestElasticJobGrows(t *testing.T) {
	w := newWorld(t, parse(t, elasticJob))
	first := w.workloadOf(w.settle("job"))
	w.admit(first, oneOf("cq", 3))
	job := w.settle("job")
	name, _, _ := unstructured.NestedString(job.Object, "spec", "template", "metadata", "annotations", kueue.WorkloadSliceNameAnnotation)
	if name != first.Name {
		t.Fatalf("its pods belong to %q", name)
	}
	w.resizeJob(5, 2)
	live, _ := w.slices()
	if len(live) != 2 || live[1].Spec.PodSets[0].Count != 5 || live[1].Annotations[workload.ReplacesAnnotation] != "ns/"+first.Name ||
		live[1].Annotations[kueue.WorkloadSliceNameAnnotation] != first.Name || live[1].Spec.PodSets[0].Template.Annotations[kueue.WorkloadSliceNameAnnotation] != first.Name {
		t.Fatalf("slices: %v", live)
	}
	w.resizeJob(4, 3)
	again, _ := w.slices()
	if len(again) != 2 || again[1].UID != live[1].UID || again[1].Spec.PodSets[0].Count != 4 {
		t.Fatalf("it did not follow: %v", again)
	}
	w.admit(again[1], oneOf("cq", 4))
	job = w.settle("job")
	live, finished := w.slices()
	if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); suspended || len(live) != 1 || live[0].UID != again[1].UID || len(finished) != 1 || finished[0].UID != first.UID {
		t.Errorf("suspended %t, live %v, finished %v", suspended, live, finished)
	}
	w.resizeJob(5, 4)
	w.resizeJob(4, 5)
	if live, _ := w.slices(); len(live) != 1 || live[0].UID != again[1].UID {
		t.Errorf("a slice that nobody needs: %v", live)
	}
}

// An elastic job may change its size before it has started, while its checks are pending: as in Kueue its reservation stays, a
// smaller one is resized, and a larger one has a second slice, with which it starts.
func TestElasticJobResizedBeforeItStarts(t *testing.T) {
	w := newWorld(t, parse(t, elasticJob))
	first := w.workloadOf(w.settle("job"))
	first.Status.Admission = oneOf("cq", 3)
	apimeta.SetStatusCondition(&first.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "Test"})
	if err := w.client.Status().Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	w.resizeJob(2, 2)
	if live, _ := w.slices(); len(live) != 1 || live[0].UID != first.UID || live[0].Spec.PodSets[0].Count != 2 || !workload.HasReservation(live[0]) {
		t.Fatalf("smaller: %v", live)
	}
	w.resizeJob(5, 3)
	live, _ := w.slices()
	if len(live) != 2 || live[0].UID != first.UID || workload.Replaces(live[1]) != workload.KeyOf(first) || live[1].Spec.PodSets[0].Count != 5 {
		t.Fatalf("larger: %v", live)
	}
	w.admit(live[0], oneOf("cq", 2))
	if job := w.settle("job"); !isSuspended(job) {
		t.Error("it starts with the slice that is to be replaced")
	}
	w.admit(live[1], oneOf("cq", 5))
	job := w.settle("job")
	live, finished := w.slices()
	if isSuspended(job) || len(live) != 1 || live[0].Spec.PodSets[0].Count != 5 || len(finished) != 1 || finished[0].UID != first.UID {
		t.Errorf("suspended %t, live %v, finished %v", isSuspended(job), live, finished)
	}
}

func isSuspended(job *unstructured.Unstructured) bool {
	suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	return suspended
}

// Another scheduler may finish a slice when the next has quota and is not admitted yet. The job goes on, as in Kueue: its
// further pods are gated. Once it has stopped, and its pods would not be, it does not start without an admission.
func TestElasticJobGoesOnBetweenSlices(t *testing.T) {
	w := newWorld(t, parse(t, elasticJob))
	first := w.workloadOf(w.settle("job"))
	w.admit(first, oneOf("cq", 3))
	w.resizeJob(5, 2)
	live, _ := w.slices()
	if len(live) != 2 {
		t.Fatalf("slices: %v", live)
	}
	workload.Finish(live[0], kueue.WorkloadSliceReplaced, "replaced", time.Now())
	if err := w.client.Status().Update(t.Context(), live[0]); err != nil {
		t.Fatal(err)
	}
	job := w.settle("job")
	if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); suspended {
		t.Fatal("it is stopped")
	}
	w.admit(live[1], oneOf("cq", 5))
	job = w.resizeJob(4, 3)
	left, _ := w.slices()
	if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); suspended || len(left) != 1 || left[0].UID != live[1].UID || left[0].Spec.PodSets[0].Count != 4 {
		t.Fatalf("suspended %t, live %v", suspended, left)
	}
}

// A slice that has quota and waits for its checks stands for the job, as in Kueue; where the rule says so, only once it is
// admitted. Either way the job goes on, also when the slice before has been deleted.
func TestElasticJobWhileChecksWait(t *testing.T) {
	defer kinds.SetRules(kinds.Rules{})
	for _, keeps := range []bool{false, true} {
		kinds.SetRules(kinds.Rules{KeepSlices: keeps})
		w := newWorld(t, parse(t, elasticJob))
		w.admit(w.workloadOf(w.settle("job")), oneOf("cq", 3))
		w.resizeJob(5, 2)
		live, _ := w.slices()
		live[1].Status.Admission = oneOf("cq", 5)
		apimeta.SetStatusCondition(&live[1].Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "Test"})
		if err := w.client.Status().Update(t.Context(), live[1]); err != nil {
			t.Fatal(err)
		}
		job := w.settle("job")
		left, finished := w.slices()
		if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); suspended || (len(left) == 2) != keeps || (len(finished) == 1) == keeps {
			t.Fatalf("keeps %t: suspended %t, live %v, finished %v", keeps, suspended, left, finished)
		}
		if keeps {
			continue
		}
		if err := w.client.Delete(t.Context(), finished[0]); err != nil {
			t.Fatal(err)
		}
		if suspended, _, _ := unstructured.NestedBool(w.settle("job").Object, "spec", "suspend"); suspended {
			t.Error("it is stopped, since the slice before is gone")
		}
	}
}

// Who starts a job by hand whose slice was evicted while the next one waits starts nothing: its pods would not be gated.
func TestElasticJobStartedByHandIsStopped(t *testing.T) {
	w := newWorld(t, parse(t, elasticJob))
	w.admit(w.workloadOf(w.settle("job")), oneOf("cq", 3))
	w.resizeJob(5, 2)
	live, _ := w.slices()
	apimeta.SetStatusCondition(&live[0].Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Preempted", Message: "preempted"})
	if err := w.client.Status().Update(t.Context(), live[0]); err != nil {
		t.Fatal(err)
	}
	job := w.settle("job")
	if err := unstructured.SetNestedField(job.Object, false, "spec", "suspend"); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if suspended, _, _ := unstructured.NestedBool(w.settle("job").Object, "spec", "suspend"); !suspended {
		t.Error("it runs without quota")
	}
}

// A slice that is evicted while another one waits is finished when its job has stopped, not sooner. It says in
// which queue it was.
func TestElasticJobIsEvictedWhileItGrows(t *testing.T) {
	w := newWorld(t, parse(t, elasticJob))
	w.admit(w.workloadOf(w.settle("job")), oneOf("cq", 3))
	w.resizeJob(5, 2)
	live, _ := w.slices()
	apimeta.SetStatusCondition(&live[0].Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Preempted", Message: "preempted"})
	if err := w.client.Status().Update(t.Context(), live[0]); err != nil {
		t.Fatal(err)
	}
	job := w.settle("job")
	suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	pods, _, _ := unstructured.NestedInt64(job.Object, "spec", "parallelism")
	left, finished := w.slices()
	if !suspended || pods != 5 || len(left) != 1 || left[0].UID != live[1].UID || len(finished) != 1 || !workload.HasReservation(finished[0]) {
		t.Errorf("suspended %t, %d pods, live %v, finished %v", suspended, pods, left, finished)
	}
}

// The workload of a job is the one that describes it; another one of its own goes, whichever is older.
func TestSecondWorkloadOfAJob(t *testing.T) {
	w := newWorld(t, parse(t, queuedJob))
	job := w.settle("job")
	first := w.workloadOf(job)
	second := first.DeepCopy()
	second.Name, second.ResourceVersion = "a-"+first.Name, ""
	second.Spec.PodSets[0].Count++
	if err := w.client.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	w.settle("job")
	if wl := w.workloadOf(job); wl.Name != first.Name {
		t.Errorf("it kept %s", wl.Name)
	}
}

// A workload that has quota keeps the priority it got it with; without, it follows its job's class.
func TestPriorityClassOfAWorkloadWithQuota(t *testing.T) {
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7}
	for _, reserved := range []bool{false, true} {
		w := newWorld(t, parse(t, queuedJob), class)
		job := w.settle("job")
		if reserved {
			w.admit(w.workloadOf(job), oneOf("cq", 5))
			job = w.settle("job")
		}
		kinds.SetLabel(job, kinds.PriorityClassLabel, "high")
		if err := w.client.Update(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		w.settle("job")
		wl := w.workloadOf(job)
		if has := wl.Spec.PriorityClassRef != nil; has == reserved || (*wl.Spec.Priority == 7) == reserved {
			t.Errorf("with quota %t: %v, %d", reserved, wl.Spec.PriorityClassRef, *wl.Spec.Priority)
		}
	}
}

// The copy of another cluster's elastic job names a workload that somebody else makes. When that is replaced it goes on, for
// as long as the one that replaced it has quota, and is told to name that one, with its size.
func TestElasticCopyIsHandedOn(t *testing.T) {
	suspended := func(job *unstructured.Unstructured) bool {
		is, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
		return is
	}
	for name, handedOn := range map[string]bool{"to the next": true, "to none": false} {
		t.Run(name, func(t *testing.T) {
			job := parse(t, elasticJob)
			job.SetAnnotations(map[string]string{kinds.ElasticAnnotation: "true", kinds.PrebuiltLabel: "first"})
			w := newWorld(t, job)
			job = w.settle("job")
			built := func(name string, pods int32, replaces string) *kueue.Workload {
				wl, err := kinds.WorkloadBuilder{Client: w.client}.Build(t.Context(), kinds.Table()[0].Object(job), name)
				if err != nil {
					t.Fatal(err)
				}
				wl.OwnerReferences, wl.UID, wl.Spec.PodSets[0].Count = nil, types.UID(name), pods
				if replaces != "" {
					kinds.SetAnnotation(wl, workload.ReplacesAnnotation, wl.Namespace+"/"+replaces)
					kinds.SetAnnotation(wl, kueue.WorkloadSliceNameAnnotation, replaces)
				}
				if err := w.client.Create(t.Context(), wl); err != nil {
					t.Fatal(err)
				}
				return wl
			}
			first := built("first", 3, "")
			w.settle("job") // which makes it its own
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(first), first); err != nil {
				t.Fatal(err)
			}
			w.admit(first, oneOf("cq", 3))
			if now := w.settle("job"); suspended(now) {
				t.Fatal("it is not started")
			}
			next := built("next", 5, "first")
			if handedOn {
				w.admit(next, oneOf("cq", 5))
			}
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(first), first); err != nil {
				t.Fatal(err)
			}
			workload.Finish(first, kueue.WorkloadSliceReplaced, "", time.Now())
			if err := w.client.Status().Update(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			now := w.settle("job")
			if suspended(now) == handedOn {
				t.Fatalf("suspended: %t", suspended(now))
			}
			if !handedOn {
				return
			}
			now.SetAnnotations(map[string]string{kinds.ElasticAnnotation: "true", kinds.PrebuiltLabel: "next"})
			if err := unstructured.SetNestedField(now.Object, int64(5), "spec", "parallelism"); err != nil {
				t.Fatal(err)
			}
			if err := w.client.Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			if now = w.settle("job"); suspended(now) {
				t.Error("it is stopped when it is handed on")
			}
			live, _ := w.slices()
			if len(live) != 1 || live[0].Name != "next" || !metav1.IsControlledBy(live[0], now) {
				t.Errorf("its workloads: %+v", live)
			}
			if err := unstructured.SetNestedField(now.Object, int64(2), "spec", "parallelism"); err != nil {
				t.Fatal(err)
			}
			if err := w.client.Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			now = w.settle("job")
			live, _ = w.slices()
			if suspended(now) || len(live) != 1 || live[0].Spec.PodSets[0].Count != 2 {
				t.Errorf("smaller: suspended %t, %+v", suspended(now), live)
			}
		})
	}
}
