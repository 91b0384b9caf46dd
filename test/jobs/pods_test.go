package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// gatedLife is a kind without a suspend flag: its pods are gated.
type gatedLife struct {
	sample string
	pods   int
	// workloads it must have while it waits, by their pod sets
	workloads []string
	// operator makes the pods that the kind's operator would; nil where the
	// sandbox has the real one.
	operator func(t *testing.T, a *arena, made *unstructured.Unstructured)
}

var gatedLives = []gatedLife{
	{sample: "deployment", pods: 2, workloads: []string{"main:1", "main:1"}},
	{sample: "statefulset", pods: 1, workloads: []string{"main:2"}}, // the second is created when the first is up
	{sample: "leaderworkerset", pods: 3, workloads: []string{"leader:1 worker:2"}, operator: playLeaderWorkerSet},
	{sample: "notebook", pods: 1, workloads: []string{"main:1"}, operator: playNotebook},
	{sample: "inferenceservice", pods: 1, workloads: []string{"main:1"}, operator: playWith("predictor", []string{"spec", "predictor"})},
	{sample: "volcano-job", pods: 1, workloads: []string{"main:1"}, operator: playVolcano},
	{sample: "et-trainingjob", pods: 2, workloads: []string{"main:1", "main:1"}, operator: playElasticTraining},
	{sample: "argo-workflow", pods: 1, workloads: []string{"main:1"}, operator: playWith("step", []string{"spec", "podMetadata"})},
}

// TestGatedConformance takes every kind that has no suspend flag through wait,
// start, preempt, requeue and finish.
func TestGatedConformance(t *testing.T) {
	if err := installed(); err != nil {
		t.Fatal(err)
	}
	for _, l := range gatedLives {
		t.Run(l.sample, func(t *testing.T) {
			t.Parallel()
			l.live(t)
		})
	}
}

func (l gatedLife) live(t *testing.T) {
	a := newArena(t)
	object := samples(t, l.sample)[0]
	object.SetNamespace(a.namespace)
	cluster.Make(t, object)
	play := func() {
		if l.operator != nil {
			l.operator(t, a, object)
		}
	}

	// They wait, gated and described.
	play()
	waitPods(t, a, l.pods, func(pod *corev1.Pod) error { return wantGate(pod, true) })
	sandbox.Eventually(t, "its workloads", func(ctx context.Context) error { return a.wantWorkloads(ctx, l.workloads) })

	// They start, with the flavor's node labels and tolerations.
	a.open(t)
	started := func(pod *corev1.Pod) error {
		if marks(pod.Spec.Tolerations) != 1 {
			return fmt.Errorf("pod %s does not carry what the admission adds", pod.Name)
		}
		return wantGate(pod, false)
	}
	old := waitPods(t, a, l.pods, started)

	// They are preempted: running pods are deleted, and their replacements are gated.
	intruder := a.intruder(t)
	sandbox.Eventually(t, "the pods that ran are gone", func(ctx context.Context) error { return a.wantGone(ctx, old) })
	waitCondition(t, intruder, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	play()
	waitPods(t, a, l.pods, func(pod *corev1.Pod) error { return wantGate(pod, true) })

	// They are admitted again when the preemptor is gone.
	if err := cluster.Delete(t.Context(), intruder); err != nil {
		t.Fatal(err)
	}
	waitPods(t, a, l.pods, started)

	// They are deleted with their object, and the quota is released.
	if err := cluster.Delete(t.Context(), object, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	waitUsageZero(t, a)
}

// pods are the arena's pods that have not ended.
func (a *arena) pods(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := cluster.List(ctx, list, client.InNamespace(a.namespace))
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil }), err
}

func waitPods(t *testing.T, a *arena, least int, check func(*corev1.Pod) error) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	sandbox.Eventually(t, "its pods are as they should be", func(ctx context.Context) error {
		var err error
		if pods, err = a.pods(ctx); err != nil {
			return err
		}
		if len(pods) < least {
			return fmt.Errorf("%d pods of %d", len(pods), least)
		}
		for i := range pods {
			if err := check(&pods[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return pods
}

func wantGate(pod *corev1.Pod, want bool) error {
	gated := slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kinds.AdmissionGate})
	if gated != want {
		return fmt.Errorf("pod %s is gated: %v, want %v", pod.Name, gated, want)
	}
	return nil
}

func (a *arena) wantGone(ctx context.Context, old []corev1.Pod) error {
	for i := range old {
		now := &corev1.Pod{}
		err := cluster.Get(ctx, client.ObjectKeyFromObject(&old[i]), now)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil && now.UID == old[i].UID {
			return fmt.Errorf("pod %s is still there", now.Name)
		}
	}
	return nil
}

func (a *arena) wantWorkloads(ctx context.Context, want []string) error {
	list := &kueue.WorkloadList{}
	if err := cluster.List(ctx, list, client.InNamespace(a.namespace)); err != nil {
		return err
	}
	var got []string
	for i := range list.Items {
		got = append(got, podSetsOf(&list.Items[i]))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("workloads are %q, want %q", got, want)
	}
	return nil
}

// makePod makes a pod as an operator would, from metadata and a spec that are
// in the object; a pod that exists is left alone.
func makePod(t *testing.T, a *arena, owner *unstructured.Unstructured, name string, meta, spec any) {
	t.Helper()
	pod := &corev1.Pod{}
	raw := map[string]any{"metadata": meta, "spec": spec}
	if meta == nil {
		delete(raw, "metadata")
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, pod); err != nil {
		t.Fatal(err)
	}
	pod.Namespace, pod.Name = a.namespace, name
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())}
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{
			Name: "main", Image: "example.com/train:1",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{sandbox.GPU: resource.MustParse("1")}},
		}}
	}
	if err := cluster.Create(t.Context(), pod); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}

func field(object *unstructured.Unstructured, path ...string) any {
	value, _, _ := unstructured.NestedFieldCopy(object.Object, path...)
	return value
}

// playLeaderWorkerSet makes the pods of the first group, labelled as the
// LeaderWorkerSet controller labels them.
func playLeaderWorkerSet(t *testing.T, a *arena, set *unstructured.Unstructured) {
	for i, template := range []string{"leaderTemplate", "workerTemplate", "workerTemplate"} {
		meta, _ := field(set, "spec", "leaderWorkerTemplate", template, "metadata").(map[string]any)
		labels, _ := meta["labels"].(map[string]any)
		labels["leaderworkerset.sigs.k8s.io/name"] = set.GetName()
		labels["leaderworkerset.sigs.k8s.io/group-index"] = "0"
		labels["leaderworkerset.sigs.k8s.io/worker-index"] = fmt.Sprint(i)
		makePod(t, a, set, fmt.Sprintf("%s-0-%d", set.GetName(), i), meta, field(set, "spec", "leaderWorkerTemplate", template, "spec"))
	}
}

// playNotebook gives the object's labels to its pod, as the notebook controller
// does.
func playNotebook(t *testing.T, a *arena, notebook *unstructured.Unstructured) {
	meta := map[string]any{"labels": field(notebook, "metadata", "labels")}
	makePod(t, a, notebook, notebook.GetName()+"-0", meta, field(notebook, "spec", "template", "spec"))
}

func playVolcano(t *testing.T, a *arena, job *unstructured.Unstructured) {
	tasks, _ := field(job, "spec", "tasks").([]any)
	template := tasks[0].(map[string]any)["template"].(map[string]any)
	makePod(t, a, job, job.GetName()+"-worker-0", template["metadata"], template["spec"])
}

// playElasticTraining makes the launcher and a worker.
func playElasticTraining(t *testing.T, a *arena, job *unstructured.Unstructured) {
	for _, role := range []string{"launcher", "worker"} {
		template, _ := field(job, "spec", "etReplicaSpecs", role, "template").(map[string]any)
		makePod(t, a, job, job.GetName()+"-"+role, template["metadata"], template["spec"])
	}
}

// playWith makes a pod with labels and annotations from a place in the object.
func playWith(name string, place []string) func(*testing.T, *arena, *unstructured.Unstructured) {
	return func(t *testing.T, a *arena, object *unstructured.Unstructured) {
		meta := map[string]any{
			"labels":      field(object, append(slices.Clone(place), "labels")...),
			"annotations": field(object, append(slices.Clone(place), "annotations")...),
		}
		makePod(t, a, object, object.GetName()+"-"+name, meta, map[string]any{})
	}
}

// TestPod takes a single pod through the queue to its end.
func TestPod(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	object := samples(t, "pod")[0]
	object.SetNamespace(a.namespace)
	object.SetAnnotations(map[string]string{sandbox.RunFor: "forever"})
	cluster.Make(t, object)
	pod := waitPods(t, a, 1, func(pod *corev1.Pod) error { return wantGate(pod, true) })[0]
	wl := cluster.WorkloadOf(t, &pod)
	a.open(t)
	waitCondition(t, wl, kueue.WorkloadPodsReady, metav1.ConditionTrue)
	endPod(t, &pod, "0s")
	finished := waitCondition(t, wl, kueue.WorkloadFinished, metav1.ConditionTrue)
	if finished.Reason != kueue.WorkloadFinishedReasonSucceeded {
		t.Fatalf("it finished as %s", finished.Reason)
	}
	waitUsageZero(t, a)
	sandbox.Eventually(t, "the pod may be deleted", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(&pod), &pod); err != nil {
			return err
		}
		if len(pod.Finalizers) > 0 {
			return fmt.Errorf("it has finalizers %v", pod.Finalizers)
		}
		return nil
	})
}

// endPod lets a simulated pod end.
func endPod(t *testing.T, pod *corev1.Pod, after string) {
	t.Helper()
	sandbox.Eventually(t, "the pod can be ended", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[sandbox.RunFor] = after
		return cluster.Update(ctx, pod)
	})
}

// TestPodGroup: a group is admitted as one, a failed pod is replaced, too many
// are deleted, and the group ends when all pods have.
func TestPodGroup(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.open(t)
	objects := samples(t, "pod-group")
	for _, object := range objects {
		object.SetNamespace(a.namespace)
		annotations := object.GetAnnotations()
		annotations[sandbox.RunFor] = "forever"
		object.SetAnnotations(annotations)
	}
	failing := objects[1].DeepCopy()
	annotations := failing.GetAnnotations()
	annotations[sandbox.ExitCode] = "1"
	failing.SetAnnotations(annotations)
	cluster.Make(t, objects[0])
	waitPods(t, a, 1, func(pod *corev1.Pod) error { return wantGate(pod, true) })
	if err := a.wantWorkloads(t.Context(), nil); err != nil {
		t.Fatal("a group of which a pod is missing must not be queued: ", err)
	}
	cluster.Make(t, failing)
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "sample-group"}}
	waitCondition(t, wl, kueue.WorkloadPodsReady, metav1.ConditionTrue)

	// One fails; its replacement is started at once.
	endPod(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: failing.GetName()}}, "0s")
	waitCondition(t, wl, kueue.WorkloadPodsReady, metav1.ConditionFalse)
	replacement := objects[1].DeepCopy()
	replacement.SetName("sample-group-1b")
	cluster.Make(t, replacement)
	waitCondition(t, wl, kueue.WorkloadPodsReady, metav1.ConditionTrue)

	// An excess pod is deleted.
	surplus := objects[1].DeepCopy()
	surplus.SetName("sample-group-2")
	cluster.Make(t, surplus)
	sandbox.Eventually(t, "the surplus pod is deleted", func(ctx context.Context) error {
		_, err := fetch(ctx, surplus)
		if err == nil {
			return fmt.Errorf("it is there")
		}
		return client.IgnoreNotFound(err)
	})

	for _, name := range []string{"sample-group-0", "sample-group-1b"} {
		endPod(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}}, "0s")
	}
	finished := waitCondition(t, wl, kueue.WorkloadFinished, metav1.ConditionTrue)
	if finished.Message != "Pods succeeded: 2/2." {
		t.Fatalf("it finished with %q", finished.Message)
	}
	waitUsageZero(t, a)
}

// A group that has the name of another job's workload does not use it, and leaves
// nothing behind.
func TestPodGroupWithTheNameOfAnother(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.open(t)
	job := newJob(a, "theirs", 1)
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	waitCondition(t, wl, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: a.namespace, Name: "other", Labels: map[string]string{kinds.QueueNameLabel: "main", kinds.GroupNameLabel: wl.Name},
		Annotations: map[string]string{kinds.GroupTotal: "1"},
	}, Spec: job.Spec.Template.Spec}
	cluster.Make(t, pod)
	sandbox.Eventually(t, "it gets an event with the reason", func(ctx context.Context) error {
		events := &eventsv1.EventList{}
		if err := cluster.List(ctx, events, client.InNamespace(a.namespace)); err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Regarding.Name == pod.Name && strings.Contains(event.Note, "is not a pod group workload") {
				return nil
			}
		}
		return fmt.Errorf("%d events are about others", len(events.Items))
	})
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	if err := wantGate(pod, true); err != nil {
		t.Error(err)
	}
	if err := cluster.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	cluster.WaitGone(t, pod)
	if condition := waitCondition(t, wl, kueue.WorkloadAdmitted, metav1.ConditionTrue); condition == nil || wl.DeletionTimestamp != nil {
		t.Errorf("the job's workload is %+v", wl.Status)
	}
}

// TestGoingPod: a preempted pod releases its quota when it has stopped, although a
// finalizer holds the object, and is not requeued.
func TestGoingPod(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.open(t)
	object := samples(t, "pod")[0]
	object.SetNamespace(a.namespace)
	object.SetAnnotations(map[string]string{sandbox.RunFor: "forever"})
	object.SetFinalizers([]string{"example.com/hold"})
	cluster.Make(t, object)
	pod := waitPods(t, a, 1, func(pod *corev1.Pod) error { return wantGate(pod, false) })[0]
	wl := cluster.WorkloadOf(t, &pod)
	waitCondition(t, wl, kueue.WorkloadPodsReady, metav1.ConditionTrue)

	intruder := a.intruder(t)
	waitCondition(t, intruder, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	again := waitCondition(t, wl, kueue.WorkloadRequeued, metav1.ConditionFalse)
	if again.Reason != kueue.WorkloadEvictedByPreemption {
		t.Errorf("Requeued is %+v", again)
	}

	// The next workload gets the quota.
	if err := cluster.Delete(t.Context(), intruder); err != nil {
		t.Fatal(err)
	}
	next := newJob(a, "next", 1)
	cluster.Make(t, next)
	waitCondition(t, cluster.WorkloadOf(t, next), kueue.WorkloadAdmitted, metav1.ConditionTrue)
	if err := cluster.Get(t.Context(), clientKey(wl), wl); err != nil {
		t.Fatal(err)
	}
	if wl.Status.Admission != nil {
		t.Errorf("it was admitted again: %s", describe(wl))
	}

	// The workload is deleted with its pod.
	if err := cluster.Patch(t.Context(), &pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "the workload is gone", func(ctx context.Context) error {
		err := cluster.Get(ctx, clientKey(wl), wl)
		if err == nil {
			return fmt.Errorf("it is there: %s", describe(wl))
		}
		return client.IgnoreNotFound(err)
	})
}

// TestGroupSize: how large a LeaderWorkerSet's groups and their pods are is fixed
// while it is in a queue, how many groups there are is not.
func TestGroupSize(t *testing.T) {
	t.Parallel()
	if err := installed(); err != nil {
		t.Fatal(err)
	}
	a := newArena(t)
	set := samples(t, "leaderworkerset")[0]
	set.SetNamespace(a.namespace)
	cluster.Make(t, set)
	change := func(patch string) error {
		return cluster.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	err := change(`{"spec":{"leaderWorkerTemplate":{"size":5}}}`)
	if err == nil || !strings.Contains(err.Error(), "spec.leaderWorkerTemplate.size: Invalid value: 5: field is immutable") {
		t.Errorf("larger groups: %v", err)
	}
	containers := field(set, "spec", "leaderWorkerTemplate", "workerTemplate", "spec", "containers").([]any)
	if err := unstructured.SetNestedField(containers[0].(map[string]any), "2", "resources", "limits", string(sandbox.GPU)); err != nil {
		t.Fatal(err)
	}
	larger := set.DeepCopy()
	if err := unstructured.SetNestedSlice(larger.Object, containers, "spec", "leaderWorkerTemplate", "workerTemplate", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Update(t.Context(), larger); err == nil || !strings.Contains(err.Error(), "field is immutable") {
		t.Errorf("larger pods: %v", err)
	}
	if err := change(`{"spec":{"replicas":2}}`); err != nil {
		t.Errorf("more groups: %v", err)
	}
	if err := change(`{"metadata":{"labels":null},"spec":{"leaderWorkerTemplate":{"size":5}}}`); err == nil || !strings.Contains(err.Error(), "field is immutable") {
		t.Errorf("larger groups, out of the queue: %v", err)
	}
}
