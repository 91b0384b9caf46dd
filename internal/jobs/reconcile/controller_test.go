package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// world is a cluster of Jobs and their workloads, and the controller of Jobs.
type world struct {
	t        *testing.T
	client   client.Client
	recorder *events.FakeRecorder
	*objectReconciler
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	c := indexed(fake.NewClientBuilder().WithScheme(staleScheme(t)).WithObjects(objects...).WithStatusSubresource(&kueue.Workload{}).
		WithIndex(&corev1.Pod{}, groupIndex, func(pod client.Object) []string { return []string{podgroups.GroupName(pod)} }).
		WithInterceptorFuncs(interceptor.Funcs{Create: createWithUID, SubResourcePatch: applyConditions})).Build()
	inUse := &kinds.InUse{}
	inUse.Set(kinds.Table())
	w := &world{t: t, client: c, recorder: events.NewFakeRecorder(100)}
	w.objectReconciler = &objectReconciler{kind: kinds.Table()[0], controller: &controller{
		client: c, pods: c, recorder: w.recorder, now: time.Now, builder: kinds.WorkloadBuilder{Client: c},
		filter: &managed.Filter{Cached: c, Direct: c, Kinds: inUse, Namespaces: labels.Everything()},
	}}
	return w
}

// createWithUID and applyConditions do what an API server does, and the fake client does not.
func createWithUID(ctx context.Context, c client.WithWatch, obj client.Object, options ...client.CreateOption) error {
	obj.SetUID(types.UID(obj.GetName()))
	return c.Create(ctx, obj, options...)
}

func applyConditions(ctx context.Context, c client.Client, _ string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	applied, is := &kueue.Workload{}, &kueue.Workload{}
	if err := errors.Join(yaml.Unmarshal(data, applied), c.Get(ctx, client.ObjectKeyFromObject(obj), is)); err != nil {
		return err
	}
	for _, condition := range applied.Status.Conditions {
		apimeta.SetStatusCondition(&is.Status.Conditions, condition)
	}
	return c.Status().Update(ctx, is)
}

// settle reconciles a job until that has nothing left to do.
func (w *world) settle(name string) *unstructured.Unstructured {
	w.t.Helper()
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(w.kind.GVK)
	for range 10 {
		if _, err := w.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, job); err != nil {
		w.t.Fatal(err)
	}
	return job
}

// recorded are the events so far, with their reasons and messages.
func (w *world) recorded() []string {
	var out []string
	for len(w.recorder.Events) > 0 {
		out = append(out, <-w.recorder.Events)
	}
	return out
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// workloadOf is the one workload of a job, with conditions that are true.
func (w *world) workloadOf(job client.Object) *kueue.Workload {
	w.t.Helper()
	list := &kueue.WorkloadList{}
	if err := w.client.List(w.t.Context(), list, client.MatchingFields{kinds.OwnerUIDIndex: string(job.GetUID())}); err != nil || len(list.Items) != 1 {
		w.t.Fatalf("%d workloads, %v", len(list.Items), err)
	}
	return &list.Items[0]
}

func (w *world) admit(wl *kueue.Workload, admission *kueue.Admission) {
	w.t.Helper()
	wl.Status.Admission = admission
	status := metav1.ConditionFalse
	if admission != nil {
		status = metav1.ConditionTrue
	}
	for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: condition, Status: status, Reason: "Test"})
	}
	if err := w.client.Status().Update(w.t.Context(), wl); err != nil {
		w.t.Fatal(err)
	}
}

func oneOf(queue kueue.ClusterQueueReference, count int32) *kueue.Admission {
	return &kueue.Admission{ClusterQueue: queue, PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: &count}}}
}

const queuedJob = `
apiVersion: batch/v1
kind: Job
metadata: {namespace: ns, name: job, uid: job, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {kueue.x-k8s.io/job-min-parallelism: "1"}}
spec: {suspend: true, parallelism: 5, completions: 6, template: {metadata: {labels: {team: a}}, spec: {containers: [{name: main}]}}}
`

// What a job's user is told: that its workload was made, that it was started, that it has ended.
func TestEventsOfAJob(t *testing.T) {
	w := newWorld(t, parse(t, queuedJob))
	job := w.settle("job")
	w.admit(w.workloadOf(job), oneOf("cq", 5))
	job = w.settle("job")
	job.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}
	if err := w.client.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	w.settle("job")
	name := "ns/" + w.workloadOf(job).Name
	want := []string{"Normal CreatedWorkload Created Workload: " + name, "Normal Started Admitted by clusterQueue cq", "Normal FinishedWorkload Workload '" + name + "' is declared finished"}
	if got := w.recorded(); !slices.Equal(got, want) {
		t.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A suspended job that is changed has its workload changed, and its user is told.
func TestChangedJobUpdatesItsWorkload(t *testing.T) {
	w := newWorld(t, parse(t, queuedJob))
	job := w.settle("job")
	w.recorded()
	if err := unstructured.SetNestedField(job.Object, int64(4), "spec", "parallelism"); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	w.settle("job")
	wl := w.workloadOf(job)
	if got := w.recorded(); wl.Spec.PodSets[0].Count != 4 || len(got) != 1 || got[0] != "Normal UpdatedWorkload Updated not matching Workload for suspended job: ns/"+wl.Name {
		t.Errorf("%d pods, events %q", wl.Spec.PodSets[0].Count, got)
	}
}

// A job whose quota somebody takes away, without an eviction, is stopped and becomes what its user wrote;
// its workload does not take over what the admission added.
func TestJobWithoutItsReservationIsRestored(t *testing.T) {
	w := newWorld(t, parse(t, queuedJob))
	w.admit(w.workloadOf(w.settle("job")), oneOf("cq", 2))
	job := w.settle("job")
	if n, _, _ := unstructured.NestedInt64(job.Object, "spec", "parallelism"); n != 2 {
		t.Fatalf("it runs with %d pods", n)
	}
	w.admit(w.workloadOf(job), nil)
	job = w.settle("job")
	suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	pods, _, _ := unstructured.NestedInt64(job.Object, "spec", "parallelism")
	annotations, _, _ := unstructured.NestedMap(job.Object, "spec", "template", "metadata", "annotations")
	if !suspended || pods != 5 || len(annotations) > 0 {
		t.Errorf("suspended %t, %d pods, annotations %v", suspended, pods, annotations)
	}
	if set := w.workloadOf(job).Spec.PodSets[0]; set.Count != 5 || len(set.Template.Annotations) > 0 {
		t.Errorf("its workload became %d pods, %v", set.Count, set.Template.Annotations)
	}
}

// A job that contradicts its admission is not tried again: its workload is finished, and says why.
func TestJobThatContradictsItsAdmission(t *testing.T) {
	w := newWorld(t, parse(t, queuedJob))
	wl := w.workloadOf(w.settle("job"))
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{
		Name: "check", State: kueue.CheckStateReady, PodSetUpdates: []kueue.PodSetUpdate{{Name: "main", Labels: map[string]string{"team": "b"}}},
	}}
	w.admit(wl, oneOf("cq", 5))
	job := w.settle("job")
	if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); !suspended {
		t.Error("it was started")
	}
	finished := apimeta.FindStatusCondition(w.workloadOf(job).Status.Conditions, kueue.WorkloadFinished)
	if finished == nil || finished.Reason != "FailedToStart" || !strings.Contains(finished.Message, "team") {
		t.Errorf("finished: %v", finished)
	}
}

// The checks of a parent are those of the variant that it is admitted as: what they add reaches its job's pods.
func TestChecksOfAVariantReachTheJob(t *testing.T) {
	w := newWorld(t, parse(t, queuedJob))
	wl := w.workloadOf(w.settle("job"))
	metav1.SetMetaDataLabel(&wl.ObjectMeta, kueuelabels.ConcurrentAdmissionParent, "true")
	if err := w.client.Update(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	for flavor, pods := range map[string]int32{"other": 3, "f": 5} {
		variant := workload.NewVariant(wl, flavor)
		if err := w.client.Create(t.Context(), variant); err != nil {
			t.Fatal(err)
		}
		variant.Status.AdmissionChecks = []kueue.AdmissionCheckState{{
			Name: "check", State: kueue.CheckStateReady, PodSetUpdates: []kueue.PodSetUpdate{{Name: "main", Annotations: map[string]string{"request": flavor}}},
		}}
		w.admit(variant, oneOf("cq", pods))
	}
	w.admit(wl, oneOf("cq", 5))
	annotations, _, _ := unstructured.NestedStringMap(w.settle("job").Object, "spec", "template", "metadata", "annotations")
	if annotations["request"] != "f" {
		t.Errorf("its pods have %v", annotations)
	}
}

// A job that a queued job owns runs only while that one may.
func TestChildOfAJobThatMayNotRun(t *testing.T) {
	child := strings.NewReplacer("name: job, uid: job, labels: {kueue.x-k8s.io/queue-name: main}",
		"name: child, uid: child, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: job, uid: job, controller: true}]", "suspend: true", "suspend: false").Replace(queuedJob)
	for name, tc := range map[string]struct {
		parent    string
		admission *kueue.Admission
		want      bool
	}{
		"it is not admitted":   {parent: queuedJob, want: true},
		"it is":                {parent: queuedJob, admission: oneOf("cq", 5)},
		"it is in no queue":    {parent: strings.Replace(queuedJob, "labels: {kueue.x-k8s.io/queue-name: main}", "labels: {}", 1)},
		"another of that name": {parent: strings.Replace(queuedJob, "uid: job", "uid: other", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, parse(t, tc.parent), parse(t, child))
			parent := w.settle("job")
			if tc.admission != nil {
				w.admit(w.workloadOf(parent), tc.admission)
			}
			w.recorded()
			suspended, _, _ := unstructured.NestedBool(w.settle("child").Object, "spec", "suspend")
			events := w.recorded()
			if suspended != tc.want || slices.Contains(events, "Normal Suspended Kueue managed child job suspended") != tc.want {
				t.Errorf("suspended %t, events %q", suspended, events)
			}
		})
	}
}

// A part of a part runs while the whole job may, whatever the part in between says of a queue.
func TestChildOfAPart(t *testing.T) {
	owned := func(name, by, labels string) string {
		return strings.NewReplacer("name: job, uid: job, labels: {kueue.x-k8s.io/queue-name: main}", "name: "+name+", uid: "+name+", labels: {"+labels+
			"}, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: "+by+", uid: "+by+", controller: true}]", "suspend: true", "suspend: false").Replace(queuedJob)
	}
	w := newWorld(t, parse(t, queuedJob), parse(t, owned("part", "job", "kueue.x-k8s.io/queue-name: main")), parse(t, owned("child", "part", "")))
	w.admit(w.workloadOf(w.settle("job")), oneOf("cq", 5))
	if suspended, _, _ := unstructured.NestedBool(w.settle("child").Object, "spec", "suspend"); suspended {
		t.Error("it was suspended")
	}
}

// Who must agree before a job is considered is said on the job; a gate that goes there goes from the
// workload.
func TestGatesOfAJob(t *testing.T) {
	gated := strings.Replace(queuedJob, "annotations: {", "annotations: {kueue.x-k8s.io/admission-gated-by: example.com/a, ", 1)
	w := newWorld(t, parse(t, gated))
	job := w.settle("job")
	if got := w.workloadOf(job).Annotations["kueue.x-k8s.io/admission-gated-by"]; got != "example.com/a" {
		t.Fatalf("the workload's gates: %q", got)
	}
	w.recorded()
	annotations := job.GetAnnotations()
	delete(annotations, "kueue.x-k8s.io/admission-gated-by")
	job.SetAnnotations(annotations)
	if err := w.client.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	w.settle("job")
	_, left := w.workloadOf(job).Annotations["kueue.x-k8s.io/admission-gated-by"]
	if got := w.recorded(); left || !slices.Equal(got, []string{`Normal UpdatedWorkload Updated workload AdmissionGatedBy to ""`}) {
		t.Errorf("still gated: %t; events %q", left, got)
	}
}

// The value of a class that changes is that of its workloads, but for those that have ended.
func TestWorkloadPriorityClassChanges(t *testing.T) {
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7}
	of := func(name string, ref *kueue.PriorityClassRef) *kueue.Workload {
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		wl.Spec.PriorityClassRef, wl.Spec.Priority = ref, ptr.To(int32(1))
		return wl
	}
	ended := of("ended", kueue.NewWorkloadPriorityClassRef("high"))
	ended.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
	c := indexed(fake.NewClientBuilder().WithScheme(staleScheme(t)).WithObjects(class, ended, of("of-it", kueue.NewWorkloadPriorityClassRef("high")),
		of("of-pods", kueue.NewPodPriorityClassRef("high")), of("of-another", kueue.NewWorkloadPriorityClassRef("low")))).
		WithIndex(&kueue.Workload{}, kinds.PriorityClassIndex, kinds.PriorityClassOf).Build()
	if _, err := (&priorityClassReconciler{c}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "high"}}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int32{"of-it": 7, "of-pods": 1, "of-another": 1, "ended": 1} {
		wl := &kueue.Workload{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, wl); err != nil {
			t.Fatal(err)
		}
		if *wl.Spec.Priority != want {
			t.Errorf("%s has %d, want %d", name, *wl.Spec.Priority, want)
		}
	}
}

// A job that names no class has the priority that the API server will give its pods.
func TestDefaultPriorityClassOfTheCluster(t *testing.T) {
	class := func(name string, value int32, isDefault bool) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault}
	}
	w := newWorld(t, parse(t, queuedJob), class("a", 9, true), class("b", 5, true), class("c", 1, false))
	wl := w.workloadOf(w.settle("job"))
	if *wl.Spec.Priority != 5 || wl.Spec.PriorityClassRef == nil || wl.Spec.PriorityClassRef.Name != "b" {
		t.Errorf("priority %d of %v", *wl.Spec.Priority, wl.Spec.PriorityClassRef)
	}
}

// Without waitForPodsReady, Kueue's Workloads have no condition PodsReady.
func TestPodsReadyIsNotReportedWhereNobodyWaits(t *testing.T) {
	for _, silent := range []bool{false, true} {
		w := newWorld(t, parse(t, queuedJob))
		w.noPodsReady = silent
		w.admit(w.workloadOf(w.settle("job")), oneOf("cq", 5))
		wl := w.workloadOf(w.settle("job"))
		if reported := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady) != nil; reported == silent {
			t.Errorf("silent %t, and reported %t", silent, reported)
		}
	}
}
